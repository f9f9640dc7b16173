"""PostgresBus keeps the whole contract: on each version, through a pooler, and with its links made deaf by one."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import cast
from urllib.parse import quote_plus, urlsplit

import pytest

from notification_bus import NotificationBus, open_bus
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


class Links:
    """A link of two: to the pooler, where the bus publishes, and to the server, where it listens."""

    def __init__(self, publishing: FaultProxy, listening: DeafProxy) -> None:
        self.publishing = publishing
        self.listening = listening

    async def deaf(self) -> None:
        await self.listening.deaf()

    async def delay(self, seconds: float) -> None:
        for proxy in (self.publishing, self.listening):
            await proxy.delay(seconds)

    async def stall(self) -> None:
        for proxy in (self.publishing, self.listening):
            await proxy.stall()

    async def blackhole(self) -> None:
        for proxy in (self.publishing, self.listening):
            await proxy.blackhole()

    async def cut(self) -> None:
        for proxy in (self.publishing, self.listening):
            await proxy.cut()

    async def refuse(self) -> None:
        for proxy in (self.publishing, self.listening):
            await proxy.refuse()

    async def restore(self) -> None:
        for proxy in (self.publishing, self.listening):
            await proxy.restore()

    @property
    def attempts(self) -> int:
        return self.publishing.attempts + self.listening.attempts


class PooledHarness(BrokerHarness):
    """Publishes through a pooler, and listens at the server."""

    def __init__(self, server: Server, dsn: str) -> None:
        basic = url_harness(with_options(dsn, listen_dsn=server.url), max_body=7999)
        super().__init__(
            basic.url,
            capabilities=replace(basic.capabilities, end_to_end=True),
            wire=cast("Wire", PostgresWire(server.url)),
            broker=f"PostgreSQL {server.version} behind pgbouncer",
        )
        self._server = server
        self._pooler = urlsplit(dsn)

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        url = self.url
        if isinstance(link, Links):
            url = url.replace(self._pooler.netloc, f"postgres@127.0.0.1:{link.publishing.port}")
            url = url.replace(
                quote_plus(self._server.url), quote_plus(self._server.via("127.0.0.1", link.listening.port))
            )
        async with open_bus(with_options(url, channel=channel)) as bus:
            yield bus

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        return self._links()

    @asynccontextmanager
    async def _links(self) -> AsyncGenerator[Link]:
        port = self._pooler.port or 0
        async with (
            FaultProxy("127.0.0.1", port) as publishing,
            DeafProxy(self._server.host, self._server.port, port) as listening,
        ):
            yield Links(publishing, listening)


@pytest.fixture(scope="module")
def pooled_harness(brokers: Provider) -> Iterator[PooledHarness]:
    server = brokers.get("postgres")
    with pgbouncer(server, "transaction") as dsn:
        yield PooledHarness(server, dsn)


@pytest.mark.skipif(not has_pgbouncer(), reason="no pgbouncer here")
class TestPostgresBusKeepsTheContractThroughAPooler(BusContract):
    """Publishing through pgbouncer in transaction mode, listening directly."""

    strict = True

    @pytest.fixture
    def harness(self, pooled_harness: PooledHarness) -> PooledHarness:
        return pooled_harness
