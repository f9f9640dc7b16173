"""The queue of bodies to send, and the gap owed to the peers for what was lost. No I/O."""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from notification_bus._loops import turn

__all__ = ["BURST", "GapDebt", "Outbox"]

BURST: Final = 16
"""Notifications queued without yielding to the event loop that count as a burst. Fewer are sent as they come."""


class GapDebt:
    """The gap that is owed to the peers, until it is known to have arrived.

    Each loss opens a new epoch. The debt of an epoch is paid when a probe that was sent after its gap, on the same
    connection, comes back; until then every new connection announces the gap again. A gap carries its epoch, so that
    this instance does not announce its own gap twice to its own subscriptions.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.paid = 0
        self._sent = 0
        self._local = 0

    def incur(self) -> None:
        """Note that something accepted by `publish` may not arrive."""
        self.epoch += 1

    def connected(self) -> None:
        """Start a new connection: nothing was announced on it yet; the local subscriptions have had their gap."""
        self._sent = self.paid
        self._local = self.epoch

    @property
    def due(self) -> bool:
        """True if a gap must still be sent on this connection."""
        return self.epoch > self._sent

    def send(self) -> int:
        """Take the gap to send now. Returns its epoch."""
        self._sent = self.epoch
        return self.epoch

    @property
    def sent(self) -> int:
        """The last epoch announced on this connection. Noted with each probe, and paid when the probe comes back."""
        return self._sent

    def refused(self) -> None:
        """Take back what was announced on this connection: the broker refused it."""
        self._sent = self.paid

    def pay(self, epoch: int) -> None:
        """Note that a probe sent after the gap of this epoch came back."""
        self.paid = max(self.paid, epoch)

    def is_news(self, epoch: int) -> bool:
        """Return whether this instance's own gap is news to its own subscriptions."""
        return epoch > self._local


class Outbox:
    """A bounded queue of bodies that drops its oldest, and wakes its writer."""

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
        """Take the oldest bodies: at most `count`, and at most `size` bytes, but at least one."""
        taken: list[bytes] = []
        bodies = self._bodies
        while bodies and len(taken) < count:
            size -= len(bodies[0])
            if size < 0 and taken:
                break
            taken.append(bodies.popleft())
        return taken

    def clear(self) -> int:
        """Drop everything. Returns the number of bodies."""
        count = len(self._bodies)
        self._bodies.clear()
        return count

    def ring(self) -> None:
        """Wake the writer, also if there is no body: a probe or a gap is due."""
        self._rung = True
        if self._bell is not None:
            self._bell.set()
            self._bell = None

    async def wait(self) -> None:
        """Wait until there is a body or `ring` is called."""
        if not self._bodies and not self._rung:
            self._bell = anyio.Event()
            await self._bell.wait()
        self._rung = False

    async def gather(self, least: int, most: int) -> None:
        """Let a burst of at least `least` bodies grow, up to `most`, for as long as each turn of the loop adds some.

        Sending costs a system call and work in the broker however little is sent. Fewer than `least` never wait.
        """
        before = 0
        while max(before, least - 1) < len(self._bodies) < most:
            before = len(self._bodies)
            await turn()
