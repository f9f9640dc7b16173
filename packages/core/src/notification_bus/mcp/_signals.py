"""Hear of the shutdown when it is signalled: servers wait for open streams before they run the lifespan's end."""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

__all__ = ["chain_signals"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def chain_signals(begin_drain: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in this event loop when the process is asked to stop, before whoever is asked now.

    Works in the main thread of an asyncio program; elsewhere it does nothing. A signal that nobody handles is left
    alone, since then the process ends at once. Handlers are chained, never replaced: servers and libraries have theirs.

    Returns:
        A function that takes the chaining back, where nobody has chained on top of it.
    """
    if threading.current_thread() is not threading.main_thread():
        return _nothing
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _nothing
    undo: list[Callable[[], None]] = []
    for number in _SIGNALS:
        previous = signal.getsignal(number)
        if not callable(previous):
            continue
        undo.append(_chain(number, previous, loop, begin_drain))

    def take_back() -> None:
        while undo:
            undo.pop()()

    return take_back


def _chain(
    number: signal.Signals,
    previous: Callable[[int, FrameType | None], Any],
    loop: asyncio.AbstractEventLoop,
    begin_drain: Callable[[], None],
) -> Callable[[], None]:
    def handle(signum: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(begin_drain)
        previous(signum, frame)

    signal.signal(number, handle)

    def take_back() -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is handle:
            signal.signal(number, previous)

    return take_back


def _nothing() -> None: ...
