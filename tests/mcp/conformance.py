"""The server that the official conformance suite asks for, as a process: `python -m tests.mcp.conformance KIND BUS`."""

import socket
import sys
from collections.abc import Callable
from typing import Any, Final

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from notification_bus import open_bus
from notification_bus.mcp import McpSubscriptions
from tests.mcp.board import watch_parent

__all__ = ["KINDS"]

_MISSING_CAPABILITY: Final = -32021
_TRIGGERS: Final = ("test_trigger_tool_change", "test_trigger_prompt_change", "test_missing_capability")
_OTHERS: Final = ("test_logging_tool", "test_streaming_elicitation")
"""Tools that the suite wants to find; what it looks for in them is that nothing is sent."""


def _require_sampling(session: Any) -> None:
    capabilities = session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            _MISSING_CAPABILITY, "Missing required client capability", {"requiredCapabilities": {"sampling": {}}}
        )


def _mcpserver(subscriptions: McpSubscriptions) -> Starlette:
    mcp = MCPServer(
        "conformance", version="1", subscriptions=subscriptions, lifespan=subscriptions.lifespan, log_level="ERROR"
    )

    async def tools(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "told"

    async def prompts(ctx: Context) -> str:
        await ctx.notify_prompts_changed()
        return "told"

    async def missing(ctx: Context) -> str:
        _require_sampling(ctx.session)
        return "had it"

    for name, tool in zip(_TRIGGERS, (tools, prompts, missing), strict=True):
        mcp.add_tool(tool, name=name)
    for name in _OTHERS:
        mcp.add_tool(lambda: "nothing", name=name)
    return mcp.streamable_http_app()


def _low_level(subscriptions: McpSubscriptions) -> Starlette:
    async def list_tools(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in (*_TRIGGERS, *_OTHERS)]
        )

    async def list_prompts(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])

    async def call_tool(
        ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name == _TRIGGERS[0]:
            await subscriptions.notify_tools_changed()
        elif params.name == _TRIGGERS[1]:
            await subscriptions.notify_prompts_changed()
        elif params.name == _TRIGGERS[2]:
            _require_sampling(ctx.session)
        elif params.name not in _OTHERS:
            raise MCPError(types.INVALID_PARAMS, "Unknown tool")
        return types.CallToolResult(content=[types.TextContent(type="text", text="told")])

    server: Server[Any] = Server(
        "conformance",
        version="1",
        on_list_tools=list_tools,
        on_list_prompts=list_prompts,
        on_call_tool=call_tool,
        lifespan=subscriptions.lifespan,
    )
    return server.streamable_http_app()


def _fastmcp(subscriptions: McpSubscriptions) -> Any:
    import fastmcp

    mcp: Any = fastmcp.FastMCP("conformance", lifespan=subscriptions.lifespan)

    async def tools() -> str:
        await subscriptions.notify_tools_changed()
        return "told"

    async def prompts() -> str:
        await subscriptions.notify_prompts_changed()
        return "told"

    async def missing(ctx: fastmcp.Context) -> str:
        request: Any = ctx.request_context
        _require_sampling(request.session)
        return "had it"

    for name, tool in zip(_TRIGGERS, (tools, prompts, missing), strict=True):
        mcp.tool(tool, name=name)
    return mcp.http_app(path="/mcp")


KINDS: Final[dict[str, Callable[[McpSubscriptions], Any]]] = {
    "mcpserver": _mcpserver,
    "low-level": _low_level,
    "fastmcp": _fastmcp,
}


def _main(kind: str, bus_url: str) -> None:
    app = KINDS[kind](McpSubscriptions(open_bus(bus_url)))
    watch_parent()
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)  # noqa: T201  # the parent reads the port
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    _main(*sys.argv[1:])
