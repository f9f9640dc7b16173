"""Fan-out to the subscriptions of this process, each with a bounded buffer."""

import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Final, Self

import anyio

from notification_bus._loops import turn
from notification_bus.notification import GAP, BusNotification

__all__ = ["Buffer", "Fanout", "Subscription"]

_TURN: Final = 64
"""Notifications that a reader takes from a full buffer before it yields to the event loop."""


class Buffer(AsyncIterator[BusNotification]):
    """The unread notifications of one subscription: an iterator over a bounded queue that drops its oldest when full.

    A drop puts one `GAP` before the rest. A cancelled read loses nothing. After `close` the buffered notifications can
    still be read, then the iteration ends; `discard` ends it at once.
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
        """Append notifications. Returns False if the buffer is closed."""
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
        """Append a gap, unless the last unread notification is one."""
        if self._items:
            if self._items[-1] is not GAP:
                self.put(GAP)
        elif not self._gap:
            self.put(GAP)

    def close(self) -> None:
        self._closed = True
        self._wake()

    def abandon(self) -> None:
        """Stop buffering, without waking a reader. Safe from any thread."""
        self._closed = True
        # Replaced, not cleared: a `put` in the loop's thread may be between its length check and its `popleft`.
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
        # A reader of a full buffer never waits, so it must yield to the loop explicitly. Take only after the last
        # await: a read that is cancelled must not have taken anything.
        if self._streak >= _TURN:
            self._streak = 0
            await turn()
        while True:
            if self._gap:
                self._gap = False
                while self._items and self._items[0] is GAP:
                    self._items.popleft()  # one gap at one place is enough
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
    """The context manager that `subscribe` returns, and the iterator that it yields.

    Leaving it, from any task and any number of times, ends the iteration at once and wakes a waiting reader.
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
        if self._left:  # by another task, while this one waited
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
        # Not `async def`: returning the buffer's coroutine saves one coroutine for each notification.
        if self._buffer is None:
            raise RuntimeError("this subscription has not been entered: use `async with bus.subscribe() as stream`")
        return self._buffer.__anext__()

    def __del__(self) -> None:
        if self._buffer is not None and not self._left:
            # The garbage collector may run this in any thread: only set a flag; the fan-out drops the buffer later.
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
        """Put notifications into every buffer. Returns the number of notifications put, summed over the buffers."""
        if not notifications:
            return 0
        readers = 0
        for buffer in self._buffers:
            readers += buffer.put(*notifications)
        if readers < len(self._buffers):
            self._forget_abandoned()
        return readers * len(notifications)

    def gap(self) -> int:
        """Put a gap into every buffer. Returns the number of subscriptions."""
        self._forget_abandoned()
        for buffer in self._buffers:
            buffer.put_gap()
        return len(self._buffers)

    def _forget_abandoned(self) -> None:
        self._buffers = {buffer for buffer in self._buffers if not buffer.closed}

    def close(self) -> None:
        """Close every buffer: each can still be read to its end."""
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()
