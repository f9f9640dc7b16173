"""The demo's server: a board with tasks, whose tools change what it offers and notify of the change.

Each replica keeps its tasks in memory, where a real one would use a database: the demo is about the notifications.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from notification_bus.mcp import McpSubscriptions

__all__ = ["CHANGES", "SENTINEL", "Board", "Change", "build"]

Board = MCPServer[dict[str, Any]]
Column = Literal["to do", "doing", "done"]

TASKS: Final = ("write the release notes", "water the plants")


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change that a tool makes, and the notification that a client gets of it."""

    what: str
    tool: str
    arguments: dict[str, Any]
    event: ServerEvent
    method: str


CHANGES: Final = (
    Change("a tool was added", "add_tool", {}, ToolsListChanged(), "notifications/tools/list_changed"),
    Change("a prompt was added", "add_prompt", {}, PromptsListChanged(), "notifications/prompts/list_changed"),
    Change(
        "a task was added",
        "add_task",
        {"title": "feed the cat"},
        ResourcesListChanged(),
        "notifications/resources/list_changed",
    ),
    Change(
        "task 1 was moved",
        "move_task",
        {"number": 1, "column": "done"},
        ResourceUpdated("board://tasks/1"),
        "notifications/resources/updated",
    ),
)

SENTINEL: Final = Change(
    "task 2 was moved",
    "move_task",
    {"number": 2, "column": "doing"},
    ResourceUpdated("board://tasks/2"),
    "notifications/resources/updated",
)
"""The change that is made on the listener's own replica: hearing of it proves that the stream is alive."""


def build(subscriptions: McpSubscriptions | None) -> Board:
    """Build the server: over a bus, or for `None` with the SDK's in-memory subscriptions."""
    mcp: Board = (
        MCPServer("board", log_level="WARNING")
        if subscriptions is None
        else MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.lifespan, log_level="WARNING")
    )
    tasks: dict[int, tuple[str, Column]] = {}

    def new_task(title: str) -> int:
        number = len(tasks) + 1
        tasks[number] = (title, "to do")
        mcp.add_resource(
            FunctionResource(
                uri=f"board://tasks/{number}", name=f"task {number}", fn=lambda: "{}: {}".format(*tasks[number])
            )
        )
        return number

    def report() -> str:
        """Return how many tasks are done."""
        return f"{sum(column == 'done' for _, column in tasks.values())} of {len(tasks)} tasks are done"

    def review() -> str:
        """Ask for a review of the board."""
        return "Which task of the board should be done next, and why?"

    @mcp.tool()
    async def add_tool(ctx: Context) -> str:
        """Offer one more tool."""
        mcp.add_tool(report)
        await ctx.notify_tools_changed()
        return "added the tool 'report'"

    @mcp.tool()
    async def add_prompt(ctx: Context) -> str:
        """Offer one more prompt."""
        mcp.add_prompt(Prompt.from_function(review))
        await ctx.notify_prompts_changed()
        return "added the prompt 'review'"

    @mcp.tool()
    async def add_task(title: str, ctx: Context) -> str:
        """Add a task, which is a resource."""
        number = new_task(title)
        await ctx.notify_resources_changed()
        return f"added task {number}"

    @mcp.tool()
    async def move_task(number: int, column: Column, ctx: Context) -> str:
        """Move a task to another column."""
        title, _ = tasks[number]
        tasks[number] = (title, column)
        await ctx.notify_resource_updated(f"board://tasks/{number}")
        return f"moved task {number} to {column!r}"

    @mcp.tool()
    async def list_tasks() -> list[str]:
        """List the tasks and their columns."""
        return [f"{number}: {title} ({column})" for number, (title, column) in tasks.items()]

    _ = add_tool, add_prompt, add_task, move_task, list_tasks
    for title in TASKS:
        new_task(title)
    return mcp
