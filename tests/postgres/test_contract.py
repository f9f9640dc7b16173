"""PostgresBus keeps the whole contract: on each version, through a pooler, and with its links made deaf by one."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit

import pytest

from notification_bus.testing import BrokerHarness, FaultProxy, Link, Observed, Wire, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import Provider, Server, has_pgbouncer, pgbouncer, witness
from tests.postgres._tools import with_options


class PostgresWire:
    """The channel through raw asyncpg connections."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def inject(self, channel: str, body: bytes) -> None:
        text = body.decode()
        if "\0" in text or len(body) > 7999:
            raise ValueError("NOTIFY carries text without NUL, of at most 7,999 bytes")
        async with witness("postgres", self._url, channel) as raw:
            await raw.publish(body)

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observed]:
        async with witness("postgres", self._url, channel) as raw:
            yield raw


class DeafProxy(FaultProxy):
    """A link that can also lead to a pooler in transaction mode, which confirms a LISTEN and forgets it."""

    def __init__(self, host: str, port: int, pooler: int) -> None:
        super().__init__(host, port)
        self._pooler = pooler

    async def deaf(self) -> None:
        await self.reroute("127.0.0.1", self._pooler)
        await self.cut()


class PostgresHarness(BrokerHarness):
    pooler: int | None = None

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        if self.pooler is None:
            return super().link()
        parts = urlsplit(self.url)
        return cast("AbstractAsyncContextManager[Link]", DeafProxy(parts.hostname or "", parts.port or 0, self.pooler))


def make_harness(server: Server, url: str, pooler: str | None) -> PostgresHarness:
    basic = url_harness(url, max_body=7999)
    harness = PostgresHarness(
        basic.url,
        capabilities=replace(basic.capabilities, end_to_end=pooler is not None),
        wire=cast("Wire", PostgresWire(server.url)),
        broker=f"PostgreSQL {server.version}",
    )
    harness.pooler = None if pooler is None else urlsplit(pooler).port
    return harness


@pytest.fixture(scope="session")
def pooler(server: Server) -> Iterator[str | None]:
    if not has_pgbouncer():
        yield None
        return
    with pgbouncer(server, "transaction") as dsn:
        yield dsn


class TestPostgresBusKeepsTheContract(BusContract):
    """On each version of the server."""

    strict = True

    @pytest.fixture
    def harness(self, server: Server, pooler: str | None) -> PostgresHarness:
        return make_harness(server, server.url, pooler)


@pytest.mark.skipif(not has_pgbouncer(), reason="no pgbouncer here")
class TestPostgresBusKeepsTheContractThroughAPooler(BusContract):
    """Publishing through pgbouncer in transaction mode, listening directly: the faults are between bus and pooler."""

    strict = True

    @pytest.fixture
    def harness(self, brokers: Provider) -> Iterator[BrokerHarness]:
        server = brokers.get("postgres")
        with pgbouncer(server, "transaction") as dsn:
            yield make_harness(server, with_options(dsn, listen_dsn=server.url), None)
