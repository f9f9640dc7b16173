"""`notification-bus check`: the contract kit, for any bus and with no code to write."""

import argparse
import json
from typing import Final

from notification_bus.cli._command import CommandError, Subparsers, exit_on_signals, printing
from notification_bus.cli._terminal import Terminal

__all__ = ["register"]

_BACKENDS: Final = ("asyncio", "asyncio+debug", "asyncio+uvloop", "trio")


def register(commands: Subparsers) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "check",
        help="run the contract kit on a bus, and say which promise is broken and how",
        description="Runs every check of the contract on a bus: one that a URL opens (redis://, nats://, "
        "postgresql://, memory://, or the scheme of another distribution), with a proxy in front of the broker that "
        "breaks on request; or one for which package.module:name names a harness, something that makes one, or a "
        "BrokerBus. The checks use channels of their own and disturb nobody on the same broker.",
        epilog="Exit code: 0 if nothing is red, 1 if something is, 2 if the checks could not be run as called. Red is "
        "what failed, a known failure that passes, and with --strict what could not be tested.",
    )
    parser.add_argument(
        "target", metavar="TARGET", nargs="?", help="redis://localhost:6379, for instance, or mypackage.harness:harness"
    )
    parser.add_argument("--list", action="store_true", help="list the checks, and run none")
    parser.add_argument(
        "--only",
        metavar="ID-OR-GROUP",
        action="append",
        help="run this check only, or this group, such as deliver; can be repeated",
    )
    parser.add_argument(
        "--skip",
        metavar="ID=REASON",
        action="append",
        default=[],
        help="do not run this check or group, and report it as untestable with the reason; can be repeated",
    )
    parser.add_argument(
        "--known-failure",
        metavar="ID=REASON",
        action="append",
        default=[],
        help="this check is known to fail: it is red when it passes; can be repeated",
    )
    parser.add_argument("--strict", action="store_true", help="what the harness cannot have tested is red")
    parser.add_argument(
        "--backend",
        metavar="LIBRARY",
        action="append",
        choices=_BACKENDS,
        help=f"run on this only, one of {', '.join(_BACKENDS)}; by default on each library that the bus declares; "
        "can be repeated",
    )
    parser.add_argument(
        "--scale", metavar="N", type=_count, default=1, help="publish N times as much where the amount matters"
    )
    parser.add_argument(
        "--stress", metavar="N", type=_count, help="run the whole suite N times at once, on channels of their own"
    )
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    parser.set_defaults(run=_run)


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000")
    return number


def _run(arguments: argparse.Namespace) -> int:
    # Not for the help: importing the kit takes its time.
    from notification_bus.cli.check._report import as_json, print_list, print_report  # noqa: PLC0415
    from notification_bus.cli.check._run import read_options, run  # noqa: PLC0415

    options = read_options(arguments)
    terminal = Terminal()
    if arguments.list:
        with printing():
            print_list(options, terminal)
        return 0
    if arguments.target is None:
        raise CommandError(
            "what is to be checked? Give a URL, as in `notification-bus check redis://localhost:6379`, or a harness, "
            "as in `notification-bus check mypackage.harness:harness`"
        )
    with exit_on_signals(), terminal.working() as tell:
        report = run(arguments.target, options, tell)
    with printing():
        if arguments.json:
            print(json.dumps(as_json(report), indent=2))  # noqa: T201  # this is a program
        else:
            print_report(report, terminal)
    return 1 if report.red else 0
