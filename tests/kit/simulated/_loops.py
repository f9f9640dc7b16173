"""Doing something in the event loop that it belongs to, from wherever one happens to be."""

import asyncio
from collections.abc import Callable
from typing import Any

from notification_bus._loops import current_loop

__all__ = ["run_in"]


def run_in(loop: object, function: Callable[[], object]) -> bool:
    """Call `function` in that loop: at once where it is the running one, soon where it is another thread's.

    A broker outlives the loops of its clients, and a check may run a bus in a loop of its own. Returns False where the
    loop has ended.
    """
    try:
        here = current_loop()
    except RuntimeError:
        here = None
    if here is loop:
        function()
        return True
    target: Any = loop
    try:
        if isinstance(loop, asyncio.AbstractEventLoop):
            target.call_soon_threadsafe(function)
        else:
            target.run_sync_soon(function)
    except RuntimeError:
        return False
    return True
