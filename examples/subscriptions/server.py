"""A board as an MCP server: its clients hear of a change, whichever replica made it.

    python examples/subscriptions/server.py --port 8001
    python examples/subscriptions/server.py --port 8002

Needs `pip install "notification-bus[mcp]" notification-bus-redis uvicorn`, and a Redis; `--bus` names it.
"""

import argparse
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

from notification_bus import open_bus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities

TASKS = "board://tasks"


def build(bus_url: str, board: Path) -> MCPServer[dict[str, object]]:
    """The server, over the tasks in a file that its replicas share."""
    subscriptions = McpSubscriptions(
        open_bus(bus_url),
        # This server's lists never change, and its clients are told so.
        capabilities=Capabilities(
            tools_list_changed=False, prompts_list_changed=False, resources_list_changed=False, resources_subscribe=True
        ),
    )
    mcp = MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.lifespan, log_level="WARNING")

    @mcp.resource(TASKS)
    def tasks() -> str:
        return board.read_text() if board.exists() else ""

    @mcp.tool()
    async def add_task(title: str, ctx: Context) -> str:
        with board.open("a") as file:
            file.write(f"{title}\n")
        await ctx.notify_resource_updated(TASKS)
        return f"added {title}"

    _ = tasks, add_task
    return mcp


def main() -> None:
    """Serve until the process is told to stop; then the streams end first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--bus", default="redis://localhost?channel=board")
    parser.add_argument("--board", type=Path, default=Path("board.txt"))
    options = parser.parse_args()
    build(options.bus, options.board).run(transport="streamable-http", port=options.port)


if __name__ == "__main__":
    main()
