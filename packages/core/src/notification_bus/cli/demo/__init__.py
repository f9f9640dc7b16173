"""`notification-bus demo`: a change made on one replica, and who hears of it."""

import argparse
import json
import logging
from importlib.util import find_spec
from math import isfinite
from time import perf_counter
from typing import Final

from notification_bus.cli._command import CommandError, Subparsers, ending_in_order
from notification_bus.cli._terminal import open_terminal
from notification_bus.cli.demo._stage import set_stage

__all__ = ["register"]

_TIMEOUT: Final = 10.0

_NO_SDK: Final = 'the demo runs an MCP server, with version 2 of the SDK: pip install "notification-bus[mcp]"'


def register(commands: Subparsers) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "demo",
        help="show that a change made on one replica of an MCP server reaches a client of another",
        description="Starts two replicas of a small MCP server, connects the SDK's client to one, changes something on "
        "the other, and shows what the client heard: without the bus and with it. The replicas are processes where "
        "--bus is given or a local valkey-server or redis-server is found, which is then started for the demo; "
        "otherwise they share one process.",
        epilog="Exit code: 0 if every change crossed with the bus, 1 if not, 2 if the demo could not be run.",
    )
    parser.add_argument(
        "--bus",
        metavar="URL",
        help="the bus to use, as in redis://localhost:6379; without a channel in it, one of the demo's own is used",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=_TIMEOUT,
        metavar="SECONDS",
        help="how long the broker, and each notification with the bus, may take (default: %(default)g)",
    )
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not isfinite(seconds) or seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _run(arguments: argparse.Namespace) -> int:
    started = perf_counter()
    if find_spec("mcp") is None:
        raise CommandError(_NO_SDK)
    # What a bus logs about its broker is in the error, where it matters.
    logging.getLogger("notification_bus").addHandler(logging.NullHandler())
    terminal = open_terminal()
    with (
        ending_in_order(),
        terminal.working() as tell,
        set_stage(arguments.bus, arguments.timeout, tell) as stage,
    ):
        # Loaded while the replicas start: the SDK takes its time.
        try:
            from notification_bus.cli.demo._show import show  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            if exc.name is None or exc.name.partition(".")[0] not in {"mcp", "mcp_types", "starlette", "uvicorn"}:
                raise
            raise CommandError(_NO_SDK) from exc
        result = show(stage, arguments.timeout, started, tell)
    from notification_bus.cli.demo._report import as_json, print_report  # noqa: PLC0415  # it knows the SDK

    if arguments.json:
        print(json.dumps(as_json(result), indent=2))  # noqa: T201  # this is a program
    else:
        print_report(result, terminal)
    return 0 if result.crossed else 1
