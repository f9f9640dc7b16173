"""The lifespan puts the handlers in place in time: on each server, over each transport, for both eras of clients.

Over HTTP the lifespan is entered once a process; over stdio, SSE and in memory once a connection, after the SDK has
computed its answer to `initialize`.
"""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

import anyio
import mcp_types as types
import pytest
import uvicorn
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ToolsListChanged
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from starlette.applications import Starlette

from notification_bus import BusNotification, MemoryBus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities
from tests.mcp.board import TASK, build, watch_parent
from tests.mcp.replicas import LIMIT, ROOT, expect

TOOLS = "notifications/tools/list_changed"
NO_PROMPTS = Capabilities(prompts_list_changed=False)

Made = tuple[Any, McpSubscriptions]


@pytest.fixture
def anyio_backend() -> str:
    """FastMCP and the servers of HTTP run on asyncio."""
    return "asyncio"


def mcpserver(**options: Any) -> Made:
    subscriptions = McpSubscriptions(MemoryBus(), **options)
    mcp = MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.lifespan, log_level="WARNING")
    mcp.add_tool(subscriptions.notify_tools_changed, name="change")
    return mcp, subscriptions


def low_level(**options: Any) -> Made:
    subscriptions = McpSubscriptions(MemoryBus(), **options)

    async def tools(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="change", input_schema={"type": "object"})])

    async def prompts(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])

    async def call(ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        await subscriptions.notify_tools_changed()
        return types.CallToolResult(content=[])

    server: Server[Any] = Server(
        "board",
        on_list_tools=tools,
        on_list_prompts=prompts,
        on_call_tool=call,
        lifespan=subscriptions.lifespan,
    )
    return server, subscriptions


def fastmcp(**options: Any) -> Made:
    subscriptions = McpSubscriptions(MemoryBus(), **options)
    mcp = import_module("fastmcp").FastMCP("board", lifespan=subscriptions.lifespan)

    async def change() -> None:
        await subscriptions.notify_tools_changed()

    mcp.tool(change)
    return mcp, subscriptions


KINDS: dict[str, Callable[..., Made]] = {"mcpserver": mcpserver, "low-level": low_level, "fastmcp": fastmcp}


def _main(kind: str, transport: str, port: int) -> None:
    server, _ = KINDS[kind](capabilities=NO_PROMPTS, legacy_clients=True)
    if transport != "stdio":
        watch_parent()
    if kind == "fastmcp":
        options = {} if transport == "stdio" else {"port": port, "log_level": "warning"}
        server.run(transport=transport, show_banner=False, **options)
    elif transport == "stdio" and kind == "low-level":
        anyio.run(_over_stdio, server)
    elif transport == "stdio":
        server.run()
    else:
        app = server.sse_app() if transport == "sse" else server.streamable_http_app()
        uvicorn.run(app, port=port, log_level="warning")


async def _over_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(NotificationOptions(prompts_changed=True)))


def in_memory(server: Any) -> Any:
    """What the SDK's client connects to: it knows nothing of FastMCP."""
    return getattr(server, "_mcp_server", server)


@contextmanager
def reached(kind: str, transport: str) -> Generator[Any]:
    """What a client connects to: a server in memory, streams, or the URL of a process."""
    if transport == "memory":
        yield in_memory(KINDS[kind](capabilities=NO_PROMPTS, legacy_clients=True)[0])
        return
    arguments = ["-m", "tests.mcp.test_servers", kind, transport]
    if transport == "stdio":
        yield stdio_client(
            StdioServerParameters(command=sys.executable, args=[*arguments, "0"], cwd=ROOT, env=dict(os.environ))
        )
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, *arguments, str(port)], cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            deadline = monotonic() + LIMIT
            with socket.socket() as client:
                while client.connect_ex(("127.0.0.1", port)) != 0:
                    assert process.poll() is None
                    assert monotonic() < deadline
            url = f"http://127.0.0.1:{port}"
            yield sse_client(f"{url}/sse") if transport == "sse" else f"{url}/mcp"
        finally:
            process.kill()


async def check_what_is_promised(client: Client) -> None:
    said = client.server_capabilities
    assert said is not None
    assert said.tools is not None
    assert said.prompts is not None
    assert (said.tools.list_changed, said.prompts.list_changed) == (True, False)


@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_request_of_a_client_is_served_by_us(kind: str, transport: str) -> None:
    """`server/discover` is answered with what the option leaves, and a listen is acknowledged accordingly."""
    with reached(kind, transport) as server:
        async with Client(server) as client:
            await check_what_is_promised(client)
            async with client.listen(tools_list_changed=True, prompts_list_changed=True) as stream:
                assert stream.honored.model_dump(exclude_none=True) == {"tools_list_changed": True}
                await client.call_tool("change", {})
                assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]


