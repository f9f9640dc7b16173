"""The demo's result, for people and for machines."""

from typing import Any

from mcp.server.subscriptions import ResourceUpdated

from notification_bus.cli._terminal import Cell, Terminal
from notification_bus.cli.demo._board import CHANGES, Change
from notification_bus.cli.demo._measure import Heard, Hearing
from notification_bus.cli.demo._show import Result

__all__ = ["as_json", "print_report"]


def print_report(result: Result, terminal: Terminal) -> None:
    """A table, and what it means."""
    terminal.line("Changes made on replica B, and what a client of replica A heard of them", "strong")
    terminal.table(
        ["changed on B", "notification", "without the bus", "with the bus"],
        [
            [
                Cell(change.what),
                Cell(change.method.removeprefix("notifications/")),
                _cell(result.without_bus.on_a[change]),
                _cell(result.with_bus.on_a[change]),
            ]
            for change in CHANGES
        ],
    )
    for line in _explain(result):
        terminal.line(line, "dim")
    terminal.line()
    count = len(CHANGES)
    arrived, without = (_arrived(hearing) for hearing in (result.with_bus, result.without_bus))
    terminal.line(
        f"With the bus {arrived} of {count} changes crossed, without it {without} ({result.seconds:.1f} s).",
        "good" if result.crossed else "bad",
    )
    if not result.conclusive:
        terminal.line("What did not come without the bus proves nothing: its stream or replica B was silent.", "bad")
    if result.hint is not None:
        terminal.line(result.hint)


def _explain(result: Result) -> list[str]:
    processes = "two processes" if result.replicas == "processes" else "two servers in this one process"
    broker = f" ({result.broker})" if result.broker else ""
    waited = f"{result.patience * 1000:.0f} ms"
    alive = (
        f"The stream was acknowledged and alive: a change made on A itself, later, arrived after "
        f"{_milliseconds(result.without_bus.sentinel):.0f} ms, and {waited} more brought nothing else."
        if result.without_bus.sentinel is not None and _arrived(result.without_bus) < len(CHANGES)
        else ""
    )
    return [
        f"A and B: {processes}, each a small MCP server; the client is the MCP SDK's, with subscriptions/listen.",
        f"without: the SDK's own in-memory subscriptions. {alive}".rstrip(),
        f"with: McpSubscriptions over {result.bus}{broker}.",
    ]


def _cell(heard: Heard) -> Cell:
    return Cell("never came", "bad") if heard is None else Cell(f"{_milliseconds(heard):.0f} ms", "good")


def _milliseconds(heard: float) -> float:
    return heard * 1000


def _arrived(hearing: Hearing) -> int:
    return sum(heard is not None for heard in hearing.on_a.values())


def as_json(result: Result) -> dict[str, Any]:
    """Everything that was measured, in milliseconds; `null` is what never came."""
    return {
        "crossed": result.crossed,
        "conclusive": result.conclusive,
        "replicas": result.replicas,
        "bus": result.bus,
        "broker": result.broker,
        "changes": [
            {
                "change": change.what,
                "tool": change.tool,
                "method": change.method,
                "uri": change.event.uri if isinstance(change.event, ResourceUpdated) else None,
                "without_bus": _heard(result.without_bus, change),
                "with_bus": _heard(result.with_bus, change),
            }
            for change in CHANGES
        ],
        "own_change_on_a": {
            "without_bus": _rounded(result.without_bus.sentinel),
            "with_bus": _rounded(result.with_bus.sentinel),
        },
        "waited": _rounded(result.patience),
        "seconds": round(result.seconds, 3),
        "hint": result.hint,
    }


def _heard(hearing: Hearing, change: Change) -> dict[str, float | None]:
    return {"on_a": _rounded(hearing.on_a[change]), "on_b": _rounded(hearing.on_b[change])}


def _rounded(heard: Heard) -> float | None:
    return None if heard is None else round(_milliseconds(heard), 3)
