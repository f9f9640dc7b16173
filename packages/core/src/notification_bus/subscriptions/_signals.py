"""Signal handlers that begin a drain: servers wait for open streams before they leave the lifespan."""

import os
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final

from notification_bus._loops import call_soon, current_loop, run_soon

__all__ = ["SignalChain"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class SignalChain:
    """Begins a drain in this event loop on SIGTERM or SIGINT, before handlers set earlier run.

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
        self._installed: list[tuple[signal.Signals, Any, Any]] = []
        self.renew()

    def renew(self) -> None:
        """Chain to handlers that were set since: FastMCP enters the lifespan before uvicorn sets its own."""
        if self._on:
            for number in _SIGNALS:
                current = signal.getsignal(number)
                if not any(current == handler for _, handler, _ in self._installed):
                    self._install(number, current)

    def _install(self, number: signal.Signals, previous: Any) -> None:
        handler: Callable[[int, FrameType | None], None]
        if callable(previous):
            handler = self._chained(previous)
        elif previous == signal.SIG_DFL:
            handler = self._before_the_end
        else:
            return
        signal.signal(number, handler)
        self._installed.append((number, handler, previous))

    def _chained(self, previous: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def handle(signum: int, frame: FrameType | None) -> None:
            if self._reachable:
                call_soon(self._loop, self._begin_drain)
            previous(signum, frame)

        return handle

    def _before_the_end(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)

        async def end() -> None:
            try:
                await self._drain()
            finally:  # also where the loop ends first
                os.kill(os.getpid(), signum)

        if not (self._reachable and run_soon(self._loop, end, "notification-bus: drain before the end")):
            os.kill(os.getpid(), signum)

    @property
    def _reachable(self) -> bool:
        # A fork's child has a copy of the loop that never runs.
        return self._on and os.getpid() == self._process

    def take_back(self) -> None:
        """Restore the earlier handlers. A handler that was chained to since stays, and only passes the signal on."""
        self._on = False
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self._process:
            return
        for number, handler, previous in reversed(self._installed):
            if signal.getsignal(number) == handler:
                signal.signal(number, previous)
        self._installed.clear()
