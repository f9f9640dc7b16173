"""What a client of replica A hears of changes made on replica B: measured, and shown."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, TypeAlias, cast

import anyio
from mcp import Client
from mcp.client.subscriptions import ServerEvent, Subscription
from mcp.server.subscriptions import ResourceUpdated

from notification_bus.cli._command import CommandError, Tell
from notification_bus.cli._terminal import Cell, Terminal
from notification_bus.cli.demo import Setup, open_checked
from notification_bus.cli.demo._board import CHANGES, SENTINEL, Board, Change, build
from notification_bus.mcp import McpSubscriptions
from notification_bus.url import redact_url

__all__ = ["Result", "as_json", "measure", "print_result"]

_PATIENCE: Final = 0.25
"""The least seconds that the client waits for what does not come without the bus."""

_FACTOR: Final = 10
"""The client waits at least this many times longer than the slowest crossing with the bus took."""

_URIS: Final = tuple(change.event.uri for change in (*CHANGES, SENTINEL) if isinstance(change.event, ResourceUpdated))

_Pair: TypeAlias = "tuple[str, str] | tuple[Board, Board]"
"""The URLs of two replicas, or two servers in this process."""

Delay: TypeAlias = "float | None"
"""Seconds from the call of the tool to the notification at the client; `None` if it never came."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """What clients of A and B heard of the changes on B, and that of A heard of A's own change."""

    on_a: dict[Change, Delay]
    on_b: dict[Change, Delay]
    """`None` here means that nothing was published."""
    sentinel: Delay
    """Of a change made on A after the others: `None` means that A's stream was dead."""

    @property
    def arrived(self) -> int:
        """How many changes A heard of."""
        return sum(delay is not None for delay in self.on_a.values())


@dataclass(frozen=True, slots=True)
class Result:
    """What the demo has measured."""

    setup: Setup
    without_bus: Hearing
    with_bus: Hearing
    patience: float
    """Seconds that the client waited, after its own replica's change, for what did not come without the bus."""
    seconds: float
    """How long the whole demo took."""

    @property
    def crossed(self) -> bool:
        """True if every change reached the client with the bus."""
        return self.with_bus.arrived == len(CHANGES)

    @property
    def conclusive(self) -> bool:
        """True if silence without the bus means anything: B did publish, and the stream on A was alive."""
        return self.without_bus.sentinel is not None and None not in self.without_bus.on_b.values()


def measure(setup: Setup, timeout: float, started: float, tell: Tell) -> Result:
    """Measure with the bus and without it.

    Args:
        setup: What has been started.
        timeout: Seconds that each notification with the bus may take.
        started: When the demo began, by `time.perf_counter`.
        tell: Shows what is being done.

    Raises:
        CommandError: A replica does not start, or something fails.
    """
    without: _Pair
    with_bus: _Pair
    if setup.replicas:
        a, b = (replica.urls() for replica in setup.replicas)
        without, with_bus = (a[0], b[0]), (a[1], b[1])
    else:
        without = build(None), build(None)
        over_a, over_b = (McpSubscriptions(open_checked(setup.url)) for _ in "AB")
        with_bus = build(over_a), build(over_b)
    try:
        hearings = anyio.run(_measure_both, without, with_bus, timeout, tell)
    except Exception as exc:
        # The SDK's client lives in task groups, so an error in it arrives wrapped, often more than once.
        cause: BaseException = exc
        while isinstance(cause, BaseExceptionGroup):
            cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
        if isinstance(cause, CommandError):
            raise cause from exc
        raise CommandError(f"the demo broke off: {type(cause).__name__}: {cause}") from exc
    return Result(setup, *hearings, perf_counter() - started)


async def _measure_both(without: _Pair, with_bus: _Pair, timeout: float, tell: Tell) -> tuple[Hearing, Hearing, float]:
    # With the bus first: how long it takes there tells how long to wait for nothing.
    heard_with = await _hear(
        *with_bus, patience=timeout, limit=timeout, tell=lambda text: tell(f"with the bus: {text}")
    )
    slowest = max((delay for delay in heard_with.on_a.values() if delay is not None), default=timeout)
    patience = min(timeout, max(_PATIENCE, _FACTOR * slowest))
    heard_without = await _hear(
        *without, patience=patience, limit=timeout, tell=lambda text: tell(f"without the bus: {text}")
    )
    return heard_without, heard_with, patience


class _Listener:
    """A client, and when each event first came on its listen stream."""

    def __init__(self, client: Client, stream: Subscription, limit: float) -> None:
        self._client = client
        self._stream = stream
        self._limit = limit
        self._times: dict[ServerEvent, float] = {}
        self._arrival = anyio.Event()

    async def listen(self) -> None:
        async for event in self._stream:
            self._times.setdefault(event, perf_counter())
            self._arrival.set()
            self._arrival = anyio.Event()

    async def make(self, change: Change) -> float:
        """Make a change through this client's replica, and return when that began."""
        since = perf_counter()
        await _call(self._client, change.tool, change.arguments, self._limit)
        return since

    async def heard(self, change: Change, since: float, limit: float) -> Delay:
        """Wait at most `limit` seconds for the change's event, and return how long after `since` it came."""
        with anyio.move_on_after(limit):
            while change.event not in self._times:
                await self._arrival.wait()
        return self._times[change.event] - since if change.event in self._times else None


