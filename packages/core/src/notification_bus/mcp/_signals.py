"""Hear of the shutdown when it is signalled: servers wait for open streams before they run the lifespan's end."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final

from notification_bus._backend import BackgroundTask, current_loop

__all__ = ["SignalChain"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class SignalChain:
    """While it is on, a drain begins in this event loop when the process is asked to stop, before whoever is asked now.

    Handlers are chained, never replaced: servers and libraries have theirs. Where a signal would end the process at
    once, as SIGTERM does over stdio, it does so after the drain, or when it comes again. A signal that is ignored, or
    whose handler Python does not know, is left alone. Only in the main thread; elsewhere it does nothing.

    Args:
        begin_drain: Called in the event loop.
        drain: Awaited in it before a signal ends the process.
    """

    def __init__(self, begin_drain: Callable[[], None], drain: Callable[[], Awaitable[object]]) -> None:
        self._begin_drain = begin_drain
        self._drain = drain
        self._loop: Any = current_loop()
        self._process = os.getpid()
        self._on = threading.current_thread() is threading.main_thread()
        self._installed: dict[signal.Signals, tuple[Any, Any]] = {}
        if self._on:
            for number in _SIGNALS:
                self._install(number, signal.getsignal(number))

    @property
    def loop(self) -> object:
        """The event loop that hears of the signals."""
        return self._loop

    def _install(self, number: signal.Signals, previous: Any) -> None:
        handler: Callable[[int, FrameType | None], None]
        if callable(previous):
            handler = self._chained(previous)
        elif previous == signal.SIG_DFL:
            handler = self._before_the_end
        else:
            return
        signal.signal(number, handler)
        self._installed[number] = (handler, previous)

    def _chained(self, previous: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def handle(signum: int, frame: FrameType | None) -> None:
            self._soon(self._begin_drain)
            previous(signum, frame)

        return handle

    def _before_the_end(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)
        if not self._soon(lambda: self._start_ending(signum)):
            os.kill(os.getpid(), signum)

    def _start_ending(self, signum: int) -> None:
        async def end() -> None:
            try:
                await self._drain()
            finally:  # also where the loop ends first
                os.kill(os.getpid(), signum)

        BackgroundTask(end, "notification-bus: drain before the end of the process")

    def _soon(self, function: Callable[[], None]) -> bool:
        """Call something in the event loop, if that is still there. A fork's child has a copy that never runs."""
        if not self._on or os.getpid() != self._process:
            return False
        try:
            if isinstance(self._loop, asyncio.AbstractEventLoop):
                self._loop.call_soon_threadsafe(function)
            else:
                self._loop.run_sync_soon(function)
        except RuntimeError:  # it has ended
            return False
        return True

    def take_back(self) -> None:
        """Put the handlers back, where nobody has chained on top of them; there they only pass the signal on."""
        self._on = False
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self._process:
            return
        for number, (handler, previous) in self._installed.items():
            if signal.getsignal(number) == handler:
                signal.signal(number, previous)
        self._installed.clear()
