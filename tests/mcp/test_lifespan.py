"""Starting and stopping: who enters the lifespan, how often, in which order, and in which event loop."""

import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any, Self

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.subscriptions import ListenHandler
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from notification_bus import BusClosedError, BusNotification, MemoryBus
from notification_bus.mcp import McpSubscriptions
from tests.brokers import Server
from tests.mcp.board import BUS, STDIO, TASK, build
from tests.mcp.replicas import LIMIT, ROOT, expect


async def test_interleaved_connections_share_one_start() -> None:
    """In memory and over stdio the lifespan is entered for each connection; the first to come is the first to go."""
    subscriptions = McpSubscriptions(MemoryBus())
    await interleave(build("board", subscriptions))
    assert subscriptions.stats().taps == 0
    with pytest.raises(BusClosedError, match="has ended"):
        await subscriptions.notify_tools_changed()


async def interleave(mcp: MCPServer[dict[str, object]]) -> None:
    """One connection comes, another comes, the first goes, and the second must still hear."""
    first_is_in, second_is_in, first_is_out = anyio.Event(), anyio.Event(), anyio.Event()

    async def first() -> None:
        async with Client(mcp):
            first_is_in.set()
            await second_is_in.wait()
        first_is_out.set()

    async def second() -> None:
        await first_is_in.wait()
        async with Client(mcp) as client, client.listen(tools_list_changed=True) as stream:
            second_is_in.set()
            await first_is_out.wait()
            await client.call_tool("change", {"kind": "tools"})
            await expect(stream, ToolsListChanged())

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            tasks.start_soon(second)


async def test_a_stopped_server_starts_again() -> None:
    """Full stop, new start, same objects."""
    mcp = build("board", McpSubscriptions(MemoryBus()))
    for _ in range(3):
        async with Client(mcp) as client, client.listen(tools_list_changed=True) as stream:
            await client.call_tool("change", {"kind": "tools"})
            await expect(stream, ToolsListChanged())


def test_it_starts_again_on_another_event_loop() -> None:
    """Tests of users do this all the time: one module-level server, one loop for each test."""
    mcp = build("board", McpSubscriptions(MemoryBus("board")))

    async def main() -> None:
        async with Client(mcp) as client, client.listen(tools_list_changed=True) as stream:
            await client.call_tool("change", {"kind": "tools"})
            await expect(stream, ToolsListChanged())

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(main, backend=backend)


def test_a_loop_that_was_given_up_does_not_hold_the_next_one_back() -> None:
    """A test run that was interrupted, or a server killed in its lifespan."""
    subscriptions = McpSubscriptions(MemoryBus())
    entered: list[Any] = []

    async def give_up() -> None:
        lifespan = subscriptions.lifespan()
        await lifespan.__aenter__()
        entered.append(lifespan)

    async def main() -> None:
        async with subscriptions.lifespan():
            await subscriptions.notify_tools_changed()

    anyio.run(give_up)
    anyio.run(main)
    entered.clear()
    gc.collect()


async def test_a_start_that_is_cancelled_leaves_nothing_open() -> None:
    """An impatient supervisor of servers does that."""
    bus = SlowBus()
    subscriptions = McpSubscriptions(bus)
    with anyio.move_on_after(0.01) as scope:
        async with subscriptions.lifespan():
            raise AssertionError("not reached")
    assert scope.cancelled_caught
    assert bus.left
    with pytest.raises(BusClosedError, match="has ended"):
        await subscriptions.notify_tools_changed()


async def test_an_end_while_cancelled_still_closes_the_bus() -> None:
    """The usual way for a server to stop."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus)
    with anyio.CancelScope() as scope:
        async with subscriptions.lifespan():
            scope.cancel()
            await anyio.sleep_forever()
    assert bus.stats().since is None


async def test_a_bus_that_cannot_be_opened_fails_the_start() -> None:
    """With its own error: the server must not come up with a bus that can never work."""
    subscriptions = McpSubscriptions(BrokenBus())
    for _ in range(2):
        with pytest.raises(LookupError, match="no such loop"):
            async with subscriptions.lifespan():
                raise AssertionError("not reached")


async def test_a_bus_that_its_user_has_entered_too_stays_open() -> None:
    """Entering is counted."""
    async with MemoryBus() as bus:
        async with McpSubscriptions(bus).lifespan():
            pass
        await bus.publish(BusNotification.tools_list_changed())


async def test_the_bus_is_entered_and_left_by_one_task() -> None:
    """A bus with a task group inside cannot bear anything else, and connections come and go in any order."""
    await interleave(build("board", McpSubscriptions(TaskGroupBus())))


class SlowBus(MemoryBus):
    """Takes for ever to open."""

    left = False

    async def __aenter__(self) -> Self:
        try:
            await anyio.sleep_forever()
        finally:
            self.left = True
        return self


class BrokenBus(MemoryBus):
    """Cannot be opened here."""

    async def __aenter__(self) -> Self:
        raise LookupError("no such loop")


class TaskGroupBus:
    """Owns a task group, as a bus of somebody else's may."""

    def __init__(self) -> None:
        self._inner = MemoryBus()
        self._tasks = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._tasks.enter_async_context(anyio.create_task_group())
        await self._tasks.enter_async_context(self._inner)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tasks.aclose()

    async def publish(self, notification: BusNotification) -> None:
        await self._inner.publish(notification)

    def subscribe(self) -> Any:
        return self._inner.subscribe()


