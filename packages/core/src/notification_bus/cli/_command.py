"""What a subcommand is."""

import argparse
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol, TypeAlias

__all__ = ["Command", "CommandError", "Run", "Subparsers", "ending_in_order", "holding_signals"]

_ENDING: Final[list[int]] = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals by which a process is asked to end, besides that of Ctrl-C."""

Run: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a subcommand with its arguments and returns the exit code."""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # it has no other name


class CommandError(Exception):
    """The command cannot be run as it was called. Says what is wrong and what to do; exit code 2."""


class Command(Protocol):
    """A module with this function is a subcommand."""

    def register(self, commands: Subparsers, /) -> None:
        """Add the parser, with `set_defaults(run=...)`. Imports nothing heavy: it runs for every command."""
        ...


@contextmanager
def ending_in_order() -> Generator[None]:
    """Let a request to end pass through every `finally`, as Ctrl-C does, so that no process is left behind.

    Raises:
        SystemExit: The process was asked to end, or its terminal was closed; with 128 and the signal's number.
    """
    asked: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        # On the way of Ctrl-C, which event loops know: raised in the middle of a task, an exception would come out
        # of it in the middle of a group of others.
        asked.append(number)
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    except KeyboardInterrupt:
        if asked:
            raise SystemExit(128 + asked[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def holding_signals() -> Generator[None]:
    """Let signals wait until the end of what must not stop half way, such as the start of a process."""
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, hold) for number in (int(signal.SIGINT), *_ENDING)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in held:
        signal.raise_signal(number)
