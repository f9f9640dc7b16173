"""What the subcommands share: their error, their handling of signals, and printing to a reader that may be gone."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeAlias

__all__ = ["CommandError", "Subparsers", "Tell", "deferred_signals", "exit_on_signals", "printing"]

_EXIT_SIGNALS: Final[list[int]] = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals, besides that of Ctrl-C, that ask a process to end."""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # it has no other name

Tell: TypeAlias = Callable[[str], None]
"""Shows the user what is being done."""


class CommandError(Exception):
    """The command cannot be run as called. Says what is wrong and what to do; exit code 2."""


@contextmanager
def _handling(numbers: list[int], handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def exit_on_signals() -> Generator[None]:
    """Run every `finally` when the process is asked to end, so that no child process is left behind.

    Raises:
        SystemExit: The process received SIGTERM or SIGHUP; the code is 128 and the signal's number.
    """
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        # As Ctrl-C, which event loops handle: an exception raised here would surface in any task, inside a group.
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    try:
        with _handling(_EXIT_SIGNALS, interrupt):
            yield
    except KeyboardInterrupt:
        if received:
            raise SystemExit(128 + received[0]) from None
        raise


@contextmanager
def deferred_signals() -> Generator[None]:
    """Defer signals to the end of the block: one in the middle of `Popen` would leave a process that nobody knows."""
    received: list[int] = []
    with _handling([signal.SIGINT, *_EXIT_SIGNALS], lambda number, _: received.append(number)):
        yield
    for number in received:
        signal.raise_signal(number)


@contextmanager
def printing() -> Generator[None]:
    """Print, and stop quietly when the reader is gone, as in `notification-bus check --list | head -1`.

    Raises:
        CommandError: The output cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except SystemExit:
        pass  # raised by rich, with code 1, when the reader is gone
    except OSError as exc:
        # Python would try to flush the rest at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(exc, BrokenPipeError):
            raise CommandError(f"the results cannot be printed: {exc.strerror or exc}") from exc
