"""The one task that a registry with a bus runs: it reads the bus and never dies of what it reads."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

import anyio

from notification_bus._backoff import Backoff
from notification_bus._loops import BackgroundTask, turn
from notification_bus.bus import NotificationBus
from notification_bus.errors import BusNotReadyError
from notification_bus.notification import BusNotification

__all__ = ["LONGEST_PAUSE", "Pump"]

_logger = logging.getLogger("notification_bus.subscriptions")

_TURN: Final = 64
"""Notifications taken from a bus that never waits before the event loop gets a turn."""

LONGEST_PAUSE: Final = 2.0
"""The longest wait, in seconds, before a broken subscription or stream is replaced. One that lasted longer was
healthy."""


class Pump:
    """Enters a bus, subscribes to it for as long as the pump lives, and hands on what it hears.

    A bus of this project reconnects by itself, so its subscription never ends. One that a user wrote may raise or end;
    it is subscribed to again, after a pause that grows, and a gap is announced.

    Args:
        bus: The bus; entered where it is a context manager.
        deliver: Called with each notification. It handles its own errors: one that escapes counts as a broken
            subscription.
        gap: Called where something may have been lost.
        random: Numbers from 0 up to 1.
    """

    def __init__(
        self,
        bus: NotificationBus,
        deliver: Callable[[BusNotification], None],
        gap: Callable[[], None],
        *,
        random: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._deliver = deliver
        self._gap = gap
        self._random = random
        self._entered = anyio.Event()
        self._refusal: Exception | None = None
        self._ready = anyio.Event()
        self.owes_gap = False
        """Whether the next subscription begins with a gap, since changes before it may have been missed."""
        self._trouble: Exception | None = None
        self._task = BackgroundTask(self._run, "notification_bus.subscriptions pump")

    @property
    def ready(self) -> bool:
        """Whether everything that is published from now on is owed to this node."""
        return self._ready.is_set()

    async def entered(self) -> None:
        """Wait until the bus has been entered, which is not yet to be ready.

        Raises:
            Exception: What the bus raised.
        """
        await self._entered.wait()
        if self._refusal is not None:
            raise self._refusal

    async def wait_ready(self) -> None:
        """Wait until the subscription is ready, without a limit."""
        while not self._ready.is_set():
            await self._ready.wait()

    def not_ready(self, timeout: float) -> BusNotReadyError:
        """Return the error for a caller that has waited long enough."""
        cause = self._trouble
        said = f": {type(cause).__name__}: {cause}" if cause is not None else ", and has not said why"
        error = BusNotReadyError(
            f"the bus was not ready within {timeout:g} s{said}; a stream opened now could miss changes, so none is"
        )
        error.__cause__ = cause
        return error

    async def aclose(self) -> None:
        """Leave the subscription and the bus."""
        self._task.cancel()
        await self._task.wait()

    async def _run(self) -> None:
        bus = self._bus
        context = (
            cast("AbstractAsyncContextManager[Any]", bus) if isinstance(bus, AbstractAsyncContextManager) else None
        )
        try:
            if context is not None:
                await context.__aenter__()
        except Exception as exc:
            self._refusal = exc
            return
        finally:
            self._entered.set()
        try:
            await self._subscribe_again_and_again()
        finally:
            if context is not None:
                await self._leave(context)

    async def _leave(self, context: AbstractAsyncContextManager[Any]) -> None:
        # This task is being cancelled; a bus closes within a bound of its own.
        with anyio.CancelScope(shield=True):
            try:
                await context.__aexit__(None, None, None)
            except Exception:
                _logger.warning("closing the bus failed", exc_info=True)

    async def _subscribe_again_and_again(self) -> None:
        backoff = Backoff(LONGEST_PAUSE, self._random)
        warned = False
        while True:
            since = anyio.current_time()
            try:
                async with self._bus.subscribe() as notifications:
                    if warned:
                        _logger.info("subscribed to the bus again")
                    if self.owes_gap:
                        self._gap()
                    # What is published between this subscription and the next one does not reach this node.
                    self.owes_gap = True
                    since = anyio.current_time()
                    self._ready.set()
                    await self._read(notifications)
                trouble: Exception = RuntimeError("the bus ended the subscription")
            except Exception as exc:
                trouble = exc
            if self._ready.is_set():
                self._ready = anyio.Event()
                if anyio.current_time() - since > LONGEST_PAUSE:
                    # One that breaks as soon as it is made must not be made in a tight loop, nor warned of each time.
                    backoff.reset()
                    warned = False
            self._trouble = trouble
            if not warned:
                warned = True
                _logger.warning(
                    "not subscribed to the bus, trying again until it works: %s: %s", type(trouble).__name__, trouble
                )
            await anyio.sleep(backoff.next())

    async def _read(self, notifications: AsyncIterator[BusNotification]) -> None:
        streak = 0
        async for notification in notifications:
            self._deliver(notification)
            streak += 1
            if streak >= _TURN:
                streak = 0
                await turn()
