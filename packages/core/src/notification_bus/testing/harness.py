"""What an author supplies to have a bus checked: how to build an instance, and what the checks may do to it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from notification_bus.bus import NotificationBus

__all__ = ["Capabilities", "DeafLink", "FullHarness", "Harness", "Link", "Observed", "Wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a bus says of itself. Sizes and times are those of the instances that the harness builds: keep them small.

    A capability that is off is reported as not declared; it is never silently skipped.
    """

    buffer: int
    """Notifications that one subscription holds unread before it drops its oldest."""

    slack: int = 1
    """Notifications beyond `buffer` that may still arrive after an overflow, a gap for instance."""

    outbox: int | None = None
    """Notifications that wait to be sent while the broker is away; `None` for a bus with nothing to queue."""

    max_body: int | None = None
    """Bytes of the largest body; `None` where there is no limit."""

    ready_timeout: float = 5.0
    """Seconds that entering a subscription waits before it raises."""

    close_timeout: float = 2.0
    """Seconds that closing may take in any state."""

    liveness: float | None = None
    """Seconds in which a connection that died without a word is noticed and made anew; `None`: it is not noticed."""

    has_broker: bool = True
    """False for a bus within one process: there is no link to break, no wire and no other process to reach."""

    fifo: bool = True
    """Notifications of one publisher arrive in the order published."""

    gaps: bool = True
    """`GAP` is yielded after anything may have been lost."""

    coalesces: bool = False
    """Equal notifications that wait together may be merged into one."""

    probes: bool = True
    """The bus sends liveness probes of its own on the channel."""

    end_to_end: bool = False
    """Within `liveness` seconds it is also noticed that a subscription was confirmed and nothing is delivered. Declare
    it where the harness's links can be made deaf; without such a link the claim cannot be tested."""

    backends: Sequence[str] = ("asyncio",)
    """The async libraries that the bus runs on."""

    drop_logger: str = "notification_bus"
    """The logger of the bus, or a parent of it: every warning goes there. That of a drop carries the field
    `notification_bus_event` (starting with `dropped`), and its count in `notification_bus_count`."""


class Link(Protocol):
    """One instance's way to the broker. Every fault stays until `restore`."""

    async def delay(self, seconds: float) -> None:
        """Let everything arrive that much later, in order."""
        ...

    async def stall(self) -> None:
        """Accept everything and carry nothing, in both directions; what was held back goes through after `restore`."""
        ...

    async def blackhole(self) -> None:
        """Kill the present connections without a word: nothing is ever carried on them again, new ones work."""
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
        """Connections that have been tried through this link, refused ones included."""
        ...


@runtime_checkable
class DeafLink(Link, Protocol):
    """A link to a broker that can also be made to confirm everything and deliver nothing. Few have one."""

    async def deaf(self) -> None:
        """Confirm subscriptions, accept what is published and answer pings, but deliver nothing, until `restore`."""
        ...


class Observed(Protocol):
    """What travels on a channel, seen without the bus's code."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The bodies seen since the observing began, in order."""
        ...


class Wire(Protocol):
    """The broker's channel, bypassing the code of the bus."""

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes, as a stranger would.

        Raises:
            ValueError: This broker carries no such bytes, so no stranger can send them either.
        """
        ...

    def observe(self, channel: str) -> AbstractAsyncContextManager[Observed]:
        """Watch the channel, ready once entered."""
        ...


class Harness(Protocol):
    """One bus implementation, made ready to be checked: any object with these two. Nothing to inherit.

    It may have more, as `FullHarness` describes: give what else the bus can have done to it. A MUST check that lacks a
    hook is reported as untestable.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def instance(self, channel: str, link: Link | None = None) -> AbstractAsyncContextManager[NotificationBus]:
        """A started bus on that channel, stopped on leaving. Called many times, for several at once.

        Args:
            channel: The name that these instances share. A name that the bus cannot carry raises `ValueError`.
            link: The link to go through; given only where the harness has a `link`.
        """
        ...


class FullHarness(Harness, Protocol):
    """Everything that a harness can have. Each member beyond those of `Harness` may be left out, or be `None`."""

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        """A new link to the broker for one instance, or `None` where this harness has no faults to offer."""
        ...

    def build(self, channel: str) -> NotificationBus:
        """The same bus as `instance` yields, built and not started. Called without a running event loop."""
        ...

    @property
    def wire(self) -> Wire | None: ...

    @property
    def child(self) -> str | None:
        """How another process builds the same bus: a URL for `open_bus`, or `package.module:name` of a harness.

        The name may also be that of a harness class, or of a function that returns a harness.
        """
        ...

    @property
    def broker(self) -> str | None:
        """Name and version of the broker, for the report's header."""
        ...