# The SDK serves its low-level server over the SSE of before only by code of one's own.
@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        *((kind, transport) for kind in KINDS for transport in ("memory", "stdio")),
        ("mcpserver", "sse"),
        ("fastmcp", "sse"),
    ],
)
async def test_the_first_request_of_an_earlier_client_is_served_by_us(kind: str, transport: str) -> None:
    """Although the SDK has computed its answer to `initialize` before the lifespan is entered."""
    heard = anyio.Event()

    async def inbox(message: Any) -> None:
        if getattr(message, "method", None) == TOOLS:
            heard.set()

    with reached(kind, transport) as server:
        async with Client(server, mode="legacy", message_handler=inbox) as client:
            await check_what_is_promised(client)
            await client.call_tool("change", {})
            with anyio.fail_after(LIMIT):
                await heard.wait()


@pytest.mark.parametrize("again", [False, True], ids=["first", "later"])
async def test_earlier_clients_are_promised_no_more_than_the_option_allows_without_the_bridge_too(again: bool) -> None:
    """FastMCP promises its lists to them by itself."""
    server, _ = fastmcp(capabilities=NO_PROMPTS)
    if again:
        async with Client(in_memory(server)):
            pass
    async with Client(in_memory(server), mode="legacy") as client:
        await check_what_is_promised(client)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_publish_is_one_delivery_by_one_subscription(kind: str) -> None:
    """The registry is the only reader of the bus, whatever listens: a stream, and a listener of somebody else's."""
    server, subscriptions = KINDS[kind]()
    bus = subscriptions.bus
    assert isinstance(bus, MemoryBus)
    heard = anyio.Event()
    async with Client(in_memory(server)) as client, client.listen(tools_list_changed=True) as stream:
        subscriptions.subscribe(lambda _: heard.set())
        await client.call_tool("change", {})
        await expect(stream, ToolsListChanged())
        with anyio.fail_after(LIMIT):
            await heard.wait()
        assert (bus.stats().subscriptions, bus.stats().published, bus.stats().delivered) == (1, 1, 1)
        assert (subscriptions.stats().received, subscriptions.stats().delivered) == (1, 2)


async def test_what_is_no_server_gets_the_lifespan_and_nothing_else() -> None:
    """A Starlette app passes itself as well."""
    subscriptions = McpSubscriptions(MemoryBus())
    for app in (Starlette(), None, "board"):
        async with subscriptions.lifespan(app):
            await subscriptions.notify_tools_changed()


@pytest.mark.parametrize("publishing", [None, False], ids=["none", "off"])
async def test_an_mcpserver_with_the_lifespan_alone_does_not_start(publishing: Any) -> None:
    """What its tools publish by `ctx.notify_*()` would reach nobody, and nothing would say so."""
    subscriptions = McpSubscriptions(MemoryBus())
    mcp = MCPServer("board", subscriptions=publishing, lifespan=subscriptions.lifespan)
    with pytest.raises(ValueError, match=r"built without these subscriptions.*subscriptions=subscriptions"):
        async with subscriptions.lifespan(mcp):
            pass


async def test_a_lifespan_of_ones_own_serves_as_well() -> None:
    """By `compose`, and where it enters ours itself."""
    subscriptions = McpSubscriptions(MemoryBus())

    @asynccontextmanager
    async def mine(server: Any) -> AsyncGenerator[dict[str, Any]]:
        yield {}

    @asynccontextmanager
    async def entering(server: Any) -> AsyncGenerator[dict[str, Any]]:
        async with subscriptions.lifespan(server) as state:
            yield state

    for lifespan in (subscriptions.compose(mine), entering):
        mcp = MCPServer("board", subscriptions=subscriptions, lifespan=lifespan)
        async with Client(mcp) as client, client.listen(tools_list_changed=True):
            assert (subscriptions.stats().streams, subscriptions.stats().taps) == (1, 0)


async def test_a_listen_handler_that_a_low_level_server_was_built_with_stays_until_install() -> None:
    """Only its user can have put it there; `install` is the word of the same user."""
    subscriptions = McpSubscriptions(MemoryBus())
    for install in (False, True):
        server: Server[dict[str, Any]] = Server(
            "board", on_subscriptions_listen=ListenHandler(subscriptions), lifespan=subscriptions.lifespan
        )
        if install:
            subscriptions.install(server)
        async with Client(server) as client, client.listen(tools_list_changed=True):
            assert (subscriptions.stats().streams, subscriptions.stats().taps) == ((1, 0) if install else (0, 1))


async def test_a_gap_is_told_to_streams_and_listeners_alike() -> None:
    """By the one who reads the bus."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus, gap_spread=0)
    heard: set[Any] = set()
    all_heard = anyio.Event()

    def listener(event: Any) -> None:
        heard.add(event)
        if len(heard) == 3:
            all_heard.set()

    async with (
        Client(build("board", subscriptions)) as client,
        client.listen(tools_list_changed=True, resource_subscriptions=[TASK]) as stream,
    ):
        subscriptions.subscribe(listener)
        await bus.publish(BusNotification("notifications/bus/gap"))
        await expect(stream, ToolsListChanged())
        with anyio.fail_after(LIMIT):
            await all_heard.wait()
        assert subscriptions.stats().gaps == 1


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
