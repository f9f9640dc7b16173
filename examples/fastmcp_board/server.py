"""The same with FastMCP, which serves no `subscriptions/listen` by itself; its own lists are watched, too.

    python examples/fastmcp_board/server.py

Needs `pip install "notification-bus[mcp]" notification-bus-redis fastmcp`, and a Redis; `BUS` names it.
"""

import os

from fastmcp import FastMCP

from notification_bus import open_bus
from notification_bus.mcp import McpSubscriptions

subscriptions = McpSubscriptions(open_bus(os.environ.get("BUS", "redis://localhost?channel=board")), watch=True)
mcp = FastMCP("board", lifespan=subscriptions.lifespan)

tasks: list[str] = []


@mcp.resource("board://tasks")
def read_tasks() -> str:
    """All tasks, one a line."""
    return "\n".join(tasks)


@mcp.tool
async def add_task(title: str) -> str:
    """FastMCP's context has no `notify_*`: publish on the subscriptions."""
    tasks.append(title)
    await subscriptions.notify_resource_updated("board://tasks")
    return f"added {title}"


@mcp.tool
async def freeze() -> str:
    """Take a tool away. `watch=True` tells the clients of it."""
    mcp.disable(names={"add_task"}, components={"tool"})
    return "frozen"


if __name__ == "__main__":
    mcp.run(transport="http", port=int(os.environ.get("PORT", "8003")))
