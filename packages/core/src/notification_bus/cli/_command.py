"""What a subcommand is."""

import argparse
from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["Command", "CommandError", "Run", "Subparsers"]

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
