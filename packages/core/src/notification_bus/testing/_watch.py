"""What a check must not leave behind, whatever it was about: errors that nobody saw, tasks, threads, loud logs."""

import gc
import sys
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import anyio

from notification_bus.testing._logs import LogTap
from notification_bus.testing._tasks import LoopReports, is_pooled, running_tasks

__all__ = ["Watch"]

_GRACE: Final = 2.0
"""Seconds that what is ending anyway may take to end."""


class Watch:
    """One check's surroundings, watched from before its event loop starts until after it has ended."""

    def __init__(self, bus_logger: str) -> None:
        self.logs: LogTap = LogTap(bus_logger)
        self.reports: LoopReports = LoopReports()
        self.troubles: list[str] = []
        """What was found, in words."""
        self._tasks: set[object] = set()

    # -- inside of the event loop

    def enter_loop(self) -> None:
        """Listen to the running event loop, and note its tasks."""
        self.reports.watch()
        self._tasks = set(running_tasks())

    async def leave_loop(self) -> None:
        """Look for tasks that were left running."""
        deadline = time.monotonic() + _GRACE
        while left := [name for task, name in running_tasks().items() if task not in self._tasks]:
            if time.monotonic() > deadline:
                self.troubles.append(f"{len(left)} tasks were left running: {'; '.join(left)}")
                return
            await anyio.sleep(0.001)

    # -- around the thread that runs it

    @contextmanager
    def around(self) -> Generator[None]:
        """Watch the process while this is entered."""
        threads = set(threading.enumerate())
        # What was garbage before is not this check's: frozen, it is not looked at, which also makes collecting quick.
        gc.freeze()
        try:
            with self.logs.attached(), self._hooks(), self._warnings():
                yield
                # Tasks and coroutines complain when they are collected.
                gc.collect()
        finally:
            gc.unfreeze()
        self._look_for_threads(threads)
        self.troubles += [f"the event loop's exception handler was called: {text}" for text in self.reports.texts]
        self.troubles += [
            f"a log record of level {r.levelname} on {r.name!r}: {r.getMessage()}" for r in self.logs.errors
        ]

    @contextmanager
    def _hooks(self) -> Generator[None]:
        old_unraisable, old_thread = sys.unraisablehook, threading.excepthook

        def unraisable(args: Any) -> None:
            # The text only: to keep the object would bring it back to life.
            self.troubles.append(
                f"an error was ignored, for want of anybody to tell: {args.exc_value!r} in {args.object!r}"
            )

        def thread_failed(args: Any) -> None:
            self.troubles.append(f"a thread ended with {args.exc_value!r}")

        sys.unraisablehook, threading.excepthook = unraisable, thread_failed
        try:
            yield
        finally:
            sys.unraisablehook, threading.excepthook = old_unraisable, old_thread

    @contextmanager
    def _warnings(self) -> Generator[None]:
        show = warnings.showwarning
        with warnings.catch_warnings(record=True) as caught:
            # Before whatever filters there are, which go on to hold for everything else.
            warnings.filterwarnings("always", category=ResourceWarning)
            warnings.filterwarnings("always", message=".*was never awaited", category=RuntimeWarning)
            yield
        for warning in caught:
            if issubclass(warning.category, ResourceWarning) or "was never awaited" in str(warning.message):
                self.troubles.append(f"{warning.category.__name__}: {warning.message}")
            else:
                show(warning.message, warning.category, warning.filename, warning.lineno)

    def _look_for_threads(self, before: set[threading.Thread]) -> None:
        def left() -> list[str]:
            return [t.name for t in threading.enumerate() if t not in before and not is_pooled(t)]

        deadline = time.monotonic() + _GRACE
        while names := left():
            if time.monotonic() > deadline:
                self.troubles.append(f"threads were left running: {', '.join(names)}")
                return
            time.sleep(0.001)
