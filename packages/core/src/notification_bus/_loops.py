"""Event loops: which one runs, how to schedule work in it from outside, and tasks that outlive their starter."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["BackgroundTask", "backend_name", "call_soon", "clock", "current_loop", "loop_is_over", "run_soon", "turn"]

_tasks: Final[set[asyncio.Task[None]]] = set()
"""Strong references: an asyncio loop keeps only weak references to its tasks."""


def current_loop() -> object:
    """Return an object that identifies the running event loop; compare with `is`.

    Raises:
        RuntimeError: No event loop runs in this thread.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is None:
            raise
        token: object = trio.lowlevel.current_trio_token()
        return token


def loop_is_over(loop: object) -> bool:
    """Return whether the loop has ended and can never run again."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.is_closed()
    return not call_soon(loop, lambda: None)


def backend_name(loop: object) -> str:
    """Return `"asyncio"` or `"trio"`."""
    return "asyncio" if isinstance(loop, asyncio.AbstractEventLoop) else "trio"


def clock() -> Callable[[], float]:
    """Return the function that `anyio.current_time` calls in this loop, without looking the backend up at each call."""
    loop = current_loop()
    return loop.time if isinstance(loop, asyncio.AbstractEventLoop) else anyio.current_time


async def turn() -> None:
    """Yield to the event loop once; a cheap `checkpoint`.

    On asyncio this is what anyio does, without its look-up of the backend: a burst pays for it at each notification.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        await checkpoint()
    else:
        await asyncio.sleep(0)


def call_soon(loop: Any, function: Callable[[], None]) -> bool:
    """Schedule a function in an event loop, from any thread or a signal handler.

    It runs in an empty context, so it must not start anything that needs anyio's.

    Returns:
        False if the loop has been closed. True is no promise: the loop may end before it gets there.
    """
    try:
        if isinstance(loop, asyncio.AbstractEventLoop):
            loop.call_soon_threadsafe(function, context=Context())
        else:
            loop.run_sync_soon(function)
    except RuntimeError:  # trio.RunFinishedError is one
        return False
    return True


def run_soon(loop: Any, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> bool:
    """Schedule a coroutine function as a task of its own. It handles its own errors. Returns as `call_soon` does."""
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


class BackgroundTask:
    """A task that belongs to an object, not to the caller that happened to start it.

    An anyio task group must be left by the task that entered it. A bus is entered and left by connections that come
    and go, so its supervisor cannot live in a task group of one of them. The function must handle its own errors.
    """

    def __init__(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        # An empty context: the context variables of the first caller (a request, a trace) do not concern this task.
        loop = current_loop()
        self._task: Any
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._task = loop.create_task(self._run(), name=name, context=Context())
        else:
            import trio  # noqa: PLC0415  # only where it already runs

            self._task = trio.lowlevel.spawn_system_task(self._run, name=name, context=Context())

    @property
    def done(self) -> bool:
        return self._done.is_set()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._function()
        finally:
            self._done.set()

    def cancel(self) -> None:
        self._scope.cancel()

    async def wait(self) -> None:
        await self._done.wait()
