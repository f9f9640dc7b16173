"""The lifespan and `install` put the handlers in place: on which servers, in which order, and what is watched."""

from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import MCPServer

from notification_bus import MemoryBus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities, RegistryOptionError
from tests.mcp.board import LAST, TASK, build
from tests.mcp.replicas import expect


def low_level(subscriptions: McpSubscriptions) -> LowLevelServer[dict[str, Any]]:
    """A server that has tools and nothing else."""

    async def list_tools(
        ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    return LowLevelServer("board", on_list_tools=list_tools, lifespan=subscriptions.lifespan)


async def test_a_low_level_server_is_served_and_says_what_it_has() -> None:
    """What it has no handler for it cannot push."""
    subscriptions = McpSubscriptions(MemoryBus())
    server = low_level(subscriptions)
    async with Client(server) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.model_dump(exclude_none=True) == {"tools": {"list_changed": True}}
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=[TASK]
        ) as stream:
            assert stream.honored.model_dump(exclude_none=True) == {"tools_list_changed": True}
            await subscriptions.notify_resource_updated(TASK)
            await subscriptions.notify_tools_changed()
            assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]


@pytest.mark.parametrize("server", [None, "board", SimpleNamespace(name="board"), MemoryBus()], ids=repr)
def test_what_is_no_server_is_refused_with_the_remedy(server: object) -> None:
    """With the type that it is."""
    with pytest.raises(TypeError, match=rf"takes an MCPServer .* not a [\w.]+\.{type(server).__name__}: "):
        McpSubscriptions(MemoryBus()).install(server)


@pytest.mark.parametrize("subscriptions", [None, False, McpSubscriptions(MemoryBus())], ids=["none", "off", "others"])
def test_an_mcpserver_whose_tools_publish_elsewhere_is_refused(subscriptions: Any) -> None:
    """Its `ctx.notify_*()` would reach nobody, and nothing would say so."""
    mcp = MCPServer("board", subscriptions=subscriptions)
    with pytest.raises(ValueError, match=r"built without these subscriptions.*subscriptions=subscriptions"):
        McpSubscriptions(MemoryBus()).install(mcp)


async def test_a_server_whose_lifespan_is_somebody_elses_is_installed_on() -> None:
    """Before the lifespan is entered, and after."""
    subscriptions = McpSubscriptions(MemoryBus())
    before, after = (MCPServer(name, subscriptions=subscriptions) for name in ("before", "after"))
    subscriptions.install(before)
    async with subscriptions.lifespan():
        subscriptions.install(after)
        for server in (before, after):
            async with Client(server) as client, client.listen(tools_list_changed=True) as stream:
                assert (subscriptions.stats().streams, subscriptions.stats().taps) == (1, 0)
                await subscriptions.notify_tools_changed()
                await expect(stream, ToolsListChanged())


async def test_installing_twice_does_no_harm() -> None:
    """Each change is heard once."""
    subscriptions = McpSubscriptions(MemoryBus(), watch=True, capabilities=Capabilities(prompts_list_changed=False))
    mcp = build("board", subscriptions)
    for _ in range(2):
        subscriptions.install(mcp)
    async with Client(mcp) as client, client.listen(tools_list_changed=True, resources_list_changed=True) as stream:
        mcp.remove_tool("burst")
        await expect(stream, ToolsListChanged())
        await subscriptions.notify_resources_changed()
        assert await expect(stream, ResourcesListChanged()) == [ResourcesListChanged()]
        assert subscriptions.stats().received == 2


async def test_one_object_serves_two_servers() -> None:
    """In one process, on one channel: they hear each other, and each says what it has."""
    subscriptions = McpSubscriptions(MemoryBus())
    one, other = build("one", subscriptions), low_level(subscriptions)
    async with (
        Client(one) as client,
        Client(other) as second,
        second.listen(tools_list_changed=True, resource_subscriptions=[TASK]) as stream,
    ):
        assert stream.honored.resource_subscriptions is None
        await client.call_tool("change", {"kind": "tools"})
        await expect(stream, ToolsListChanged())


def test_an_option_that_is_none_is_refused_at_once() -> None:
    """When the object is built, not when the first client listens."""
    with pytest.raises(RegistryOptionError, match="max_streams is 0"):
        McpSubscriptions(MemoryBus(), max_streams=0)


async def test_the_counts_of_the_streams_are_part_of_the_stats() -> None:
    """There is one list of them, the registry's."""
    subscriptions = McpSubscriptions(MemoryBus())
    mcp = build("board", subscriptions)
    async with Client(mcp) as client, client.listen(resource_subscriptions=[TASK, LAST]):
        stats = subscriptions.stats()
        assert stats.ready
        assert (stats.streams, stats.uris, stats.taps) == (1, 2, 0)


async def test_is_subscribed_asks_the_sdks_streams() -> None:
    """As far as they show what they are about."""
    subscriptions = McpSubscriptions(MemoryBus())
    mcp = build("board", subscriptions, sdk_streams=True)
    async with Client(mcp) as client, client.listen(resource_subscriptions=[TASK]):
        assert subscriptions.is_subscribed(TASK)
        assert not subscriptions.is_subscribed(LAST)
        subscriptions.subscribe(print)
        assert subscriptions.is_subscribed(LAST)


async def test_changes_of_an_mcpservers_own_lists_are_told_where_that_is_asked_for() -> None:
    """By the method and by the decorator, and once for many in a row."""
    subscriptions = McpSubscriptions(MemoryBus(), watch=True)
    mcp = build("board", subscriptions)
    async with (
        Client(mcp) as client,
        client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True) as stream,
    ):
        mcp.add_tool(lambda: "one", name="one")
        assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]
        mcp.remove_tool("one")
        assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]
        mcp.prompt("ask")(lambda: "?")
        assert await expect(stream, PromptsListChanged()) == [PromptsListChanged()]
        mcp.resource("board://{sprint}/tasks")(tasks_of)
        assert await expect(stream, ResourcesListChanged()) == [ResourcesListChanged()]
        await anyio.to_thread.run_sync(mcp.remove_tool, "burst")
        assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]


def tasks_of(sprint: str) -> str:
    return f"tasks of {sprint}"


def test_a_low_level_server_has_no_lists_to_watch() -> None:
    """Which is said, with the remedy."""
    subscriptions = McpSubscriptions(MemoryBus(), watch=True)
    with pytest.raises(TypeError, match="notify_tools_changed"):
        subscriptions.install(low_level(subscriptions))
