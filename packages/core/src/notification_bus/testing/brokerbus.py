"""A harness for any `BrokerBus`, for nothing: its faults are put between the bus and its connections."""

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias, cast, get_type_hints

from notification_bus._loops import BackgroundTask
from notification_bus.broker import BrokerBus
from notification_bus.connection import BrokerConnection
from notification_bus.errors import SendRefusedError
from notification_bus.testing.faulty import FaultyLink
from notification_bus.testing.harness import Capabilities, Link, Wire
from notification_bus.testing.harnesses import SMALL

__all__ = ["BrokerBusHarness", "ConnectionWire"]

_Make: TypeAlias = Callable[[str], BrokerBus]


class BrokerBusHarness:
    """Every hook of the kit, for a bus whose author wrote a `connect` and nothing else.

        def make_bus(channel, **options):
            return MyBus("my://localhost", channel=channel, **options)

        harness = BrokerBusHarness(make_bus)

    The faults are those of `FaultyLink`, the wire is a `ConnectionWire`. Both lean on the adapter's own connection:
    they show how the bus takes an outage, and not how the client library does. Where the broker can be reached through
    a TCP proxy, check it with a `BrokerHarness` as well.

    Args:
        build: From the keyword `channel`, and as many of a bus's options as it takes, to a bus that was not started.
            Where another process is to find it, it must be a class or a function of a module, not a lambda.
        max_body: Bytes of the largest body; by default that of the class that `connect` is annotated with.
        wire: The channel beside the bus, where a raw client is at hand.
        broker: Name and version of the broker, for the report's header.
        child: How another process builds the same bus; by default by `build`.

    Raises:
        TypeError: `build` cannot be called so, or builds something else.
    """

    def __init__(
        self,
        build: Callable[..., BrokerBus],
        *,
        max_body: int | None = None,
        wire: Wire | None = None,
        broker: str | None = None,
        child: str | None = None,
    ) -> None:
        self._build = build
        self._options = _accepted(build, SMALL)
        look = self.build("kit-look")
        self.capabilities: Final = _capabilities(look, max_body)
        self.wire: Final[Wire] = wire or ConnectionWire(self.build)
        self.broker: Final = broker or look.address
        self.child: Final = child or _reference(build)

    def build(self, channel: str) -> BrokerBus:
        """An instance that was not started."""
        bus: object = self._build(channel=channel, **self._options)
        if not isinstance(bus, BrokerBus):
            raise TypeError(
                f"{_name(self._build)} built a {type(bus).__name__}, which is no BrokerBus: write a harness"
            )
        return bus

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[BrokerBus]:
        """A started instance."""
        bus = self.build(channel)
        if link is not None:
            if not isinstance(link, FaultyLink):
                raise TypeError(f"this harness has links of its own, and was given a {type(link).__name__}")
            link.lead(bus)
        async with bus:
            yield bus

    def link(self) -> AbstractAsyncContextManager[FaultyLink]:
        """A new link for one instance."""
        return FaultyLink.open()


class _Seen:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []


class ConnectionWire:
    """A wire of the adapter's own connections: past all of `BrokerBus`, and not past the adapter.

    Args:
        make: From a channel to a bus, which is not started.
    """

    def __init__(self, make: _Make) -> None:
        self._make = make

    @asynccontextmanager
    async def _connected(self, channel: str) -> AsyncGenerator[BrokerConnection]:
        connection = await self._make(channel).connect()
        try:
            yield connection
        finally:
            await connection.aclose()

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes.

        Raises:
            ValueError: The broker does not take them.
        """
        async with self._connected(channel) as connection:
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


def _accepted(build: Callable[..., object], options: Mapping[str, float]) -> dict[str, Any]:
    """The options that it takes.

    Raises:
        TypeError: It takes no channel, or wants more than that.
    """
    parameters = inspect.signature(build).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    more = [name for name in wanted if name != "channel"]
    if "channel" not in names and not takes_any:
        raise TypeError(f"{_name(build)} takes no keyword `channel`, on which to build a bus")
    if more:
        raise TypeError(
            f"{_name(build)} wants {', '.join(more)} besides a channel: give a function that knows, as in "
            "`def make_bus(channel, **options): return MyBus(…, channel=channel, **options)`"
        )
    return {name: value for name, value in options.items() if takes_any or name in names}


def _capabilities(bus: BrokerBus, max_body: int | None) -> Capabilities:
    options = bus.options
    return Capabilities(
        buffer=options.buffer,
        outbox=options.outbox,
        max_body=max_body or min(bus.max_body, _limit_of_connection(bus)),
        ready_timeout=options.ready_timeout,
        close_timeout=options.close_timeout,
        # A probe is due, is not answered, and a new connection is made.
        liveness=options.probe_interval + options.probe_timeout * 2 + options.backoff_cap,
        end_to_end=True,
        backends=bus.backends,
        drop_logger=f"notification_bus.{bus.broker}",
    )


def _limit_of_connection(bus: BrokerBus) -> int:
    try:
        kind: Any = get_type_hints(type(bus).connect).get("return")
    except (NameError, TypeError):  # an annotation that cannot be looked up here
        kind = None
    is_connection = isinstance(kind, type) and issubclass(kind, BrokerConnection)
    return cast("int", kind.max_body) if is_connection else bus.max_body


def _reference(build: Callable[..., object]) -> str | None:
    """How another process finds it, where it does."""
    module, name = getattr(build, "__module__", None), getattr(build, "__qualname__", "<")
    found: object = sys.modules.get(str(module))
    for part in str(name).split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is build and module != "__main__" else None


def _name(build: Callable[..., object]) -> str:
    return getattr(build, "__qualname__", repr(build))
