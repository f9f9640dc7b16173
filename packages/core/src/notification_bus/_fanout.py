"""Local subscribers with bounded buffers: where what a bus receives is handed to the streams of this process."""

import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.notification import GAP, BusNotification

__all__ = ["Buffer", "Fanout", "Subscription"]

_TURN: Final = 64
"""Notifications that a reader takes from a full buffer before it gives the event loop a turn."""


class Buffer(AsyncIterator[BusNotification]):
    """What one subscription has not read yet: an iterator over a bounded queue that drops its oldest when full.

    A drop puts one `GAP` before the survivors. A cancelled read loses nothing. Once closed, what is buffered can still
    be read, then the iteration ends; `discard` ends it at once.
    """

    __slots__ = ("_closed", "_gap", "_items", "_limit", "_on_drop", "_streak", "_waiting")

    def __init__(self, limit: int, on_drop: Callable[[int], None]) -> None:
        self._limit = limit
        self._on_drop = on_drop
        self._items: deque[BusNotification] = deque()
        self._gap = False
        self._closed = False
        self._streak = 0
        self._waiting: anyio.Event | None = None

    def put(self, *notifications: BusNotification) -> bool:
        """Append; whether anybody can still read it."""
        if self._closed:
            return False
        if len(self._items) + len(notifications) <= self._limit:
            self._items.extend(notifications)
        else:
            self._overflow(notifications)
        if self._waiting is not None:
            self._wake()
        return True

    def _overflow(self, notifications: Sequence[BusNotification]) -> None:
        items = self._items
        for notification in notifications:
            if len(items) >= self._limit:
                lost = items.popleft()
                self._gap = True
                if lost is not GAP:
                    self._on_drop(1)
            items.append(notification)

    def put_gap(self) -> None:
        """Append a gap, unless one is waiting at that very place already."""
        if self._items:
            if self._items[-1] is not GAP:
                self.put(GAP)
        elif not self._gap:
            self.put(GAP)

    def close(self) -> None:
        self._closed = True
        self._wake()

    def abandon(self) -> None:
        """Stop buffering: nobody can read this any more. Safe from any thread."""
        self._closed = True
        # Replaced and not cleared: a `put` of the loop's own thread may be between its look and its drop.
        self._items = deque()

    @property
    def closed(self) -> bool:
        return self._closed

    def discard(self) -> None:
        self._items.clear()
        self._gap = False
        self.close()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None

    def __len__(self) -> int:
        return len(self._items)

    def __aiter__(self) -> "Buffer":
        return self

    async def __anext__(self) -> BusNotification:
        # A reader of a full buffer never waits, so it must give turns by itself; and the taking comes after every
        # await, so that a read cancelled in one has taken nothing.
        if self._streak >= _TURN:
            self._streak = 0
            await checkpoint()
        while True:
            if self._gap:
                self._gap = False
                while self._items and self._items[0] is GAP:
                    self._items.popleft()  # the same place: one is enough
                return GAP
            if self._items:
                self._streak += 1
                return self._items.popleft()
            if self._closed:
                raise StopAsyncIteration
            if self._waiting is None:
                self._waiting = anyio.Event()
            self._streak = 0
            await self._waiting.wait()


class Subscription(AsyncIterator[BusNotification]):
    """One stream: the context that `subscribe` returns, and the iterator that entering it yields.

    Leaving it, from any task and any number of times, ends the iteration at once and wakes a reader that waits in it.
    """

    __slots__ = ("_buffer", "_entering", "_left", "_open", "_remove")

    def __init__(self, open_: Callable[[], Awaitable[Buffer]], remove: Callable[[Buffer], None]) -> None:
        self._open = open_
        self._remove = remove
        self._buffer: Buffer | None = None
        self._entering = False
        self._left = False

    async def __aenter__(self) -> Self:
        if self._entering or self._buffer is not None or self._left:
            raise RuntimeError("this subscription has been entered before: call subscribe() for each `async with`")
        self._entering = True
        try:
            self._buffer = await self._open()
        finally:
            self._entering = False
        if self._left:  # meanwhile, by another task
            self._remove(self._buffer)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._left = True
        if self._buffer is not None:
            self._remove(self._buffer)

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[None, None, BusNotification]:
        # Not `async def`: the buffer's own coroutine is handed on, which saves one for each notification.
        if self._buffer is None:
            raise RuntimeError("this subscription has not been entered: use `async with bus.subscribe() as stream`")
        return self._buffer.__anext__()

    def __del__(self) -> None:
        if self._buffer is not None and not self._left:
            # The collector may run this in any thread, so only the flag is set; the fan-out forgets the buffer later.
            self._buffer.abandon()
            warnings.warn("a subscription was dropped without being left", ResourceWarning, source=self, stacklevel=1)


class Fanout:
    """The open subscriptions of one bus instance. Everything here is synchronous and belongs to one event loop."""

    def __init__(self, limit: int, on_drop: Callable[[int], None]) -> None:
        self._limit = limit
        self._on_drop = on_drop
        self._buffers: set[Buffer] = set()

    def __len__(self) -> int:
        self._forget_abandoned()
        return len(self._buffers)

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def open(self) -> Buffer:
        buffer = Buffer(self._limit, self._on_drop)
        self._buffers.add(buffer)
        return buffer

    def remove(self, buffer: Buffer) -> None:
        self._buffers.discard(buffer)
        buffer.discard()

    def deliver(self, *notifications: BusNotification) -> int:
        """Hand notifications to every subscription; how many were handed over."""
        if not notifications:
            return 0
        readers = 0
        for buffer in self._buffers:
            readers += buffer.put(*notifications)
        if readers < len(self._buffers):
            self._forget_abandoned()
        return readers * len(notifications)

    def gap(self) -> int:
        """Announce a gap to every subscription; how many there were."""
        self._forget_abandoned()
        for buffer in self._buffers:
            buffer.put_gap()
        return len(self._buffers)

    def _forget_abandoned(self) -> None:
        self._buffers = {buffer for buffer in self._buffers if not buffer.closed}

    def close(self) -> None:
        """End every stream: each reads what it still holds, then its iteration ends."""
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()
