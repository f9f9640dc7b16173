"""Harnesses that are made already: for `MemoryBus`, and for any bus that is built from a URL."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from anyio.lowlevel import checkpoint

from notification_bus.broker import BrokerBus
from notification_bus.bus import NotificationBus, OpenableBus
from notification_bus.connection import BrokerConnection
from notification_bus.memory import MemoryBus
from notification_bus.testing._proxy import FaultProxy
from notification_bus.testing.harness import Capabilities, Link, Wire
from notification_bus.testing.wires import find_wire
from notification_bus.url import open_bus

__all__ = ["BrokerHarness", "MemoryHarness", "ProxyLink", "url_harness"]


class MemoryHarness:
    """`MemoryBus`, small enough to overflow quickly."""

    capabilities: Capabilities = Capabilities(
        buffer=16,
        max_body=65_536,
        has_broker=False,
        probes=False,
        backends=("asyncio", "trio"),
        drop_logger="notification_bus.memory",
    )

    def build(self, channel: str) -> MemoryBus:
        """An instance that was not started."""
        return MemoryBus(channel, max_body=65_536, buffer=16)

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[MemoryBus]:
        """A started instance."""
        async with self.build(channel) as bus:
            yield bus


class ProxyLink(FaultProxy):
    """A link that is a TCP proxy: it has every fault but deafness."""


class DeafProxyLink(ProxyLink):
    """The same before a `BrokerBus`, which can be made deaf as well: no proxy can, so its connections are."""

    def __init__(self, host: str, port: int | None = None) -> None:
        super().__init__(host, port)
        self._is_deaf = False

    def lead(self, bus: BrokerBus) -> None:
        """Have this one object's connections deliver nothing while the link is deaf."""
        connect = bus.connect

        async def through() -> BrokerConnection:
            connection = await connect()
            receive = connection.receive

            async def filtered() -> AsyncGenerator[Sequence[bytes | str]]:
                async for batch in receive():
                    if not self._is_deaf:
                        yield batch

            connection.receive = filtered  # type: ignore[method-assign]  # of this object, not of its class
            return connection

        bus.connect = through  # type: ignore[method-assign]  # as above

    async def deaf(self) -> None:
        """Confirm subscriptions, accept what is published and answer pings, but deliver nothing, until `restore`."""
        self._is_deaf = True
        await checkpoint()

    async def restore(self) -> None:
        """Carry everything again. What was killed stays dead."""
        self._is_deaf = False
        await super().restore()


DEFAULT_PORTS: Final[Mapping[str, int]] = {
    "redis": 6379,
    "rediss": 6379,
    "valkey": 6379,
    "valkeys": 6379,
    "nats": 4222,
    "tls": 4222,
    "ws": 80,
    "wss": 443,
    "postgresql": 5432,
    "postgres": 5432,
}
"""Where a broker listens when its URL does not say."""

BuildBus = Callable[[str, str], OpenableBus]
"""From a URL without a channel, and a channel, to a bus that was not started."""


