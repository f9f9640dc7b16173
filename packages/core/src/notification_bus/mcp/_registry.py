"""The registry of a server: starting, signals, and publishing from threads."""

import asyncio
import logging
from typing import Any, Unpack

import anyio

from notification_bus._loops import current_loop, loop_is_over, run_soon
from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError, BusNotReadyError
from notification_bus.notification import BusNotification
from notification_bus.subscriptions import RegistryOptionValues, SubscriptionRegistry
from notification_bus.subscriptions._signals import SignalChain

__all__ = ["ServerRegistry"]

_logger = logging.getLogger("notification_bus.mcp")


class ServerRegistry(SubscriptionRegistry):
    """A registry that a server's lifespan enters. Its errors say what is wrong with the lifespan.

    Args:
        bus: Where notifications travel.
        drain_on_signals: Whether SIGTERM and SIGINT end the streams while it is open.
        options: See `RegistryOptions`.
    """

    def __init__(
        self, bus: NotificationBus, *, drain_on_signals: bool, **options: Unpack[RegistryOptionValues]
    ) -> None:
        super().__init__(bus, **options)
        self._drain_on_signals = drain_on_signals
        self._signals: SignalChain | None = None
        self.serves_streams = False
        """Whether listen streams are served: only then is there anything to drain."""
        self._once_started = False
        self._give_up_at: float
        self._warned: bool
        self._soon: dict[BusNotification, None] = {}

    def _start(self) -> None:
        super()._start()
        self._once_started = True
        self._give_up_at = anyio.current_time() + self.options.ready_timeout
        self._warned = False
        self._soon = {}
        if self._drain_on_signals and self.serves_streams:
            self._signals = SignalChain(self.begin_drain, self.drain)

    async def _stop(self) -> None:
        await super()._stop()
        self._forget_signals()

    def _forget(self) -> None:
        super()._forget()
        self._forget_signals()

    def _forget_signals(self) -> None:
        if self._signals is not None:
            self._signals.take_back()
            self._signals = None

    def renew_signals(self) -> None:
        """Chain to handlers that were set after the start: FastMCP enters the lifespan before uvicorn sets its own."""
        if self._drain_on_signals and self._home is not None and self._home[0] is current_loop():
            if self._signals is None:
                self._signals = SignalChain(self.begin_drain, self.drain)
            self._signals.renew()

    def _check_open(self) -> None:
        try:
            super()._check_open()
        except RuntimeError:  # closed, open in another loop, or called in a thread without a loop
            raise self._not_open() from None

    def _not_open(self) -> BusClosedError:
        if self._home is not None:
            return BusClosedError(
                "these McpSubscriptions are in use in another event loop or process than this one: from a thread, use "
                "publish_from_thread(); for another loop or after a fork, build another McpSubscriptions"
            )
        if self._once_started:
            return BusClosedError("the lifespan of these McpSubscriptions has ended: the server is shutting down")
        return BusClosedError(
            "these McpSubscriptions were never started: give their lifespan to the server, as in "
            "MCPServer(..., subscriptions=subscriptions, lifespan=subscriptions.lifespan). A server that is mounted in "
            "a Starlette app needs that app to run its lifespan (session_manager.run()), which mounting does not do"
        )

    async def wait_started(self) -> None:
        """Wait for the bus to confirm, until `ready_timeout` after the start. One start warns once."""
        try:
            await self.wait_ready(max(0.0, self._give_up_at - anyio.current_time()))
        except BusNotReadyError:
            if not self._warned:
                self._warned = True
                _logger.warning(
                    "%r has not confirmed within %g s; the server starts without it. Nothing is delivered before it "
                    "has, then every open stream is told to look again",
                    self.bus,
                    self.options.ready_timeout,
                    extra={"notification_bus_event": "mcp_not_ready"},
                )

    def publish_soon(self, notification: BusNotification) -> None:
        """Publish from code that cannot wait, in any thread. Does nothing if the registry is not open."""
        if self._home is None or notification in self._soon:
            return
        self._soon[notification] = None

        async def publish() -> None:
            # First, so that a change from here on is published once more.
            self._soon.pop(notification, None)
            try:
                await self.publish(notification)
            except BusClosedError:
                pass  # stopped since
            except Exception:
                _logger.warning("a change of the server's own lists could not be published", exc_info=True)

        if not run_soon(self._home[0], publish, "notification-bus: a list has changed"):
            self._soon.pop(notification, None)

    def publish_from_thread(self, notification: BusNotification) -> None:
        """Publish from a thread that runs no event loop; return when the bus has the notification.

        Raises:
            RuntimeError: Called in the event loop's own thread, which would wait for itself.
            Exception: As for `publish`.
        """
        if self._home is None:
            raise self._not_open()
        loop: Any = self._home[0]
        try:
            here = current_loop()
        except RuntimeError:
            here = None
        if here is loop:
            raise RuntimeError("publish_from_thread() was called in the event loop: use `await publish(event)` there")
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._publish_on_asyncio(notification, loop)
            return
        import trio  # noqa: PLC0415  # only where it already runs

        try:
            trio.from_thread.run(self.publish, notification, trio_token=loop)
        except trio.RunFinishedError:
            raise _loop_has_ended() from None

    def _publish_on_asyncio(self, notification: BusNotification, loop: asyncio.AbstractEventLoop) -> None:
        publishing = self.publish(notification)
        try:
            future = asyncio.run_coroutine_threadsafe(publishing, loop)
        except RuntimeError:
            publishing.close()
            raise _loop_has_ended() from None
        while True:
            try:
                return future.result(timeout=1.0)
            except TimeoutError:
                # A loop that ended meanwhile would never answer, and this thread would keep the process alive.
                if future.done() or loop_is_over(loop):
                    raise _loop_has_ended() from None


def _loop_has_ended() -> BusClosedError:
    return BusClosedError("the event loop of these McpSubscriptions has ended")
