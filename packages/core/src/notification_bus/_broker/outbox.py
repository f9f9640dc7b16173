"""What waits to be sent, and what this instance owes its peers for having dropped some of it. No I/O here."""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["BURST", "GapDebt", "Outbox"]

BURST: Final = 16
"""Notifications of a burst that are queued between two turns of the event loop: fewer are sent as they come."""


class GapDebt:
    """Whether a gap must be announced on the wire, and whether it is known to have arrived.

    Each loss opens a new epoch. The debt of an epoch is paid when a probe that was sent after its gap, on the same
    connection, has come back; until then every new connection announces it again. Gaps carry their epoch, so that this
    instance can tell which of its own it has announced to its own subscriptions already.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.paid = 0
        self._sent = 0
        self._local = 0

    def incur(self) -> None:
        """Something that was accepted may not arrive."""
        self.epoch += 1

    def connected(self) -> None:
        """A new connection: nothing has been announced on it, and this instance's subscriptions have been told."""
        self._sent = self.paid
        self._local = self.epoch

    @property
    def due(self) -> bool:
        """Whether a gap is still to be sent on this connection."""
        return self.epoch > self._sent

    def send(self) -> int:
        """Take the gap to be sent now; the epoch that it announces."""
        self._sent = self.epoch
        return self.epoch

    @property
    def sent(self) -> int:
        """The epoch announced last on this connection; note it with a probe, and pay it when the probe returns."""
        return self._sent

    def refused(self) -> None:
        """The broker refused what was sent: nothing of it counts."""
        self._sent = self.paid

    def pay(self, epoch: int) -> None:
        """A probe sent after the gap of this epoch has come back."""
        self.paid = max(self.paid, epoch)

    def is_news(self, epoch: int) -> bool:
        """Whether this instance's own gap, come back, tells its subscriptions something that they were not told."""
        return epoch > self._local


class Outbox:
    """A bounded queue of bodies that drops its oldest, and the bell that wakes its writer."""

    def __init__(self, limit: int, on_drop: Callable[[int], None]) -> None:
        self._limit = limit
        self._on_drop = on_drop
        self._bodies: deque[bytes] = deque()
        self._bell: anyio.Event | None = None
        self._rung = False

    def __len__(self) -> int:
        return len(self._bodies)

    def put(self, body: bytes) -> None:
        if len(self._bodies) >= self._limit:
            self._bodies.popleft()
            self._on_drop(1)
        self._bodies.append(body)
        if self._bell is not None:
            self._bell.set()
            self._bell = None

    def take(self, count: int, size: int) -> list[bytes]:
        """Take the oldest bodies: at most `count`, and at most `size` bytes unless the first alone has more."""
        taken: list[bytes] = []
        bodies = self._bodies
        while bodies and len(taken) < count:
            size -= len(bodies[0])
            if size < 0 and taken:
                break
            taken.append(bodies.popleft())
        return taken

    def clear(self) -> int:
        """Give up what waits; how much it was."""
        count = len(self._bodies)
        self._bodies.clear()
        return count

    def ring(self) -> None:
        """Wake the writer, or keep it from falling asleep next time."""
        self._rung = True
        if self._bell is not None:
            self._bell.set()
            self._bell = None

    async def wait(self) -> None:
        """Wait until there is a body, or somebody rings."""
        if not self._bodies and not self._rung:
            self._bell = anyio.Event()
            await self._bell.wait()
        self._rung = False

    async def gather(self, least: int, most: int) -> None:
        """Where a burst of at least `least` is coming in, let it, up to `most`, for as long as each turn brings more.

        Sending costs a system call and a turn of the broker however little is sent. Fewer than `least` never wait.
        """
        before = 0
        while max(before, least - 1) < len(self._bodies) < most:
            before = len(self._bodies)
            await checkpoint()