class BrokerHarness:
    """A bus that is built from a URL, with a `FaultProxy` between each instance that gets a link and the broker.

    Args:
        url: Where the broker is; its options, apart from the channel, in the query.
        build: From a URL and a channel to a bus; `open_bus` unless it is given. It can set whatever a URL cannot.
        capabilities: What the bus says of itself, with the sizes and times of what `build` builds.
        wire: The channel beside the bus, where the caller has a raw client.
        proxied: Whether the broker can be reached through a TCP proxy, so that there are links.
        broker: Name and version of the broker, for the report's header.
        child: How another process builds the bus; the URL itself unless it is given. `None` for no child.
    """

    def __init__(
        self,
        url: str,
        *,
        capabilities: Capabilities,
        build: BuildBus | None = None,
        wire: Wire | None = None,
        proxied: bool = True,
        broker: str | None = None,
        child: str | None = "",
    ) -> None:
        self.url = url
        self.capabilities = capabilities
        self.wire = wire
        self.broker = broker
        self.child: str | None = url if child == "" else child
        self._build = build or _open
        self._proxied = proxied

    def build(self, channel: str) -> OpenableBus:
        """An instance that was not started."""
        return self._build(self.url, channel)

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        """A started instance; it goes through the link's proxy where one is given."""
        url = self.url
        if link is not None:
            if not isinstance(link, FaultProxy):
                raise TypeError(f"this harness has links of its own, and was given a {type(link).__name__}")
            url = replace_address(url, link.host, link.port)
        bus = self._build(url, channel)
        if isinstance(link, DeafProxyLink) and isinstance(bus, BrokerBus):
            link.lead(bus)
        async with bus:
            yield bus

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        """A new proxy in front of the broker."""
        if not self._proxied:
            return None
        parts = urlsplit(self.url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        if port is None:
            raise ValueError(f"the URL names no port, and none is known for {parts.scheme}://")
        claims = self.capabilities.end_to_end and isinstance(self.build("kit-look"), BrokerBus)
        kind = DeafProxyLink if claims else ProxyLink
        return cast("AbstractAsyncContextManager[Link]", kind(parts.hostname or "127.0.0.1", port))


def url_harness(
    url: str,
    *,
    capabilities: Capabilities | None = None,
    wire: Wire | None = None,
    proxied: bool = True,
    broker: str | None = None,
    backends: Sequence[str] = ("asyncio",),
    max_body: int | None = None,
) -> BrokerHarness:
    """A harness for whatever `open_bus` opens at that URL, with sizes and times small enough for tests.

    Options that are in the URL already are kept, and `capabilities` should then say what they are.

    Args:
        url: A bus URL, without a channel.
        capabilities: What the bus says of itself; by default what every `BrokerBus` does.
        wire: The channel beside the bus; by default the wire that the bus's distribution offers (`find_wire`).
        proxied: Whether the broker can be reached through a TCP proxy.
        broker: Name and version of the broker, for the report's header.
        backends: The async libraries that the bus runs on.
        max_body: Bytes of the largest body; `None` where there is no limit of interest.
    """
    parts = urlsplit(url)
    query = {**{name: str(value) for name, value in SMALL.items()}, **dict(parse_qsl(parts.query))}
    query.pop("channel", None)
    if parts.scheme == "memory":
        return BrokerHarness(
            url,
            capabilities=capabilities or MemoryHarness.capabilities,
            build=lambda _url, channel: MemoryHarness().build(channel),
            proxied=False,
            child=None,
        )
    small = _with_query(url, query)
    return BrokerHarness(
        small,
        capabilities=capabilities or small_capabilities(query, backends=backends, max_body=max_body),
        wire=wire or find_wire(small),
        proxied=proxied,
        broker=broker,
    )


def _with_query(url: str, query: Mapping[str, str]) -> str:
    # Not `urlunsplit`, which takes the two slashes from a URL without a host, such as a Unix socket's.
    return f"{url.partition('?')[0]}?{urlencode(query)}"


SMALL: Final[dict[str, int | float]] = {
    "buffer": 32,
    "outbox": 64,
    "probe_interval": 0.5,
    "probe_timeout": 1.5,
    "ready_timeout": 5.0,
    "close_timeout": 1.0,
    "backoff_cap": 0.2,
}
"""Options of a `BrokerBus` under test: overflowing takes little, and no fault takes long to be noticed."""


def small_capabilities(
    options: dict[str, str], *, backends: Sequence[str] = ("asyncio",), max_body: int | None = None
) -> Capabilities:
    """What a `BrokerBus` with these options says of itself."""
    number = {name: float(options.get(name, value)) for name, value in SMALL.items()}
    return Capabilities(
        buffer=int(number["buffer"]),
        outbox=int(number["outbox"]),
        max_body=max_body,
        ready_timeout=number["ready_timeout"],
        close_timeout=number["close_timeout"],
        # A probe is due, is not answered, and a new connection is made.
        liveness=number["probe_interval"] + number["probe_timeout"] * 2 + number["backoff_cap"],
        end_to_end=True,
        backends=backends,
    )


def replace_address(url: str, host: str, port: int) -> str:
    """The URL with another host and port, all else kept."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))


def _open(url: str, channel: str) -> OpenableBus:
    return open_bus(f"{url}{'&' if '?' in url else '?'}{urlencode({'channel': channel})}")
