"""FastMCP, which serves no `subscriptions/listen` and notifies nobody of what is added to it: with us it does."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

from notification_bus import MemoryBus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities
from tests.mcp.board import TASK, build
from tests.mcp.replicas import LIMIT, ROOT, expect

fastmcp: Any = import_module("fastmcp")


@pytest.fixture
def anyio_backend() -> str:
    """FastMCP runs on asyncio."""
    return "asyncio"


def served(subscriptions: McpSubscriptions) -> Any:
    mcp = fastmcp.FastMCP("board", lifespan=subscriptions.lifespan)

    async def update() -> str:
        await subscriptions.notify_resource_updated(TASK)
        return "told"

    mcp.tool(update)
    return mcp


def low_level(mcp: Any) -> Any:
    return mcp._mcp_server


async def test_without_us_it_serves_no_listen() -> None:
    """The reason for all of this; when it fails, FastMCP has one of its own."""
    mcp = fastmcp.FastMCP("board")
    async with Client(low_level(mcp)) as client:
        with pytest.raises(MCPError, match="Method not found"):
            async with client.listen(tools_list_changed=True):
                pass


async def test_it_serves_listen_and_its_tools_publish_on_our_object() -> None:
    """Discover says so, and is narrowed like any other server's."""
    subscriptions = McpSubscriptions(MemoryBus(), capabilities=Capabilities(prompts_list_changed=False))
    async with Client(low_level(served(subscriptions))) as client:
        said = client.server_capabilities
        assert said is not None
        assert said.tools is not None
        assert said.resources is not None
        assert said.prompts is not None
        assert (said.tools.list_changed, said.resources.subscribe, said.prompts.list_changed) == (True, True, False)
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=[TASK]
        ) as stream:
            assert stream.honored.model_dump(exclude_none=True) == {
                "tools_list_changed": True,
                "resource_subscriptions": [TASK],
            }
            assert not (await client.call_tool("update", {})).is_error
            assert await expect(stream, ResourceUpdated(TASK)) == [ResourceUpdated(TASK)]


async def test_a_replica_with_the_sdks_server_hears_it() -> None:
    """One channel, two frameworks."""
    board = build("board", McpSubscriptions(MemoryBus("board")))
    async with (
        Client(board) as client,
        client.listen(resource_subscriptions=[TASK]) as stream,
        Client(low_level(served(McpSubscriptions(MemoryBus("board"))))) as other,
    ):
        await other.call_tool("update", {})
        await expect(stream, ResourceUpdated(TASK))


async def test_changes_of_its_lists_are_told_where_that_is_asked_for() -> None:
    """By method, by decorator, from a tool, from a worker thread; of the lists that they concern."""
    subscriptions = McpSubscriptions(MemoryBus(), watch=True)
    mcp = served(subscriptions)

    async def grow() -> str:
        mcp.add_tool(fastmcp.tools.Tool.from_function(lambda: "new", name="new"))
        return "grown"

    mcp.tool(grow)
    tools, prompts, resources = ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()
    async with (
        Client(low_level(mcp)) as client,
        client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True) as stream,
    ):
        await client.call_tool("grow", {})
        assert await expect(stream, tools) == [tools]
        mcp.local_provider.remove_tool("new")
        assert await expect(stream, tools) == [tools]
        mcp.disable(names={"update"}, components={"tool"})
        assert await expect(stream, tools) == [tools]
        mcp.prompt(lambda: "?", name="ask")
        assert await expect(stream, prompts) == [prompts]
        mcp.resource("board://tasks", name="tasks")(lambda: "tasks")
        assert await expect(stream, resources) == [resources]
        await anyio.to_thread.run_sync(lambda: mcp.enable(names={"update"}))
        assert len(await expect(stream, tools, prompts, resources)) == 3
        mcp.mount(fastmcp.FastMCP("other"))
        assert len(await expect(stream, tools, prompts, resources)) == 3


async def test_changes_before_the_start_and_without_watch_tell_nobody() -> None:
    """Building a server is no change, and nobody is told what was not asked for."""
    subscriptions = McpSubscriptions(MemoryBus())
    mcp = served(subscriptions)
    async with Client(low_level(mcp)) as client, client.listen(tools_list_changed=True) as stream:
        mcp.disable(names={"update"})
        await anyio.sleep(0.05)
        await subscriptions.notify_tools_changed()
        assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]
        stats = subscriptions.stats()
        assert stats.received == 1


SERVER = """
import fastmcp
from notification_bus import MemoryBus
from notification_bus.mcp import McpSubscriptions

subscriptions = McpSubscriptions(MemoryBus(), watch=True)
mcp = fastmcp.FastMCP("board", lifespan=subscriptions.lifespan)

@mcp.tool
async def close() -> str:
    mcp.disable(names={"close"}, components={"tool"})
    return "closed"

mcp.run(transport="http", port=%d, show_banner=False, log_level="warning")
"""


@contextmanager
def running() -> Generator[tuple[subprocess.Popen[bytes], str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", SERVER % port], cwd=ROOT, env=os.environ) as process:
        try:
            deadline = monotonic() + LIMIT
            with socket.socket() as client:
                while client.connect_ex(("127.0.0.1", port)) != 0:
                    assert process.poll() is None
                    assert monotonic() < deadline
            yield process, f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


async def test_over_http_it_drains_on_the_signal() -> None:
    """FastMCP enters the lifespan before uvicorn takes the signals over."""
    with running() as (process, url):
        async with Client(url) as client, client.listen(tools_list_changed=True) as stream:
            await client.call_tool("close", {})
            await expect(stream, ToolsListChanged())
            before = monotonic()
            process.terminate()
            with anyio.fail_after(LIMIT):
                assert [event async for event in stream] == []
            await anyio.to_thread.run_sync(lambda: process.wait(LIMIT))
            assert monotonic() - before < 3
