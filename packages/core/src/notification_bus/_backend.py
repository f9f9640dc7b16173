"""The few things that anyio has no word for: which loop this is, and a task that outlives the caller that starts it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

import anyio

__all__ = ["BackgroundTask", "backend_name", "clock", "current_loop", "loop_is_over"]


def current_loop() -> object:
    """An object that stands for the running event loop; compare with `is`.

    Raises:
        RuntimeError: No event loop runs here.
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
    """Whether the loop has ended and can never run again."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.is_closed()
    run_sync_soon: Callable[[Callable[[], None]], None] = loop.run_sync_soon  # type: ignore[attr-defined]
    try:
        run_sync_soon(lambda: None)
    except RuntimeError:  # trio.RunFinishedError is one
        return True
    return False


def backend_name(loop: object) -> str:
    """`"asyncio"` or `"trio"`."""
    return "asyncio" if isinstance(loop, asyncio.AbstractEventLoop) else "trio"


def clock() -> Callable[[], float]:
    """What `anyio.current_time` reads in the running event loop, without finding out anew each time which that is."""
    loop = current_loop()
    return loop.time if isinstance(loop, asyncio.AbstractEventLoop) else anyio.current_time


class BackgroundTask:
    """A task that belongs to an object, not to the caller that happened to start it.

    An anyio task group must be left by the task that entered it. A bus is entered and left by whichever connections
    come and go, so its supervisor cannot live in one of theirs. The function must handle its own errors.
    """

    def __init__(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        # An empty context: the first caller's context variables (a request, a trace) are none of this task's business.
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