# One shape for every framework


async def test_the_lifespan_serves_the_low_level_server() -> None:
    """With the SDK's own listen handler over it."""
    subscriptions = McpSubscriptions(MemoryBus())
    server: LowLevelServer[dict[str, Any]] = LowLevelServer(
        "board", on_subscriptions_listen=ListenHandler(subscriptions), lifespan=subscriptions.lifespan
    )
    async with Client(server) as client, client.listen(resource_subscriptions=[TASK]) as stream:
        await subscriptions.notify_resource_updated(TASK)
        await expect(stream, ResourceUpdated(TASK))


async def test_a_lifespan_of_ones_own_is_composed_in_one_line() -> None:
    """It publishes in both halves, and its result is what tools see."""
    subscriptions = McpSubscriptions(MemoryBus())
    steps: list[str] = []

    @asynccontextmanager
    async def mine(server: MCPServer[dict[str, str]]) -> AsyncGenerator[dict[str, str]]:
        await subscriptions.notify_tools_changed()
        steps.append(f"start of {server.name}")
        yield {"database": "open"}
        await subscriptions.notify_tools_changed()
        steps.append("end")

    mcp = MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.compose(mine))

    @mcp.tool()
    async def look(ctx: Context[dict[str, str]]) -> str:
        return ctx.request_context.lifespan_context["database"]

    _ = look
    async with Client(mcp) as client:
        result = await client.call_tool("look", {})
        assert result.structured_content == {"result": "open"}
    assert steps == ["start of board", "end"]


async def test_the_lifespan_serves_starlette() -> None:
    """A publisher that is no MCP server at all: a web hook, an admin page."""
    subscriptions = McpSubscriptions(MemoryBus("board"))

    async def hook(request: Request) -> PlainTextResponse:
        await subscriptions.notify_resource_updated(TASK)
        return PlainTextResponse("told")

    app = Starlette(routes=[Route("/hook", hook)], lifespan=subscriptions.lifespan)
    board = build("board", McpSubscriptions(MemoryBus("board")))
    async with (
        Client(board) as client,
        client.listen(resource_subscriptions=[TASK]) as stream,
        app.router.lifespan_context(app) as state,
    ):
        assert state == {}
        assert await get(app, "/hook") == 200
        await expect(stream, ResourceUpdated(TASK))


async def test_a_mounted_app_whose_lifespan_nobody_runs_says_so() -> None:
    """Starlette runs the outer app's lifespan only."""
    subscriptions = McpSubscriptions(MemoryBus())

    async def hook(request: Request) -> PlainTextResponse:
        await subscriptions.notify_tools_changed()
        return PlainTextResponse("told")

    inner = Starlette(routes=[Route("/hook", hook)], lifespan=subscriptions.lifespan)
    outer = Starlette()
    outer.mount("/inner", inner)
    async with outer.router.lifespan_context(outer):
        with pytest.raises(BusClosedError, match="mounted"):
            await get(outer, "/inner/hook")


async def test_the_lifespan_serves_fastmcp(anyio_backend_name: str) -> None:
    """Its users publish on our object: it has no `ctx.notify_*`, and serves no listen of its own."""
    if anyio_backend_name != "asyncio":
        pytest.skip("FastMCP runs on asyncio")
    fastmcp: Any = import_module("fastmcp")
    subscriptions = McpSubscriptions(MemoryBus("board"))
    mcp = fastmcp.FastMCP("board", lifespan=subscriptions.lifespan)

    async def change() -> str:
        await subscriptions.notify_tools_changed()
        return "told"

    mcp.tool(change)
    board = build("board", McpSubscriptions(MemoryBus("board")))
    async with Client(board) as client, client.listen(tools_list_changed=True) as stream:
        async with fastmcp.Client(mcp) as other:
            await other.call_tool("change")
        await expect(stream, ToolsListChanged())


async def get(app: Starlette, path: str) -> int:
    """One request, without a server; its status."""
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    await app(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "root_path": "",
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
        },
        receive,
        send,
    )
    return status[0]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_two_servers_over_stdio_hear_each_other(redis_server: Server) -> None:
    """Each is a process of its client's, so nothing but a broker can join them."""
    url = f"{redis_server.url}?channel=test-stdio"
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "tests.mcp.board"], cwd=ROOT, env={BUS: url, STDIO: "1"}
    )
    with anyio.fail_after(2 * LIMIT):
        async with (
            Client(stdio_client(parameters)) as client,
            Client(stdio_client(parameters)) as other,
            client.listen(tools_list_changed=True, resource_subscriptions=[TASK]) as stream,
        ):
            result = await other.call_tool("change", {"kind": "task"})
            assert not result.is_error
            assert await expect(stream, ResourceUpdated(TASK)) == [ResourceUpdated(TASK)]
