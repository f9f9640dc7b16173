"""The command `notification-bus`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final

from notification_bus.cli import check, demo
from notification_bus.cli._command import CommandError

__all__ = ["main"]

_INTERRUPTED: Final = 130
"""The exit code that shells report for a command ended by Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments after the program's name; `None` takes those of the process.

    Returns:
        The exit code: 0 for a good result, 1 for a bad one, 2 if the command could not be run as called, 130 if it was
        interrupted.
    """
    if sys.stdout is None:  # closed by the caller, as in `notification-bus demo >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # open to the end of the process
    parser = argparse.ArgumentParser(
        prog="notification-bus", description="Change notifications that reach every replica of a Python server."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {metadata.version('notification-bus')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check.register(commands)
    demo.register(commands)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except CommandError as exc:
        print(f"notification-bus: {exc}", file=sys.stderr)  # noqa: T201  # this is a program
        return 2
    except KeyboardInterrupt:
        print("notification-bus: interrupted", file=sys.stderr)  # noqa: T201
        return _INTERRUPTED
