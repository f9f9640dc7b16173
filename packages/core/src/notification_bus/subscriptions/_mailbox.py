"""The mailbox of a stream: the changes that wait to be read, coalesced."""

import asyncio
from collections.abc import Awaitable

import anyio

from notification_bus.notification import BusNotification
from notification_bus.subscriptions._keys import Key, uri_of

__all__ = ["Mailbox"]


class Mailbox:
    """Changes that wait to be read, at most one for each key of the stream's filter.

    A change is a level trigger, "look again": one that arrives while another of its key waits takes its place, in its
    position, so that a key which changes all the time can neither crowd out the others nor be kept waiting by them.
    A change without a notification (after a gap) consists of its key.
    """

    __slots__ = ("_pending", "_waiting", "closed", "coalesced", "gap", "keys")

    def __init__(self, keys: tuple[Key, ...], gap: int) -> None:
        self.keys: tuple[Key, ...] = keys
        self.gap: int = gap
        """The number of the last gap that this stream is covered against: told of it, or opened after it."""
        self.coalesced: int = 0
        self.closed: bool = False
        """Whether the stream ends once it has been told what waits."""
        self._pending: dict[Key, BusNotification | None] = {}
        self._waiting: asyncio.Future[None] | anyio.Event | None = None

    def put(self, key: Key, notification: BusNotification) -> None:
        """Note a change; `key` is one of `keys`."""
        pending = self._pending
        if key in pending:
            self.coalesced += 1
        pending[key] = notification
        if self._waiting is not None:
            self._wake()

    def put_below(self, key: str, uri: str, notification: BusNotification) -> None:
        """Note a change of a sub-resource of a subscribed URI.

        The key is the subscribed URI, or the mailbox would have no limit. So where changes of two sub-resources wait
        at once, neither may stand for both: they become one change of the subscribed URI, everything below it included.
        """
        pending = self._pending
        if key in pending:
            self.coalesced += 1
            waiting = pending[key]
            if waiting is None or uri_of(waiting) != uri:
                pending[key] = None
                return
        pending[key] = notification
        if self._waiting is not None:
            self._wake()

    def mark_all(self) -> None:
        """Note that everything may have changed. Waiting notifications lose their params: those may be out of date."""
        if self.closed:
            return
        for key in self.keys:
            self._pending[key] = None
        self._wake()

    def forget(self, key: Key) -> None:
        """Stop waiting for a key and drop its pending change."""
        self.keys = tuple(known for known in self.keys if known != key)
        self._pending.pop(key, None)

    def pop(self) -> tuple[Key, BusNotification | None] | None:
        """Take the change that has waited longest; `None` where none waits."""
        for key in self._pending:
            return key, self._pending.pop(key)
        return None

    def wait(self) -> Awaitable[None]:
        """Wait for a change, or the end. For one reader at a time."""
        # A bare future on asyncio: an anyio.Event was the largest part of the cost of a change.
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            event = self._waiting = anyio.Event()
            return event.wait()
        future = self._waiting = loop.create_future()
        return future

    def close(self) -> None:
        """End the stream: what waits can still be read."""
        self.closed = True
        self._wake()

    def discard(self) -> None:
        """End the stream now."""
        self._pending.clear()
        self.close()

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is None:
            return
        self._waiting = None
        if isinstance(waiting, anyio.Event):
            waiting.set()
        elif not waiting.done():
            # It is done where the reader has been cancelled.
            waiting.set_result(None)

    def __len__(self) -> int:
        return len(self._pending)
