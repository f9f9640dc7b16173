"""What a bus that holds something open adds to the protocol, and how its entering is counted."""

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Protocol, Self, runtime_checkable

import anyio

from notification_bus._backend import current_loop, loop_is_over
from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError, NotificationTooLargeError
from notification_bus.notification import BusNotification
from notification_bus.stats import BusStats

__all__ = ["DEFAULT_MAX_BODY", "CountedBus", "OpenableBus"]

DEFAULT_MAX_BODY: Final = 1_048_576
"""Bytes of the largest body where the broker sets no smaller limit: a notification says that something changed."""


@runtime_checkable
class OpenableBus(NotificationBus, Protocol):
    """A `NotificationBus` that is entered before use. Every bus of this project is one.

    Entering is counted: the last exit stops the bus. A stopped bus can be entered again, also on another event loop.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> bool | None: ...

    async def aclose(self) -> None:
        """Stop the bus whatever the count of its entering; a bus that is not open is left alone."""
        ...

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait for the broker's confirmation, for those who want to fail fast.

        Args:
            timeout: Seconds; `None` takes the bus's own `ready_timeout`.

        Raises:
            BusNotReadyError: There was none in time. Names the cause.
            BusClosedError: The bus is not open.
        """
        ...

    def stats(self) -> BusStats:
        """What the bus has counted up to now."""
        ...


class CountedBus(ABC):
    """The counting, shared by the buses here: a subclass says how to start and how to stop."""

    max_body: int = DEFAULT_MAX_BODY
    """Bytes of the largest body that this bus carries."""

    def __init__(self) -> None:
        self._entered = 0
        self._home: tuple[object, int] | None = None
        self._stopping: anyio.Event | None = None

    @abstractmethod
    def _start(self) -> None:
        """Start in the running event loop. Not a coroutine: nothing can come between it and the counting."""

    @abstractmethod
    async def _stop(self) -> None:
        """Stop within a bound, in any state. Runs shielded from cancellation."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what belongs to an event loop that has ended, or to the process that this one was forked from."""

    def _check_open(self) -> None:
        """Refuse, with the reason, whatever needs the bus to be open here."""
        home = self._home
        if home is None:
            name = type(self).__name__
            raise BusClosedError(
                f"this {name} is not open: enter it first, as in `async with bus:`, or with your application's "
                "lifespan (Starlette does not run the lifespan of a mounted app)"
            )
        if home[0] is not current_loop():
            raise BusClosedError(
                f"this {type(self).__name__} is open in another event loop or process: use it there "
                "(from a thread, by anyio.from_thread.run), or build one for this one after the fork"
            )

    def _encode(self, notification: BusNotification) -> bytes:
        """The body of what a caller publishes, or an error that says what the caller can mend."""
        self._check_open()
        if not isinstance(notification, BusNotification):
            raise TypeError(f"publish takes a BusNotification, not {type(notification).__name__}")
        body = notification.encode()
        if len(body) > self.max_body:
            raise NotificationTooLargeError(len(body), self.max_body)
        return body

    async def __aenter__(self) -> Self:
        if self._home is not None and (self._home[1] != os.getpid() or loop_is_over(self._home[0])):
            self._forget()
            self._home, self._entered, self._stopping = None, 0, None
        while self._stopping is not None:
            await self._stopping.wait()
        if self._home is None:
            self._start()
            self._home = (current_loop(), os.getpid())
        else:
            self._check_open()
        self._entered += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        if self._entered > 0:
            self._entered -= 1
        if self._entered == 0:
            await self._close()

    async def aclose(self) -> None:
        """Stop the bus whatever the count of its entering. Does nothing where it is not open."""
        self._entered = 0
        await self._close()

    async def _close(self) -> None:
        if self._stopping is not None:
            await self._stopping.wait()
            return
        if self._home is None:
            return
        self._check_open()
        self._home = None
        self._stopping = anyio.Event()
        try:
            # Leaving while cancelled is the usual way for a server to stop; the bound is the subclass's.
            with anyio.CancelScope(shield=True):
                await self._stop()
        finally:
            self._stopping.set()
            self._stopping = None
