"""Harnesses for `MemoryBus`, for any bus that a URL opens, and for any `BrokerBus`."""

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias, cast, get_type_hints
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from notification_bus._loops import BackgroundTask
from notification_bus.broker import BrokerBus
from notification_bus.bus import NotificationBus, OpenableBus
from notification_bus.connection import BrokerConnection
from notification_bus.errors import BusURLError, SendRefusedError
from notification_bus.memory import MemoryBus
from notification_bus.options import BusOptions
from notification_bus.testing._proxy import FaultProxy
from notification_bus.testing.faulty import FaultyLink
from notification_bus.testing.harness import Capabilities, Harness, Link, Wire
from notification_bus.url import open_bus

__all__ = [
    "ConnectionWire",
    "broker_bus_harness",
    "memory_harness",
    "url_harness",
]

SMALL: Final[Mapping[str, int | float]] = {
    "buffer": 32,
    "outbox": 64,
    "probe_interval": 0.5,
    "probe_timeout": 1.5,
    "ready_timeout": 5.0,
    "close_timeout": 1.0,
    "backoff_cap": 0.2,
}
"""Options of a `BrokerBus` under test: it overflows quickly, and detects every fault quickly."""

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

_LOOK: Final = "kit-look"
"""The channel of a bus that is built to read its options, and is never started."""

OpenBus: TypeAlias = Callable[[str], OpenableBus]
"""From a URL to a bus that was not started, as `open_bus` and `BrokerBus.from_url`."""

MakeBus: TypeAlias = Callable[[str], BrokerBus]
"""From a channel to a bus that was not started."""


def memory_harness() -> Harness:
    """A harness for `MemoryBus`, small enough to overflow quickly."""

    def build(channel: str) -> MemoryBus:
        return MemoryBus(channel, max_body=65_536, buffer=16)

    capabilities = Capabilities(
        buffer=16,
        max_body=65_536,
        has_broker=False,
        probes=False,
        backends=("asyncio", "trio"),
        drop_logger="notification_bus.memory",
    )
    return Harness(build, capabilities)


# -- from a URL


class ProxyLink(FaultProxy):
    """A TCP proxy in front of a broker, as a link. It can make a `BrokerBus` deaf as well, which no proxy can alone."""

    def __init__(self, host: str, port: int | None = None) -> None:
        super().__init__(host, port)
        self._connections = FaultyLink()

    def lead(self, bus: BrokerBus) -> None:
        """Let `deaf` act on the connections of this bus."""
        self._connections.lead(bus)

    async def deaf(self) -> None:
        """Confirm subscriptions, accept what is published and answer pings, but deliver nothing, until `restore`."""
        await self._connections.deaf()

    async def restore(self) -> None:
        """Carry everything again. What was killed stays dead."""
        await self._connections.restore()
        await super().restore()


def url_harness(
    url: str,
    *,
    opener: OpenBus = open_bus,
    capabilities: Capabilities | None = None,
    max_body: int | None = None,
    wire: Wire | None = None,
    proxied: bool = True,
    child: str | None = None,
    broker: str | None = None,
) -> Harness:
    """A harness for a bus that is built from a URL, with a `FaultProxy` between each linked instance and the broker.

    The bus gets sizes and times that are small enough for tests, unless the URL has them. A channel in the URL is
    ignored.

    Args:
        url: A bus URL.
        opener: From a URL to a bus: `open_bus`, or the `from_url` of a bus that no distribution offers.
        capabilities: What the bus declares; by default what its options say.
        max_body: Bytes of the largest body; by default what the bus says.
        wire: Raw access to the broker's channels; by default a `ConnectionWire` if the bus is a `BrokerBus`.
        proxied: Whether the broker can be reached through a TCP proxy. Without one there are no faults.
        child: How another process builds the bus; by default the URL, unless `opener` is given.
        broker: Name and version of the broker, for the report's header; by default its address.

    Raises:
        BusURLError: No bus can be built from the URL. Only if `capabilities` are not given.
    """
    if urlsplit(url).scheme == "memory" and opener is open_bus:
        _look_at(url, opener, required=True)  # raises if the URL is wrong
        return memory_harness()
    url, look = _look_at(url, opener, required=capabilities is None)
    if capabilities is None:
        assert look is not None  # noqa: S101  # it is required
        capabilities = capabilities_of(look, max_body)

    def build(channel: str, link: Link | None = None) -> OpenableBus:
        if link is not None and not isinstance(link, FaultProxy):
            raise TypeError(f"this harness has links of its own, and was given a {type(link).__name__}")
        through = url if link is None else replace_address(url, link.host, link.port)
        bus = opener(_with_query(through, {"channel": channel}))
        if isinstance(link, ProxyLink) and isinstance(bus, BrokerBus):
            link.lead(bus)
        return bus

    kind = ProxyLink if isinstance(look, BrokerBus) and capabilities.end_to_end else FaultProxy

    def open_link() -> AbstractAsyncContextManager[Link]:
        return cast("AbstractAsyncContextManager[Link]", kind(*broker_address(url)))

    return Harness(
        build,
        capabilities,
        link=open_link if proxied else None,
        wire=wire or (ConnectionWire(cast("MakeBus", build)) if isinstance(look, BrokerBus) else None),
        child=child or (url if opener is open_bus else None),
        broker=broker or (look.address if isinstance(look, BrokerBus) else None),
    )


