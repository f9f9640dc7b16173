"""The parser of the command line, and what its commands have in common."""

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Final

from notification_bus.cli import check, demo
from notification_bus.cli._command import Command, CommandError, Run

__all__ = ["COMMANDS", "main"]

COMMANDS: Final[Sequence[Command]] = (check, demo)
"""The subcommands: a module or package each, with a `register`. One that is added here is complete."""

INTERRUPTED: Final = 130
"""What shells report for a command that Ctrl-C ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments after the program's name; `None` takes those of the process.

    Returns:
        The exit code: 0 where the command says that all is well, 1 where it says that it is not, 2 where it could not
        be run as it was called, 130 where it was interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="notification-bus", description="Change notifications that reach every replica of a Python server."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {metadata.version('notification-bus')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.register(commands)
    arguments = parser.parse_args(argv)
    run: Run = arguments.run
    try:
        return run(arguments)
    except CommandError as exc:
        print(f"notification-bus: {exc}", file=sys.stderr)  # noqa: T201  # this is a program
        return 2
    except KeyboardInterrupt:
        print("notification-bus: interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
