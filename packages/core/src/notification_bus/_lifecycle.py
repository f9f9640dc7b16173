"""Reference-counted entering, shared by everything here that is started and stopped: buses and the registry."""

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self, TypeAlias

import anyio

from notification_bus._loops import current_loop, loop_is_over
from notification_bus.errors import BusClosedError

__all__ = ["ReferenceCounted"]

_Home: TypeAlias = tuple[object, int]
"""Where an object is open: the event loop and the process."""


class ReferenceCounted(ABC):
    """An async context manager whose entering is counted: the last exit stops it. A subclass starts and stops."""

    def __init__(self) -> None:
        self._entered = 0
        self._home: _Home | None = None
        self._stopping: tuple[anyio.Event, _Home] | None = None

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
        """Raise `BusClosedError`, with the reason, unless this is open in the running event loop and process."""
        home = self._home
        # The process comes first: a child forked in trio goes on with its parent's loop, and one in asyncio has none.
        if home is not None and home[1] == os.getpid() and home[0] is current_loop():
            return
        if home is not None and (home[1] != os.getpid() or not loop_is_over(home[0])):
            raise self._elsewhere()
        raise BusClosedError(
            f"this {type(self).__name__} is not open: enter it first, as in `async with bus:`, or with your "
            "application's lifespan (Starlette does not run the lifespan of a mounted app)"
        )

    def _come_home(self) -> None:
        """Reset after a fork or a closed loop; refuse to touch what is still open in another loop or process."""
        home = self._home if self._stopping is None else self._stopping[1]
        if home is None or (home[1] == os.getpid() and home[0] is current_loop()):
            return
        if home[1] == os.getpid() and not loop_is_over(home[0]):
            raise self._elsewhere()
        self._forget()
        self._home, self._entered, self._stopping = None, 0, None

    def _elsewhere(self) -> BusClosedError:
        return BusClosedError(
            f"this {type(self).__name__} is open in another event loop or process: use it there "
            "(from a thread, by anyio.from_thread.run), or build one for this one after the fork"
        )

    async def __aenter__(self) -> Self:
        self._come_home()
        while self._stopping is not None:
            await self._stopping[0].wait()
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
        self._come_home()
        if self._entered > 0:
            self._entered -= 1
        if self._entered == 0:
            await self._close()

    async def aclose(self) -> None:
        """Stop the bus, however often it was entered. Does nothing if it is not open.

        Raises:
            BusClosedError: It is open in another event loop: close it there.
        """
        self._come_home()
        self._entered = 0
        await self._close()

    async def _close(self) -> None:
        if self._stopping is not None:
            await self._stopping[0].wait()
            return
        if self._home is None:
            return
        stopping = self._stopping = (anyio.Event(), self._home)
        self._home = None
        try:
            # Leaving while cancelled is the usual way for a server to stop; the bound is the subclass's.
            with anyio.CancelScope(shield=True):
                await self._stop()
        finally:
            # Another life may have begun where this one's loop ended in the middle of the stopping.
            if self._stopping is stopping:
                self._stopping = None
            stopping[0].set()