def broker_address(url: str) -> tuple[str, int]:
    """The host and the port to which a proxy can lead.

    Raises:
        ValueError: The URL names none, or several.
    """
    parts = urlsplit(url)
    if parts.scheme == "unix" or not parts.netloc:
        raise ValueError("the URL names no host and port to which a proxy could lead")
    if "," in parts.netloc:
        raise ValueError("the URL names several hosts, and a proxy leads to one")
    port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    if port is None:
        raise ValueError(f"the URL names no port, and none is known for {parts.scheme}://")
    return parts.hostname or "127.0.0.1", port


def _look_at(url: str, opener: OpenBus, *, required: bool) -> tuple[str, OpenableBus | None]:
    """The URL without its channel and with small options, and a bus that was built from it."""
    bare, _, text = url.partition("?")
    own = dict(parse_qsl(text, keep_blank_values=True))
    own.pop("channel", None)
    small = _with_query(bare, {name: str(value) for name, value in SMALL.items()} | own)
    try:
        return small, opener(_with_query(small, {"channel": _LOOK}))
    except BusURLError:
        # A bus may have options of its own; and if there is no bus, the error is to be about the URL as it was given.
        given = _with_query(bare, own)
    try:
        return given, opener(_with_query(given, {"channel": _LOOK}))
    except BusURLError:
        if required:
            raise
        return given, None


def _with_query(url: str, query: Mapping[str, str]) -> str:
    # Not `urlunsplit`, which drops the two slashes of a URL without a host, such as that of a Unix socket.
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}" if query else url


