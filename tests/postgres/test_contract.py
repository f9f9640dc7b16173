"""PostgresBus keeps the whole contract: on each version, through a pooler, and with its links made deaf by one."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast
from urllib.parse import quote_plus, urlsplit

import pytest

from notification_bus import NotificationBus, open_bus
from notification_bus.testing import FaultProxy, Harness, Link, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import Provider, Server, has_pgbouncer, pgbouncer
from tests.brokers.wires import PostgresWire
from tests.postgres._tools import with_options


class DeafProxy(FaultProxy):
    """A link that can also lead to a pooler in transaction mode, which confirms a LISTEN and forgets it."""

    def __init__(self, host: str, port: int, pooler: int) -> None:
        super().__init__(host, port)
        self._pooler = pooler

    async def deaf(self) -> None:
        await self.reroute("127.0.0.1", self._pooler)
        await self.cut()


def make_harness(server: Server, pooler: str | None) -> Harness:
    basic = url_harness(server.url, max_body=7999, wire=PostgresWire(server.url), broker=f"PostgreSQL {server.version}")
    port = None if pooler is None else urlsplit(pooler).port
    if port is None:
        return basic

    def deaf_link() -> AbstractAsyncContextManager[Link]:
        return cast("AbstractAsyncContextManager[Link]", DeafProxy(server.host, server.port, port))

    return Harness(
        basic.build,
        basic.capabilities,
        link=deaf_link,
        wire=basic.wire,
        child=basic.child,
        broker=basic.broker,
    )


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
    def harness(self, server: Server, pooler: str | None) -> Harness:
        return make_harness(server, pooler)


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


def make_pooled_harness(server: Server, dsn: str) -> Harness:
    """A harness of a bus that publishes through a pooler, and listens at the server."""
    basic = url_harness(with_options(dsn, listen_dsn=server.url), max_body=7999)
    assert basic.child is not None
    url, pooler = basic.child, urlsplit(dsn)

    def build(channel: str, link: Link | None = None) -> NotificationBus:
        through = url
        if isinstance(link, Links):
            through = through.replace(pooler.netloc, f"postgres@127.0.0.1:{link.publishing.port}")
            through = through.replace(quote_plus(server.url), quote_plus(server.via("127.0.0.1", link.listening.port)))
        return open_bus(with_options(through, channel=channel))

    @asynccontextmanager
    async def open_link() -> AsyncGenerator[Link]:
        port = pooler.port or 0
        async with (
            FaultProxy("127.0.0.1", port) as publishing,
            DeafProxy(server.host, server.port, port) as listening,
        ):
            yield Links(publishing, listening)

    return Harness(
        build,
        basic.capabilities,
        link=open_link,
        wire=PostgresWire(server.url),
        child=url,
        broker=f"PostgreSQL {server.version} behind pgbouncer",
    )


@pytest.fixture(scope="module")
def pooled_harness(brokers: Provider) -> Iterator[Harness]:
    server = brokers.get("postgres")
    with pgbouncer(server, "transaction") as dsn:
        yield make_pooled_harness(server, dsn)


@pytest.mark.skipif(not has_pgbouncer(), reason="no pgbouncer here")
class TestPostgresBusKeepsTheContractThroughAPooler(BusContract):
    """Publishing through pgbouncer in transaction mode, listening directly."""

    strict = True

    @pytest.fixture
    def harness(self, pooled_harness: Harness) -> Harness:
        return pooled_harness
