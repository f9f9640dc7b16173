"""From what the bus yields to the SDK's listeners: coalesced, and at a pace that their streams can keep."""

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

import anyio
from anyio.lowlevel import checkpoint
from mcp.server.subscriptions import ResourceUpdated, ServerEvent

from notification_bus._warnings import FloodLog
from notification_bus.mcp._events import LIST_EVENTS

__all__ = ["Delivery", "Listener"]

Listener: TypeAlias = Callable[[ServerEvent], None]

_PAUSE: Final = 0.02
"""Seconds between two rounds, in which equal events become one. The first event after a quiet time does not wait."""

_TURNS: Final = 16
"""Turns of the event loop after each event.

A listener only appends to its stream's buffer, which the SDK ends at 1,024; the stream's own task needs some turns to
write one event out. Turns rather than time, since they last longer exactly when many streams have something to write.
"""

_MAX_PENDING: Final = 4096
"""Different events that wait at most. Beyond that the bus is not read, so that it drops and announces a gap."""

_MAX_URIS: Final = 1024
"""Resource URIs remembered for the next gap; beyond that the one that was updated longest ago is forgotten."""


class Delivery:
    """The listeners, and the events that wait to be handed to them. Belongs to one event loop.

    Events are level triggers ("this changed, look again"): one that is waiting already is not queued again.
    """

    def __init__(self, logger: logging.Logger, floods: FloodLog) -> None:
        self._logger = logger
        self._floods = floods
        # Keyed by a token of its own: the same callable may be registered more than once.
        self._listeners: dict[object, Listener] = {}
        self._pending: dict[ServerEvent, None] = {}
        self._uris: dict[str, None] = {}
        self._wake: anyio.Event
        self._room: anyio.Event
        self.delivered = 0
        self.coalesced = 0
        self.listener_errors = 0

    def renew(self) -> None:
        """Forget what waits and the event loop it waited in; to be called in the new one before anything else."""
        self._pending.clear()
        self._wake, self._room = anyio.Event(), anyio.Event()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    async def put(self, event: ServerEvent) -> None:
        """Let an event wait for the next round. Waits only while too many different ones do."""
        while len(self._pending) >= _MAX_PENDING:
            self._room = anyio.Event()
            await self._room.wait()
        self._put(event)

    def put_everything(self) -> None:
        """Let every change wait that a listener may have missed: the lists, and the resources known to be updated."""
        for event in LIST_EVENTS:
            self._put(event)
        for uri in list(self._uris):
            self._put(ResourceUpdated(uri))

    def _put(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated):
            self._uris.pop(event.uri, None)
            self._uris[event.uri] = None
            if len(self._uris) > _MAX_URIS:
                del self._uris[next(iter(self._uris))]
        if event in self._pending:
            self.coalesced += 1
        else:
            self._pending[event] = None
            self._wake.set()

    async def run(self) -> None:
        """Hand over what waits, for ever."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            # A round takes what waits now; an event that comes again meanwhile belongs to the next.
            events, self._pending = self._pending, {}
            self._room.set()
            for event in events:
                self._deliver(event)
                for _ in range(_TURNS):
                    await checkpoint()
            self._floods.flush()
            await anyio.sleep(_PAUSE)

    def _deliver(self, event: ServerEvent) -> None:
        for token, listener in list(self._listeners.items()):
            if token not in self._listeners:
                continue
            try:
                listener(event)
            except Exception as exc:
                self.listener_errors += 1
                self._logger.debug("a listener raised", exc_info=exc)
                self._floods.add("listener", f"a listener raised {exc!r}; the others were told all the same")
            else:
                self.delivered += 1
