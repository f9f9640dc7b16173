"""What an author supplies to have a bus checked: how to build it, and what the checks may do to it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from notification_bus.bus import NotificationBus

__all__ = ["Capabilities", "DeafLink", "Harness", "Link", "Observed", "Wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a bus declares. Sizes and times are those of the instances that the harness builds: keep them small.

    A check of a capability that is off is reported as not declared, never silently skipped.
    """

    buffer: int
    """Notifications that one subscription holds unread before it drops its oldest."""

    slack: int = 1
    """Notifications beyond `buffer` that may still arrive after an overflow, a gap for instance."""

    outbox: int | None = None
    """Notifications that wait to be sent while the broker is away; `None` for a bus without such a queue."""

    max_body: int | None = None
    """Bytes of the largest body; `None` for no limit."""

    ready_timeout: float = 5.0
    """Seconds that entering a subscription waits before it raises."""

    close_timeout: float = 2.0
    """Seconds that closing may take in any state."""

    liveness: float | None = None
    """Seconds within which a connection that died silently is detected and replaced; `None`: it is not detected."""

    has_broker: bool = True
    """False for a bus within one process: it has no link to break, no wire, and reaches no other process."""

    fifo: bool = True
    """Notifications of one publisher arrive in the order published."""

    gaps: bool = True
    """`GAP` is yielded after anything may have been lost."""

    coalesces: bool = False
    """Equal notifications that wait together may be merged into one."""

    probes: bool = True
    """The bus sends liveness probes of its own on the channel."""

    end_to_end: bool = False
    """Within `liveness` seconds it is also detected that the broker confirmed a subscription and does not serve it.
    Declare it if the harness's links can be made deaf (`DeafLink`); without such a link it cannot be tested."""

    backends: Sequence[str] = ("asyncio",)
    """The async libraries that the bus runs on."""

    drop_logger: str = "notification_bus"
    """The logger of the bus, or a parent of it. The warning of a drop carries the fields `notification_bus_event`
    (starting with `dropped`) and `notification_bus_count`."""


class Link(Protocol):
    """One instance's network path to the broker. A fault lasts until `restore`."""

    async def delay(self, seconds: float) -> None:
        """Deliver everything that much later, in order."""
        ...

    async def stall(self) -> None:
        """Accept everything and carry nothing, in both directions; what was held back goes through after `restore`."""
        ...

    async def blackhole(self) -> None:
        """Kill the present connections silently: nothing is ever carried on them again. New ones work."""
        ...

    async def cut(self) -> None:
        """Break the present connections; new ones work."""
        ...

    async def refuse(self) -> None:
        """Break the present connections and refuse new ones."""
        ...

    async def restore(self) -> None:
        """Carry again, and accept new connections."""
        ...

    @property
    def attempts(self) -> int:
        """Connections tried through this link so far, refused ones included."""
        ...


@runtime_checkable
class DeafLink(Link, Protocol):
    """A link that can also make the broker look as if it confirms everything and delivers nothing."""

    async def deaf(self) -> None:
        """Confirm subscriptions, accept what is published and answer pings, but deliver nothing, until `restore`."""
        ...


class Observed(Protocol):
    """What travels on a channel, seen without the code of the bus."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The bodies seen since `observe` was entered, in order."""
        ...


class Wire(Protocol):
    """Raw access to a channel of the broker."""

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these bytes unchanged, as a stranger would.

        Raises:
            ValueError: The broker does not carry such bytes, so no stranger can send them either.
        """
        ...

    def observe(self, channel: str) -> AbstractAsyncContextManager[Observed]:
        """Watch the channel, ready once entered."""
        ...


class Harness:
    """One bus implementation, ready to be checked: construct it, or subclass it.

        harness = Harness(lambda channel: MyBus(channel, buffer=16), Capabilities(buffer=16, has_broker=False))

    Only `build` and `capabilities` are required. A check that needs something else which is not there is reported as
    untestable. A subclass may override any member; one whose bus cannot be built without being started overrides
    `instance` instead of giving `build`.

    Args:
        build: Builds a bus on a channel and opens nothing. It is called with the channel, and with a link as second
            argument when the instance is to connect through one. Raises `ValueError` for a channel that the bus cannot
            carry.
        capabilities: What the bus declares.
        link: Opens a new link to the broker for one instance.
        wire: Raw access to the broker's channels.
        child: How another process builds the same bus: a URL for `open_bus`, or `package.module:name` of a harness or
            of what makes one (`load_harness`).
        broker: Name and version of the broker, for the report's header.
    """

    capabilities: Capabilities
    wire: Wire | None = None
    child: str | None = None
    broker: str | None = None
    _build: Callable[..., NotificationBus] | None = None
    _link: Callable[[], AbstractAsyncContextManager[Link]] | None = None

    def __init__(
        self,
        build: Callable[..., NotificationBus] | None = None,
        capabilities: Capabilities | None = None,
        *,
        link: Callable[[], AbstractAsyncContextManager[Link]] | None = None,
        wire: Wire | None = None,
        child: str | None = None,
        broker: str | None = None,
    ) -> None:
        members = {
            "_build": build,
            "capabilities": capabilities,
            "_link": link,
            "wire": wire,
            "child": child,
            "broker": broker,
        }
        # What is not given stays that of the class, which a subclass may have set.
        for name, value in members.items():
            if value is not None:
                setattr(self, name, value)

    def build(self, channel: str, link: Link | None = None) -> NotificationBus:
        """A bus on that channel, not started. Called without a running event loop as well."""
        if self._build is None:
            raise TypeError(f"a {type(self).__name__} was given no `build`")
        return self._build(channel) if link is None else self._build(channel, link)

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        """A started bus on that channel, stopped on leaving. Called many times, several instances at once."""
        bus = self.build(channel) if link is None else self.build(channel, link)
        if hasattr(bus, "__aenter__"):
            async with cast("AbstractAsyncContextManager[object]", bus):
                yield bus
        else:
            yield bus

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        """A new link for one instance; `None` if this harness has no faults to offer."""
        return None if self._link is None else self._link()

    @property
    def hooks(self) -> list[str]:
        """The names of the optional members that are there."""
        there = {
            "link": self.link() is not None,
            "wire": self.wire is not None,
            "child": self.child is not None,
            "build": self._build is not None or type(self).build is not Harness.build,
        }
        return [name for name, is_there in there.items() if is_there]
