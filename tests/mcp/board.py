"""The server of the tests, and a replica of it as a process: `python -m tests.mcp.board`, told by its environment."""

import json
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette

from notification_bus import OpenableBus, open_bus
from notification_bus.mcp import McpSubscriptions

__all__ = [
    "BUS",
    "INSTALL",
    "JSON",
    "LAST",
    "LEGACY",
    "STARTED",
    "STDIO",
    "TASK",
    "Kind",
    "app",
    "build",
    "watch_parent",
]

BUS: Final = "NOTIFICATION_BUS_TEST_BOARD"
"""The environment variable with the bus's URL."""

STDIO: Final = "NOTIFICATION_BUS_TEST_STDIO"
"""Set where the board is to be served over standard input and output."""

INSTALL: Final = "NOTIFICATION_BUS_TEST_INSTALL"
"""Set where the board's streams are to be served by `McpSubscriptions`, not by the SDK; then the server that is run
waits for open streams as long as it does by default."""

JSON: Final = "NOTIFICATION_BUS_TEST_JSON"
"""Set where requests are to be answered in JSON rather than as streams."""

LEGACY: Final = "NOTIFICATION_BUS_TEST_LEGACY"
"""Set where clients of the earlier revisions are to be served, too."""

STARTED: Final = "NOTIFICATION_BUS_TEST_STARTED"
"""A folder, in which each process that a server starts puts a file once it serves."""

TASK: Final = "board://tasks/1"
LAST: Final = "board://last"

Kind = Literal["tools", "prompts", "resources", "task"]


def build(name: str, subscriptions: McpSubscriptions, *, sdk_streams: bool = False) -> MCPServer[dict[str, object]]:
    """A server whose tools do nothing but tell of changes; its streams are ours, or the SDK's over our seam."""

    def lifespan(server: object) -> AbstractAsyncContextManager[dict[str, object]]:
        return subscriptions.lifespan(None if sdk_streams else server)

    mcp = MCPServer(name, subscriptions=subscriptions, lifespan=lifespan, log_level="WARNING")

    @mcp.tool()
    async def change(kind: Kind, ctx: Context) -> str:
        match kind:
            case "tools":
                await ctx.notify_tools_changed()
            case "prompts":
                await ctx.notify_prompts_changed()
            case "resources":
                await ctx.notify_resources_changed()
            case "task":
                await ctx.notify_resource_updated(TASK)
        return name

    @mcp.tool()
    async def update(uri: str, ctx: Context) -> str:
        await ctx.notify_resource_updated(uri)
        return name

    @mcp.tool()
    async def burst(count: int, ctx: Context) -> str:
        for _ in range(count):
            await ctx.notify_tools_changed()
        await ctx.notify_resource_updated(LAST)
        return name

    @mcp.tool()
    async def state() -> str:
        bus, ours = subscriptions.bus, subscriptions.stats()
        assert isinstance(bus, OpenableBus)
        theirs = bus.stats()
        return json.dumps(
            {
                "ready": ours.ready,
                "streams": ours.streams,
                "delivered": ours.delivered,
                "gaps": ours.gaps,
                "connected": theirs.connected,
                "reconnects": theirs.reconnects,
            }
        )

    _ = change, update, burst, state
    return mcp


def watch_parent() -> None:
    """End with the process that started this one, whose end of the standard input closes then."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _from_environment() -> MCPServer[dict[str, object]]:
    subscriptions = McpSubscriptions(open_bus(os.environ[BUS]), ready_timeout=1.0, legacy_clients=LEGACY in os.environ)
    return build("board", subscriptions, sdk_streams=INSTALL not in os.environ)


def app() -> Starlette:
    """For servers that are told where to find an application."""
    application = _from_environment().streamable_http_app()
    lifespan = application.router.lifespan_context

    @asynccontextmanager
    async def announced(started: Starlette) -> AsyncGenerator[Any]:
        async with lifespan(started) as state:
            _announce()
            yield state

    application.router.lifespan_context = announced
    return application


def _announce() -> None:
    if STARTED in os.environ:
        Path(os.environ[STARTED], str(os.getpid())).touch()


def _main() -> None:
    mcp = _from_environment()
    if STDIO in os.environ:
        mcp.run()
        return
    watch_parent()
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)  # noqa: T201  # the parent reads the port
    config = uvicorn.Config(
        mcp.streamable_http_app(json_response=JSON in os.environ),
        log_level="warning",
        timeout_graceful_shutdown=None if INSTALL in os.environ else 1,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    _main()
