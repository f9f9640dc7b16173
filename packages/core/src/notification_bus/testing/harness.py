"""What an author supplies to have a bus checked: how to build an instance, and what the checks may do to it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from notification_bus.bus import NotificationBus

__all__ = ["Capabilities", "Harness", "Link", "Observed", "Wire"]


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

    backends: Sequence[str] = ("asyncio",)
    """The async libraries that the bus runs on."""

    drop_logger: str = "notification_bus"
    """The logger, or a parent of it, on which a drop is warned of with the field `notification_bus_event`
    (starting with `dropped`) and its count in `notification_bus_count`."""


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


class Observed(Protocol):
    """What travels on a channel, seen without the bus's code."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The bodies seen since the observing began, in order."""
        ...


class Wire(Protocol):
    """The broker's channel, bypassing the code of the bus."""

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes, as a stranger would."""
        ...

    def observe(self, channel: str) -> AbstractAsyncContextManager[Observed]:
        """Watch the channel, ready once entered."""
        ...


class Harness(Protocol):
    """One bus implementation, made ready to be checked. Plain attributes; nothing to inherit.

    Only `capabilities` and `instance` are needed. Give what else the bus can have done to it: a MUST check that lacks a
    hook is reported as untestable.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def instance(self, channel: str, link: Link | None = None) -> AbstractAsyncContextManager[NotificationBus]:
        """A started bus on that channel, stopped on leaving; through `link` where one is given. Called many times."""
        ...

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        """A new link to the broker for one instance, or `None` where this harness has no faults to offer."""
        ...

    @property
    def wire(self) -> Wire | None: ...

    @property
    def child(self) -> str | None:
        """How another process builds the same bus: a URL for `open_bus`, or `package.module:name` of a harness."""
        ...
