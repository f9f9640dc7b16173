"""Into an event loop from where nothing can be awaited: a signal handler, another thread, a plain function in it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Final

__all__ = ["call_soon", "run_soon"]

_tasks: Final[set[asyncio.Task[None]]] = set()
"""A loop holds its tasks weakly."""


def call_soon(loop: Any, function: Callable[[], None]) -> bool:
    """Call a function in an event loop. It can rely on no context there, so it starts nothing of anyio's.

    Returns:
        Whether the loop is there still; it may end before it comes to that.
    """
    try:
        if isinstance(loop, asyncio.AbstractEventLoop):
            loop.call_soon_threadsafe(function, context=Context())
        else:
            loop.run_sync_soon(function)
    except RuntimeError:
        return False
    return True


def run_soon(loop: Any, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> bool:
    """Run a coroutine function, which handles its own errors, in a task of its own. Returns as `call_soon` does."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        return call_soon(loop, partial(_start_task, loop, function, name))
    import trio  # noqa: PLC0415  # only where it already runs

    return call_soon(
        loop, partial(_discard, partial(trio.lowlevel.spawn_system_task, function, name=name, context=Context()))
    )


def _start_task(loop: asyncio.AbstractEventLoop, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    task = loop.create_task(function(), name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _discard(function: Callable[[], object]) -> None:
    function()
