"""The reference bus's subscription: a bounded buffer that is a context manager and an iterator."""

from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from notification_bus.notification import GAP, BusNotification

if TYPE_CHECKING:
    from tests.kit.gallery.reference import ReferenceBus

__all__ = ["Stream"]


class Stream(AsyncIterator[BusNotification]):
    """One subscription. The bus puts, the owner reads; where it is full the oldest goes, and a gap precedes the rest.

    It is a class over a queue and not a generator, since a generator is finished by the first cancelled read.
    """

    def __init__(self, bus: "ReferenceBus", limit: int) -> None:
        self.bus: Final = bus
        self.limit: Final = limit
        self.items: deque[BusNotification] = deque()
        self.lost: bool = False
        self.ended: bool = False
        self._waiting: anyio.Event | None = None

    # -- the bus's side; none of it waits for the owner

    def put(self, notification: BusNotification) -> None:
        """Append a notification, at the cost of the oldest where the buffer is full."""
        if len(self.items) >= self.limit:
            self.overflow()
        self.items.append(notification)
        self.wake()

    def overflow(self) -> None:
        """Make room for one."""
        self.items.popleft()
        self.lost = True
        self.bus.dropped("buffer", "a subscription reads too slowly; its oldest goes first")

    def gap(self) -> None:
        """Announce that something may have been lost here. One gap says as much as two in a row."""
        told = self.items[-1] == GAP if self.items else self.lost
        if not told:
            self.put(GAP)

    def finish(self) -> None:
        """The bus closes: what is buffered can still be read."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Let a reader that waits look again."""
        if self._waiting is not None:
            self._waiting.set()

    # -- the owner's side

    async def __aenter__(self) -> Self:
        await self.bus.open_stream(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """End the subscription, from any task and any number of times."""
        self.bus.close_stream(self)
        self.items.clear()
        self.lost = False
        self.finish()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusNotification:
        await self.filled()
        return self.take()

    async def filled(self) -> None:
        """Wait for something to read, or for the end."""
        while not (self.items or self.lost or self.ended):
            self._waiting = anyio.Event()
            await self._waiting.wait()

    def take(self) -> BusNotification:
        """Take the oldest. Nothing is awaited after this, so a cancelled read has taken nothing."""
        if self.lost:
            self.lost = False
            return GAP
        if not self.items:
            raise StopAsyncIteration
        return self.items.popleft()