def replace_address(url: str, host: str, port: int) -> str:
    """The URL with another host and port."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))


def capabilities_of(bus: NotificationBus, max_body: int | None = None) -> Capabilities:
    """What a bus can be taken to declare, from its options; of one that is not a `BrokerBus`, the least."""
    options: object = getattr(bus, "options", None)
    if isinstance(bus, BrokerBus):
        return Capabilities(
            buffer=bus.options.buffer,
            outbox=bus.options.outbox,
            max_body=max_body or min(bus.max_body, _limit_of_connection(bus)),
            ready_timeout=bus.options.ready_timeout,
            close_timeout=bus.options.close_timeout,
            # A probe is due, it is not answered, and a new connection is made.
            liveness=bus.options.probe_interval + bus.options.probe_timeout * 2 + bus.options.backoff_cap,
            end_to_end=True,
            backends=bus.backends,
            drop_logger=f"notification_bus.{bus.broker}",
        )
    limit: object = getattr(bus, "max_body", None)
    return Capabilities(
        buffer=options.buffer if isinstance(options, BusOptions) else int(SMALL["buffer"]),
        max_body=max_body or (limit if isinstance(limit, int) else None),
        fifo=False,
        gaps=False,
        probes=False,
        backends=tuple(getattr(bus, "backends", ("asyncio",))),
    )


def _limit_of_connection(bus: BrokerBus) -> int:
    try:
        kind: Any = get_type_hints(type(bus).connect).get("return")
    except (NameError, TypeError):  # an annotation that cannot be looked up here
        kind = None
    is_connection = isinstance(kind, type) and issubclass(kind, BrokerConnection)
    return cast("int", kind.max_body) if is_connection else bus.max_body


# -- for a BrokerBus


def broker_bus_harness(
    make: Callable[..., BrokerBus],
    *,
    max_body: int | None = None,
    wire: Wire | None = None,
    child: str | None = None,
    broker: str | None = None,
) -> Harness:
    """A harness with every hook of the kit, for a bus whose author wrote a `connect` and nothing else.

        def make_bus(channel, **options):
            return MyBus("my://localhost", channel=channel, **options)

        harness = broker_bus_harness(make_bus)

    Its faults are those of `FaultyLink`, its wire is a `ConnectionWire`. Both sit between the bus and the adapter's
    connections: they show how the bus takes an outage, not how the client library does. If the broker can be reached
    through a TCP proxy, check the bus with a `url_harness` as well.

    Args:
        make: Called with the keyword `channel`, and as many of a bus's options as it takes; returns a bus that was not
            started. For another process to find it, it must be a class or a function of a module, not a lambda.
        max_body: Bytes of the largest body; by default that of the class that `connect` is annotated with.
        wire: Raw access to the broker's channels.
        child: How another process builds the same bus; by default by `make`.
        broker: Name and version of the broker, for the report's header.

    Raises:
        TypeError: `make` cannot be called so, or returns something else.
    """
    options = _accepted(make, SMALL)

    def build(channel: str, link: Link | None = None) -> BrokerBus:
        bus: object = make(channel=channel, **options)
        if not isinstance(bus, BrokerBus):
            raise TypeError(f"{_name(make)} built a {type(bus).__name__}, which is not a BrokerBus: write a harness")
        if link is not None:
            if not isinstance(link, FaultyLink):
                raise TypeError(f"this harness has links of its own, and was given a {type(link).__name__}")
            link.lead(bus)
        return bus

    look = build(_LOOK)
    return Harness(
        build,
        capabilities_of(look, max_body),
        link=FaultyLink.open,
        wire=wire or ConnectionWire(build),
        child=child or _reference(make),
        broker=broker or look.address,
    )


def _accepted(make: Callable[..., object], options: Mapping[str, float]) -> dict[str, Any]:
    """The options that it takes.

    Raises:
        TypeError: It takes no channel, or requires more than that.
    """
    parameters = inspect.signature(make).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    more = [name for name in wanted if name != "channel"]
    if "channel" not in names and not takes_any:
        raise TypeError(f"{_name(make)} takes no keyword `channel`, on which to build a bus")
    if more:
        raise TypeError(
            f"{_name(make)} wants {', '.join(more)} besides a channel: give a function that knows, as in "
            "`def make_bus(channel, **options): return MyBus(…, channel=channel, **options)`"
        )
    return {name: value for name, value in options.items() if takes_any or name in names}


def _reference(make: Callable[..., object]) -> str | None:
    """`module:name`, if that leads back to it."""
    module, name = getattr(make, "__module__", None), getattr(make, "__qualname__", "<")
    found: object = sys.modules.get(str(module))
    for part in str(name).split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is make and module != "__main__" else None


def _name(make: Callable[..., object]) -> str:
    return getattr(make, "__qualname__", repr(make))


class _Seen:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []


class ConnectionWire:
    """A wire of the adapter's own connections: it bypasses all of `BrokerBus`, and not the adapter.

    Args:
        make: From a channel to a bus, which is not started.
    """

    def __init__(self, make: MakeBus) -> None:
        self._make = make

    @asynccontextmanager
    async def _connected(self, channel: str) -> AsyncGenerator[BrokerConnection]:
        connection = await self._make(channel).connect()
        try:
            yield connection
        finally:
            await connection.aclose()

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these bytes unchanged.

        Raises:
            ValueError: The broker does not take them.
        """
        async with self._connected(channel) as connection:
            if len(body) > connection.max_body:
                raise ValueError(f"the broker carries at most {connection.max_body} bytes, and these are {len(body)}")
            try:
                await connection.send([body])
            except SendRefusedError as exc:
                raise ValueError(str(exc)) from exc

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[_Seen]:
        """Watch the channel."""
        seen = _Seen()
        async with self._connected(channel) as connection:

            async def read() -> None:
                async for batch in connection.receive():
                    seen.bodies += [body.encode() if isinstance(body, str) else body for body in batch]

            reader = BackgroundTask(read, "watches a channel")
            try:
                yield seen
            finally:
                reader.cancel()
                await reader.wait()
