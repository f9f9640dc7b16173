"""What runs in an event loop, what it complains of, and how to have another one."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from importlib.util import find_spec
from typing import Any

import anyio

from notification_bus._loops import current_loop
from notification_bus.testing._waiting import wait_for

__all__ = [
    "LoopReports",
    "LoopThread",
    "base_backend",
    "is_installed",
    "is_pooled",
    "run_in_new_loop",
    "running_tasks",
    "start_loop",
]

_POOLS = ("AnyIO worker", "Trio thread", "asyncio_", "ThreadPoolExecutor-")
"""How the threads are named that an async library keeps for itself and ends in its own time."""


def base_backend(backend: str) -> str:
    """`"asyncio"` of `"asyncio+uvloop"`."""
    return backend.partition("+")[0]


def is_installed(backend: str) -> bool:
    """Whether the libraries that the backend needs are here."""
    library = {"trio": "trio", "asyncio+uvloop": "uvloop"}.get(backend)
    return library is None or find_spec(library) is not None


def start_loop(function: Callable[[], Awaitable[None]], backend: str) -> None:
    """Run in a new event loop: of `asyncio`, `asyncio+debug`, `asyncio+uvloop` or `trio`."""
    name, _, variant = backend.partition("+")
    options: dict[str, Any] = {}
    if variant:
        options[{"debug": "debug", "uvloop": "use_uvloop"}[variant]] = True

    async def main() -> None:
        with anyio.CancelScope() as scope:
            thread = threading.current_thread()
            if isinstance(thread, LoopThread):
                thread.can_be_cancelled(scope)
            await function()

    anyio.run(main, backend=name, backend_options=options)


class LoopReports:
    """What event loops report through their exception handlers, since nobody was there to be told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def watch(self) -> None:
        """Listen to the running event loop. Trio has no such handler: there, such an error ends the run."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        loop.set_exception_handler(self._handle)

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        about = context.get("task") or context.get("future") or context.get("handle") or context.get("transport") or ""
        self.texts.append(f"{context.get('message')} {exception!r} {about!r}")


def running_tasks() -> dict[object, str]:
    """The tasks of the running event loop, the current one excepted, and what to call them."""
    try:
        current = asyncio.current_task()
    except RuntimeError:
        return _trio_tasks()
    return {task: f"{task.get_name()} in {task.get_coro()!r}" for task in asyncio.all_tasks() if task is not current}


def _trio_tasks() -> dict[object, str]:
    trio: Any = sys.modules["trio"]
    root = trio.lowlevel.current_root_task()
    current = trio.lowlevel.current_task()
    tasks: dict[object, str] = {}
    waiting = [root] if root is not None else []
    while waiting:
        task = waiting.pop()
        if task is not current:
            tasks[task] = f"{task.name} in {task.coro!r}"
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)
    return tasks


def is_pooled(thread: threading.Thread) -> bool:
    """Whether the thread belongs to the async library, for whatever it runs in threads, and to nobody's bus."""
    return thread.name.startswith(_POOLS)


class LoopThread(threading.Thread):
    """A thread that runs one event loop to its end."""

    def __init__(self, main: Callable[[], None]) -> None:
        # A daemon: a loop that cannot be ended must not keep the interpreter from ending.
        super().__init__(name="contract kit", daemon=True)
        self._main = main
        # Otherwise empty, as in any new thread of an application. Where filters of warnings are part of the context, as
        # in free-threaded builds, those of the runner must hold in there. `_context` is Thread's own from 3.14 on.
        self._own_context = copy_context() if getattr(sys.flags, "context_aware_warnings", False) else Context()
        self._scope: anyio.CancelScope | None = None
        self._loop: object = None
        self._ended = threading.Event()
        self.error: BaseException | None = None
        self.over = False

    def run(self) -> None:
        """Run the loop."""
        try:
            self._own_context.run(self._main)
        except BaseException as exc:
            self.error = exc
        finally:
            self.over = True
            self._ended.set()

    def can_be_cancelled(self, scope: anyio.CancelScope) -> None:
        """Called from inside of the loop: this scope is around all that it runs."""
        self._scope, self._loop = scope, current_loop()

    def finish(self, limit: float, grace: float) -> bool:
        """Wait for its end. An interruption, such as Ctrl-C, cancels what it runs and goes on when that has ended.

        Args:
            limit: Seconds to wait at most.
            grace: Seconds that what was cancelled has to leave nothing behind, processes for instance.

        Returns:
            Whether it has ended.
        """
        # Not by joining it at once: a join that was interrupted takes the thread for ended, up to Python 3.12.
        try:
            if wait_for(self._ended, limit):
                self.join()
        except BaseException:
            self._cancel()
            wait_for(self._ended, grace)
            raise
        return self._ended.is_set()

    def _cancel(self) -> None:
        loop: Any = self._loop
        if loop is not None and self._scope is not None:
            # A loop that has ended in the meantime has nothing to cancel.
            with suppress(RuntimeError):
                soon = loop.call_soon_threadsafe if isinstance(loop, asyncio.AbstractEventLoop) else loop.run_sync_soon
                soon(self._scope.cancel)

    def stack(self) -> str:
        """Where it is now."""
        import traceback  # noqa: PLC0415  # only for the report of a check that hangs

        frame = sys._current_frames().get(self.ident or 0)  # noqa: SLF001  # the documented way to look at a thread
        return "" if frame is None else "".join(traceback.format_stack(frame))


def run_in_new_loop(main: Callable[[], Awaitable[None]], backend: str, reports: LoopReports) -> LoopThread:
    """Start a thread that runs an event loop of its own."""

    async def watched() -> None:
        reports.watch()
        await main()

    thread = LoopThread(lambda: start_loop(watched, backend))
    thread.start()
    return thread
