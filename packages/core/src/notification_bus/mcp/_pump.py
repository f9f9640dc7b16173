"""The one task that reads the bus for all listeners of this process."""

import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, cast

import anyio

from notification_bus._backoff import Backoff
from notification_bus._floodlog import FloodLog
from notification_bus._lifecycle import ReferenceCounted
from notification_bus._loops import BackgroundTask
from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError
from notification_bus.mcp._delivery import Delivery
from notification_bus.mcp._events import is_listenable, to_event
from notification_bus.notification import GAP, BusNotification

__all__ = ["Pump"]

_BACKOFF_CAP: Final = 2.0
"""Seconds between two tries to subscribe. A bus of this project waits by itself; others may refuse at once."""


class Pump(ReferenceCounted):
    """Opens the bus, subscribes, and hands what arrives to the delivery, until the last lifespan is left.

    The task belongs to no connection: the one whose lifespan started it may end long before the others.
    """

    def __init__(
        self, bus: NotificationBus, delivery: Delivery, logger: logging.Logger, floods: FloodLog, ready_timeout: float
    ) -> None:
        super().__init__()
        self._bus = bus
        self._delivery = delivery
        self._logger = logger
        self._floods = floods
        self._ready_timeout = ready_timeout
        self._once_started = False
        self._opened: anyio.Event
        self._ready: anyio.Event
        self._scope: anyio.CancelScope
        self._task: BackgroundTask
        self._failure: Exception | None
        self._give_up_at: float
        self._serving: bool
        self.ignored = 0
        self.gaps = 0

    @property
    def ready(self) -> bool:
        """Whether the bus has confirmed the subscription, so that a stream opened now misses nothing."""
        return self._home is not None and self._ready.is_set()

    @property
    def users(self) -> int:
        """Lifespans that are entered now."""
        return 0 if self._home is None else self._entered

    @property
    def home(self) -> object:
        """The event loop that the pump runs in.

        Raises:
            BusClosedError: It does not run.
        """
        if self._home is None:
            raise self._not_running()
        return self._home[0]

    def check_open(self) -> None:
        """Refuse what needs the lifespan.

        Raises:
            BusClosedError: It was never entered, or was left, or runs in another event loop.
        """
        if self._home is None:
            raise self._not_running()
        try:
            self._check_open()
        except RuntimeError:  # in another loop, or in a thread without any
            raise BusClosedError(
                "these McpSubscriptions are in use in another event loop or process than this one: from a thread, use "
                "publish_from_thread(); for another loop or after a fork, build another McpSubscriptions"
            ) from None

    def _not_running(self) -> BusClosedError:
        if self._once_started:
            return BusClosedError("the lifespan of these McpSubscriptions has ended: the server is shutting down")
        return BusClosedError(
            "these McpSubscriptions were never started: give their lifespan to the server, as in "
            "MCPServer(..., subscriptions=subscriptions, lifespan=subscriptions.lifespan). A server that is mounted in "
            "a Starlette app needs that app to run its lifespan (session_manager.run()), which mounting does not do"
        )

    async def wait_started(self) -> None:
        """Wait until the bus is open, then for its confirmation, the latter not beyond `ready_timeout` of the start."""
        await self._opened.wait()
        if self._failure is not None:
            raise self._failure
        with anyio.move_on_after(max(0.0, self._give_up_at - anyio.current_time())):
            await self._ready.wait()
        if not self._ready.is_set() and not self._serving:
            self._serving = True
            self._logger.warning(
                "%r has not confirmed within %g s; the server starts without it. Nothing is delivered before it has, "
                "then every open stream is told to look again",
                self._bus,
                self._ready_timeout,
                extra={"notification_bus_event": "mcp_not_ready"},
            )

    def _start(self) -> None:
        self._once_started = True
        self._opened = anyio.Event()
        self._ready = anyio.Event()
        self._scope = anyio.CancelScope()
        self._failure = None
        self._serving = False
        self._give_up_at = anyio.current_time() + self._ready_timeout
        self._delivery.renew()
        self._task = BackgroundTask(self._run, "notification-bus: pump of McpSubscriptions")

    async def _stop(self) -> None:
        # The scope, not the task: the bus is still to be left, and says itself how long that takes at most.
        self._scope.cancel()
        await self._task.wait()
        self._floods.flush(force=True)

    def _forget(self) -> None:
        """Nothing: starting renews all that belongs to a loop."""

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                with self._scope:
                    if isinstance(self._bus, AbstractAsyncContextManager):
                        await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", self._bus))
                    self._opened.set()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._delivery.run)
                        await self._read()
        except Exception as exc:
            self._failure = exc
            if self._opened.is_set():
                self._logger.exception("the subscriptions of this server have stopped: nothing is delivered any more")
        finally:
            self._opened.set()

    async def _read(self) -> None:
        """Subscribe, for ever: a bus keeps its streams alive itself, but for the start, and buses that end them."""
        backoff = Backoff(_BACKOFF_CAP)
        while True:
            try:
                async with self._bus.subscribe() as stream:
                    self._confirmed()
                    async for notification in stream:
                        backoff.reset()
                        await self._receive(notification)
                reason = "its stream has ended"
            except Exception as exc:
                reason = f"{type(exc).__name__}: {exc}"
            self._ready = anyio.Event()
            self._floods.add("deaf", f"no subscription to {self._bus!r}, trying again: {reason}")
            await anyio.sleep(backoff.next())

    def _confirmed(self) -> None:
        self._ready.set()
        if self._serving:
            # Streams may have been acknowledged while nothing could reach them.
            self._gap()
        self._serving = True

    async def _receive(self, notification: BusNotification) -> None:
        if notification.method == GAP.method:
            self._gap()
            return
        event = to_event(notification)
        if event is not None:
            await self._delivery.put(event)
            return
        self.ignored += 1
        if is_listenable(notification):
            self._floods.add("malformed", f"skipped a {notification.method} without the URI that it is about")

    def _gap(self) -> None:
        self.gaps += 1
        self._delivery.put_everything()
