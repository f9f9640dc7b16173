"""From what the bus yields to the SDK's listeners: coalesced, and at a pace that their streams can keep."""

import logging
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from mcp.server.subscriptions import ResourceUpdated, ServerEvent

from notification_bus._floodlog import FloodLog
from notification_bus.mcp._events import LIST_EVENTS
from notification_bus.mcp._listeners import Listeners

__all__ = ["Delivery"]

_PAUSE: Final = 0.02
"""Seconds of a round, in which each event is handed over once: at once when it comes first, and in the next round, once
for all, when it comes again."""

_TURNS: Final = 8
"""Turns of the event loop after each event that concerned anybody.

A listener only appends to its stream's buffer, which the SDK ends at 1,024; the stream's own task needs some turns to
write one event out. Turns rather than time, since they last longer exactly when many streams have something to write.
"""

MAX_PENDING: Final = 4096
"""Different events that wait at most. Beyond that the bus is not read, so that it drops and announces a gap."""


class Delivery:
    """The events that wait to be handed to the listeners. Belongs to one event loop.

    Events are level triggers ("this changed, look again"): one that is waiting already is not queued again.
    """

    def __init__(self, listeners: Listeners, logger: logging.Logger, floods: FloodLog) -> None:
        self._listeners = listeners
        self._logger = logger
        self._floods = floods
        self._pending: dict[ServerEvent, None] = {}
        self._wake: anyio.Event
        self._room: anyio.Event
        self.delivered = 0
        self.coalesced = 0
        self.listener_errors = 0

    def renew(self) -> None:
        """Forget what belongs to an event loop that has ended; to be called in the new one before anything else."""
        self._listeners.clear()
        self._pending.clear()
        self._wake, self._room = anyio.Event(), anyio.Event()

    async def put(self, event: ServerEvent) -> None:
        """Let an event wait for the next round. Waits only while too many different ones do."""
        while len(self._pending) >= MAX_PENDING and event not in self._pending:
            self._room = anyio.Event()
            await self._room.wait()
        if isinstance(event, ResourceUpdated):
            self._listeners.note(event.uri)
        self._put(event)

    def put_everything(self) -> None:
        """Let every change wait that a listener may have missed."""
        for event in LIST_EVENTS:
            self._put(event)
        for uri in self._listeners.uris():
            self._put(ResourceUpdated(uri))

    def _put(self, event: ServerEvent) -> None:
        if event in self._pending:
            self.coalesced += 1
        else:
            self._pending[event] = None
            self._wake.set()

    async def run(self) -> None:
        """Hand over what waits, for ever."""
        while True:
            await self._wake.wait()
            with anyio.move_on_after(_PAUSE):
                await self._run_round()
            self._floods.flush()
            if self._pending:  # what came again within the round
                self._wake.set()

    async def _run_round(self) -> None:
        told: set[ServerEvent] = set()
        while True:
            self._wake = anyio.Event()
            for event in [event for event in self._pending if event not in told]:
                # Told and taken off in one step: the round may end at any of the turns.
                told.add(event)
                del self._pending[event]
                self._room.set()
                if self._deliver(event):
                    for _ in range(_TURNS):
                        await checkpoint()
            await self._wake.wait()

    def _deliver(self, event: ServerEvent) -> bool:
        concerned = False
        for listener in self._listeners.concerned(event):
            concerned = True
            try:
                listener(event)
            except Exception as exc:
                self.listener_errors += 1
                self._logger.debug("a listener raised", exc_info=exc)
                self._floods.add("listener", f"a listener raised {exc!r}; the others were told all the same")
            else:
                self.delivered += 1
        return concerned