async def _hear(a: str | Board, b: str | Board, *, patience: float, limit: float, tell: Tell) -> Hearing:
    """Listen on A, and change everything on B.

    Args:
        a: A replica.
        b: Another.
        patience: Seconds that A's client waits for B's changes, after A's own change has arrived.
        limit: Seconds that anything else may take.
        tell: Shows what is being done.
    """
    async with AsyncExitStack() as stack:
        listeners: list[_Listener] = []
        clients = [await stack.enter_async_context(Client(server)) for server in (a, b)]
        for client in clients:
            await _call(client, "list_tasks", {}, limit)  # the first call of a tool also asks for its schema
        for client in clients:
            stream = client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=_URIS,
            )
            listeners.append(_Listener(client, await stack.enter_async_context(stream), limit))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for listener in listeners:
            tasks.start_soon(listener.listen)
        on_a, on_b = listeners
        starts: dict[Change, float] = {}
        heard_on_b: dict[Change, Delay] = {}
        tell("calling tools on B, listening on A")
        for change in CHANGES:
            starts[change] = await on_b.make(change)
            heard_on_b[change] = await on_b.heard(change, starts[change], limit)
        sentinel = await on_a.heard(SENTINEL, await on_a.make(SENTINEL), limit)
        tell("waiting for what A has not heard of")
        deadline = perf_counter() + patience
        heard_on_a = {
            change: await on_a.heard(change, starts[change], max(0.0, deadline - perf_counter())) for change in CHANGES
        }
        tasks.cancel_scope.cancel()
    return Hearing(heard_on_a, heard_on_b, sentinel)


async def _call(client: Client, tool: str, arguments: dict[str, Any], limit: float) -> None:
    with anyio.move_on_after(limit):
        result = await client.call_tool(tool, arguments)
        if result.is_error:
            raise CommandError(f"the tool {tool!r} of the demo's own server failed: {result.content}")
        return
    raise CommandError(f"the tool {tool!r} of the demo's own server has not answered within {limit:g} s")


def print_result(result: Result, terminal: Terminal) -> None:
    """Print a table, and what it means."""
    terminal.line("Changes made on replica B, and what a client of replica A heard of them", "strong")
    terminal.table(
        ["changed on B", "notification", "without the bus", "with the bus"],
        [
            [
                Cell(change.what),
                Cell(change.method.removeprefix("notifications/")),
                *(
                    Cell("never came", "bad") if delay is None else Cell(f"{delay * 1000:.0f} ms", "good")
                    for delay in (result.without_bus.on_a[change], result.with_bus.on_a[change])
                ),
            ]
            for change in CHANGES
        ],
    )
    for line in _explanations(result):
        terminal.line(line, "dim")
    terminal.line()
    terminal.line(
        f"With the bus {result.with_bus.arrived} of {len(CHANGES)} changes crossed, "
        f"without it {result.without_bus.arrived} ({result.seconds:.1f} s).",
        "good" if result.crossed else "bad",
    )
    if not result.conclusive:
        terminal.line("What did not come without the bus proves nothing: its stream or replica B was silent.", "bad")
    if result.setup.hint is not None:
        terminal.line(result.setup.hint)


def _explanations(result: Result) -> Iterator[str]:
    setup, without = result.setup, result.without_bus
    processes = "two processes" if setup.replicas else "two servers in this one process"
    yield f"A and B: {processes}, each a small MCP server; the client is the MCP SDK's, with subscriptions/listen."
    alive = (
        f" The stream was acknowledged and alive: a change made on A itself, later, arrived after "
        f"{without.sentinel * 1000:.0f} ms, and {result.patience * 1000:.0f} ms more brought nothing else."
        if without.sentinel is not None and without.arrived < len(CHANGES)
        else ""
    )
    yield f"without: the SDK's own in-memory subscriptions.{alive}"
    broker = f" ({setup.broker})" if setup.broker else ""
    yield f"with: McpSubscriptions over {redact_url(setup.url)}{broker}."


def as_json(result: Result) -> dict[str, Any]:
    """Return everything that was measured, in milliseconds; what never came is `null`."""
    hearings = {"without_bus": result.without_bus, "with_bus": result.with_bus}
    return {
        "crossed": result.crossed,
        "conclusive": result.conclusive,
        "replicas": "processes" if result.setup.replicas else "in-process",
        "bus": redact_url(result.setup.url),
        "broker": result.setup.broker,
        "changes": [
            {
                "change": change.what,
                "tool": change.tool,
                "method": change.method,
                "uri": change.event.uri if isinstance(change.event, ResourceUpdated) else None,
                **{
                    name: {"on_a": _milliseconds(hearing.on_a[change]), "on_b": _milliseconds(hearing.on_b[change])}
                    for name, hearing in hearings.items()
                },
            }
            for change in CHANGES
        ],
        "own_change_on_a": {name: _milliseconds(hearing.sentinel) for name, hearing in hearings.items()},
        "waited": _milliseconds(result.patience),
        "seconds": round(result.seconds, 3),
        "hint": result.setup.hint,
    }


def _milliseconds(delay: Delay) -> float | None:
    return None if delay is None else round(delay * 1000, 3)
