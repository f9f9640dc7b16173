"""What one stream has still to be told, coalesced: the part of a stream that the registry holds."""

from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.notification import BusNotification
from notification_bus.subscriptions._methods import Key

__all__ = ["Mailbox"]

_TURN: Final = 64
"""Changes that a reader takes from a full mailbox before it gives the event loop a turn."""


class Mailbox:
    """Changes that wait to be read, at most one for each key of the stream's filter.

    A change is a level trigger, "look again": one that arrives while another of its key waits takes its place, in its
    position, so that a key which changes all the time can neither crowd out the others nor be kept waiting by them.
    A change without a notification (after a gap) says no more than its key.
    """

    __slots__ = ("__weakref__", "_closed", "_pending", "_streak", "_waiting", "coalesced", "gap", "keys")

    def __init__(self, keys: tuple[Key, ...], gap: int) -> None:
        self.keys = keys
        self.gap = gap
        """The number of the last gap that this stream is covered against: told of it, or opened after it."""
        self.coalesced = 0
        self._pending: dict[Key, BusNotification | None] = {}
        self._closed = False
        self._streak = 0
        self._waiting: anyio.Event | None = None

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
            if waiting is None or (waiting.params or {}).get("uri") != uri:
                pending[key] = None
                return
        pending[key] = notification
        if self._waiting is not None:
            self._wake()

    def mark_all(self) -> None:
        """Note that everything may have changed. Waiting notifications lose their params: those may be out of date."""
        for key in self.keys:
            self._pending[key] = None
        self._wake()

    def close(self) -> None:
        """End the stream: what waits can still be read."""
        self._closed = True
        self._wake()

    def discard(self) -> None:
        """End the stream now."""
        self._pending.clear()
        self.close()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None

    def __len__(self) -> int:
        return len(self._pending)

    async def take(self) -> tuple[Key, BusNotification | None]:
        """The change that has waited longest.

        Raises:
            StopAsyncIteration: The stream has ended.
        """
        # A reader of a full mailbox never waits, so it must give turns by itself; and the taking comes after every
        # await, so that a read cancelled in one has taken nothing.
        if self._streak >= _TURN:
            self._streak = 0
            await checkpoint()
        while True:
            for key in self._pending:
                self._streak += 1
                return key, self._pending.pop(key)
            if self._closed:
                raise StopAsyncIteration
            if self._waiting is None:
                self._waiting = anyio.Event()
            self._streak = 0
            await self._waiting.wait()
