"""Listen streams served by `McpSubscriptions`: what is acknowledged, delivered and refused, in which words."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from notification_bus import GAP, BusNotification, BusNotReadyError, MemoryBus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities, SubscriptionFilter
from tests.mcp.board import LAST, TASK, build
from tests.mcp.replicas import LIMIT, expect

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
STREAM_ID = "io.modelcontextprotocol/subscriptionId"
EVERYTHING: dict[str, Any] = {
    "tools_list_changed": True,
    "prompts_list_changed": True,
    "resources_list_changed": True,
    "resource_subscriptions": [TASK],
}


def served(subscriptions: McpSubscriptions) -> MCPServer[dict[str, object]]:
    return build("board", subscriptions)


class Wire:
    """A client over a pair of streams, as over stdio, that sends and reads plain JSON."""

    def __init__(
        self,
        send: MemoryObjectSendStream[SessionMessage | Exception],
        receive: MemoryObjectReceiveStream[SessionMessage],
    ) -> None:
        self._send = send
        self._receive = receive

    async def request(self, request_id: object, method: str, params: dict[str, Any]) -> None:
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": META}}
        await self._send.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(body)))

    async def listen(self, request_id: object, **asked: Any) -> None:
        await self.request(request_id, "subscriptions/listen", {"notifications": asked})

    async def cancel(self, request_id: object) -> None:
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
        await self._send.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(body)))

    async def read(self) -> dict[str, Any]:
        with anyio.fail_after(LIMIT):
            message = await self._receive.receive()
        return message.message.model_dump(by_alias=True, mode="json", exclude_none=True)


@asynccontextmanager
async def wire(mcp: MCPServer[Any]) -> AsyncGenerator[Wire]:
    server: Any = mcp._lowlevel_server
    to_server, at_server = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    from_server, at_client = anyio.create_memory_object_stream[SessionMessage](100)
    async with at_client, to_server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, at_server, from_server, server.create_initialization_options())
        yield Wire(to_server, at_client)
        tasks.cancel_scope.cancel()


# What is heard


@pytest.mark.parametrize(
    ("arguments", "event"),
    [
        ({"kind": "tools"}, ToolsListChanged()),
        ({"kind": "prompts"}, PromptsListChanged()),
        ({"kind": "resources"}, ResourcesListChanged()),
        ({"kind": "task"}, ResourceUpdated(TASK)),
    ],
)
async def test_a_tool_tells_by_its_context_as_ever(arguments: dict[str, str], event: ServerEvent) -> None:
    """Of each kind once, and nothing else."""
    async with Client(served(McpSubscriptions(MemoryBus()))) as client, client.listen(**EVERYTHING) as stream:
        await client.call_tool("change", arguments)
        assert await expect(stream, event) == [event]
        assert stream.honored.resource_subscriptions == [TASK]


async def test_a_stream_hears_what_is_in_its_filter_only() -> None:
    """Another resource, and another list."""
    subscriptions = McpSubscriptions(MemoryBus())
    async with (
        Client(served(subscriptions)) as client,
        client.listen(prompts_list_changed=True, resource_subscriptions=[LAST]) as stream,
    ):
        await subscriptions.notify_tools_changed()
        await subscriptions.notify_resource_updated(TASK)
        await subscriptions.notify_resource_updated(LAST)
        assert await expect(stream, ResourceUpdated(LAST)) == [ResourceUpdated(LAST)]


@pytest.mark.parametrize("request_id", [0, 7, "7", "listen-ü"], ids=repr)
async def test_the_id_comes_back_as_it_was_sent(request_id: object) -> None:
    """In the acknowledgment, which comes first, in every notification, and in the result: 7 is not "7"."""
    subscriptions = McpSubscriptions(MemoryBus())
    async with wire(served(subscriptions)) as client:
        await client.listen(request_id, toolsListChanged=True, resourceSubscriptions=[TASK])
        acknowledged = await client.read()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"] == {
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": [TASK]},
            "_meta": {STREAM_ID: request_id},
        }
        await subscriptions.notify_resource_updated(TASK)
        updated = await client.read()
        assert updated["params"] == {"uri": TASK, "_meta": {STREAM_ID: request_id}}
        assert await subscriptions.drain() == 0
        result = await client.read()
        assert result["id"] == request_id
        assert result["result"]["_meta"][STREAM_ID] == request_id
        assert result["result"]["resultType"] == "complete"
        assert type(acknowledged["params"]["_meta"][STREAM_ID]) is type(result["id"]) is type(request_id)


async def test_what_no_stream_can_carry_is_counted_and_ends_nothing() -> None:
    """Nor do params that the SDK cannot read: strangers publish, too."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus)
    async with Client(served(subscriptions)) as client, client.listen(**EVERYTHING) as stream:
        await bus.publish(BusNotification("notifications/message", {"level": "info", "data": "hello"}))
        await bus.publish(BusNotification("notifications/tasks", {"taskId": "1"}))
        await bus.publish(BusNotification("tools/call", {"name": "delete_everything"}))
        await bus.publish(BusNotification("notifications/resources/updated", {"uri": 7}))
        await bus.publish(BusNotification("notifications/resources/updated", {"uri": TASK, "_meta": {"a": [1]}}))
        assert await expect(stream, ResourceUpdated(TASK)) == [ResourceUpdated(TASK)]
        await bus.publish(BusNotification("notifications/tools/list_changed", {"_meta": {"progressToken": {}}}))
        await bus.publish(BusNotification("notifications/prompts/list_changed", {"_meta": "text"}))
        await expect(stream, ToolsListChanged(), PromptsListChanged())
        stats = subscriptions.stats()
        assert (stats.ignored, stats.malformed, stats.streams) == (3, 1, 1)


async def test_a_gap_reports_everything_in_the_filter() -> None:
    """Once, and nothing that was not asked for."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus, gap_spread=0.01)
    async with (
        Client(served(subscriptions)) as client,
        client.listen(tools_list_changed=True, resource_subscriptions=[TASK, LAST]) as stream,
    ):
        await bus.publish(GAP)
        seen = await expect(stream, ToolsListChanged(), ResourceUpdated(TASK), ResourceUpdated(LAST))
        assert len(seen) == 3


async def test_sub_resources_are_reported_where_that_is_asked_for() -> None:
    """With the URI that changed."""
    subscriptions = McpSubscriptions(MemoryBus(), sub_resources=True)
    async with (
        Client(served(subscriptions)) as client,
        client.listen(resource_subscriptions=["board://sprint"]) as stream,
    ):
        await subscriptions.notify_resource_updated("board://sprint/tasks/1")
        await expect(stream, ResourceUpdated("board://sprint/tasks/1"))


async def test_is_subscribed_says_what_this_replica_watches() -> None:
    """From the acknowledgment to the end of the stream."""
    subscriptions = McpSubscriptions(MemoryBus())
    async with Client(served(subscriptions)) as client:
        assert not subscriptions.is_subscribed(TASK)
        async with client.listen(resource_subscriptions=[TASK]):
            assert subscriptions.is_subscribed(TASK)
            assert not subscriptions.is_subscribed(LAST)
        with anyio.fail_after(LIMIT):
            while subscriptions.is_subscribed(TASK):
                await anyio.sleep(0.01)


async def test_a_stream_with_a_lifetime_ends_gracefully() -> None:
    """For hosts that bill open requests: the client's loop ends, and it listens again."""
    subscriptions = McpSubscriptions(MemoryBus(), max_lifetime=0.05)
    with anyio.fail_after(LIMIT):
        async with Client(served(subscriptions)) as client, client.listen(tools_list_changed=True) as stream:
            assert [event async for event in stream] == []


# What is accepted


async def test_the_accepted_filter_is_narrowed_to_what_is_advertised() -> None:
    """And discover advertises no more than that."""
    subscriptions = McpSubscriptions(
        MemoryBus(), capabilities=Capabilities(prompts_list_changed=False, resources_subscribe=False)
    )
    async with Client(served(subscriptions)) as client:
        said = client.server_capabilities
        assert said is not None
        assert said.tools is not None
        assert said.prompts is not None
        assert said.resources is not None
        assert (said.tools.list_changed, said.prompts.list_changed) == (True, False)
        assert (said.resources.list_changed, said.resources.subscribe) == (True, False)
        async with client.listen(**EVERYTHING) as stream:
            assert stream.honored.model_dump(exclude_none=True) == {
                "tools_list_changed": True,
                "resources_list_changed": True,
            }
            await subscriptions.notify_prompts_changed()
            await subscriptions.notify_resource_updated(TASK)
            await subscriptions.notify_tools_changed()
            assert await expect(stream, ToolsListChanged()) == [ToolsListChanged()]


async def test_a_stream_of_which_nothing_is_accepted_opens_and_says_so() -> None:
    """It stays open, as the protocol has it; an option ends it at once."""
    nothing = Capabilities(tools_list_changed=False)
    subscriptions = McpSubscriptions(MemoryBus(), capabilities=nothing)
    async with Client(served(subscriptions)) as client, client.listen(tools_list_changed=True) as stream:
        assert stream.honored.model_dump(exclude_none=True) == {}
        with anyio.move_on_after(0.1) as scope:
            await anext(stream)
        assert scope.cancelled_caught
    ending = McpSubscriptions(MemoryBus(), capabilities=nothing, end_empty=True)
    with anyio.fail_after(LIMIT):
        async with Client(served(ending)) as client, client.listen(tools_list_changed=True) as stream:
            assert [event async for event in stream] == []


async def test_unknown_members_are_acknowledged_only_where_the_server_serves_them() -> None:
    """`taskIds` belongs to an extension: to acknowledge it is to promise it."""
    for extensions, acknowledged in ((frozenset[str](), {}), (frozenset({"taskIds"}), {"taskIds": ["1"]})):
        subscriptions = McpSubscriptions(MemoryBus(), capabilities=Capabilities(extensions=extensions))
        async with wire(served(subscriptions)) as client:
            await client.listen(1, taskIds=["1"], colour="red")
            assert (await client.read())["params"]["notifications"] == acknowledged


# Who may watch


async def test_authorize_narrows_and_cannot_widen() -> None:
    """It gets the request's context and what was asked for."""
    asked: list[SubscriptionFilter] = []

    async def authorize(context: Any, requested: SubscriptionFilter) -> SubscriptionFilter:
        assert context.request_id is not None
        asked.append(requested)
        return SubscriptionFilter(prompts_list_changed=True, resource_subscriptions=(LAST, "board://other"))

    subscriptions = McpSubscriptions(MemoryBus(), authorize=authorize)
    async with (
        Client(served(subscriptions)) as client,
        client.listen(tools_list_changed=True, resource_subscriptions=[TASK, LAST]) as stream,
    ):
        assert stream.honored.model_dump(exclude_none=True) == {"resource_subscriptions": [LAST]}
    assert asked == [SubscriptionFilter(tools_list_changed=True, resource_subscriptions=(TASK, LAST))]


@pytest.mark.parametrize("error", [PermissionError(TASK), KeyError(TASK), MCPError(types.INTERNAL_ERROR, TASK)])
async def test_a_refusal_is_uniform_and_names_no_resource(error: Exception) -> None:
    """Whatever went wrong in there."""

    def authorize(context: Any, requested: SubscriptionFilter) -> SubscriptionFilter:
        raise error

    async with Client(served(McpSubscriptions(MemoryBus(), authorize=authorize))) as client:
        with pytest.raises(MCPError) as refused:
            async with client.listen(resource_subscriptions=[TASK]):
                pass
    assert refused.value.error.code == types.INVALID_REQUEST
    assert refused.value.error.message == "this caller may not open this subscription"


# What is refused


async def refusal(client: Wire, **asked: Any) -> dict[str, Any]:
    await client.listen(1, **asked)
    error: dict[str, Any] = (await client.read())["error"]
    return error


@pytest.mark.parametrize(
    "asked",
    [
        {"toolsListChanged": "yes"},
        {"toolsListChanged": 1},
        {"resourceSubscriptions": TASK},
        {"resourceSubscriptions": [7]},
        {"resourceSubscriptions": ["board://" + "x" * 3000]},
        {"resourceSubscriptions": [f"board://{number}" for number in range(1001)]},
    ],
    ids=["word", "number", "no array", "no text", "long", "many"],
)
async def test_a_filter_that_the_client_can_mend_is_an_error_of_its_params(asked: dict[str, Any]) -> None:
    """And the connection goes on."""
    async with wire(served(McpSubscriptions(MemoryBus()))) as client:
        assert (await refusal(client, **asked))["code"] == types.INVALID_PARAMS
        await client.listen(2, toolsListChanged=True)
        assert (await client.read())["method"] == "notifications/subscriptions/acknowledged"


async def test_a_hundred_thousand_uris_are_refused_quickly() -> None:
    """In the time of parsing them, and with an answer of a few words."""
    async with wire(served(McpSubscriptions(MemoryBus()))) as client:
        before = perf_counter()
        error = await refusal(client, resourceSubscriptions=[f"board://{number}" for number in range(100_000)])
        assert perf_counter() - before < 5
    assert error["code"] == types.INVALID_PARAMS
    assert "at most 1000" in error["message"]
    assert len(json.dumps(error)) < 500


async def test_a_stream_too_many_is_refused_and_one_that_ends_makes_room() -> None:
    """It is nothing that the client did wrong."""
    async with Client(served(McpSubscriptions(MemoryBus(), max_streams=1))) as client:
        async with client.listen(tools_list_changed=True):
            with pytest.raises(MCPError, match="at most 1") as refused:
                async with client.listen(tools_list_changed=True):
                    pass
            assert refused.value.error.code == types.INTERNAL_ERROR
        with anyio.fail_after(LIMIT):
            while True:
                try:
                    async with client.listen(tools_list_changed=True):
                        break
                except MCPError:
                    await anyio.sleep(0.01)


async def test_an_id_that_is_in_flight_on_the_same_connection_is_refused() -> None:
    """The older stream could neither be told apart nor cancelled. On another connection it is nobody's business."""
    mcp = served(McpSubscriptions(MemoryBus()))
    async with wire(mcp) as client, wire(mcp) as other:
        for one in (client, other):
            await one.listen(1, toolsListChanged=True)
            assert (await one.read())["method"] == "notifications/subscriptions/acknowledged"
        error = await refusal(client, toolsListChanged=True)
        assert error["code"] == types.INVALID_REQUEST
        assert "another id" in error["message"]
        await client.listen(2, toolsListChanged=True)
        assert (await client.read())["params"]["_meta"] == {STREAM_ID: 2}


async def test_a_cancelled_stream_is_gone_and_its_id_free() -> None:
    """Over stdio a client cancels by id."""
    subscriptions = McpSubscriptions(MemoryBus())
    async with wire(served(subscriptions)) as client:
        for _ in range(2):
            await client.listen(1, resourceSubscriptions=[TASK])
            await client.read()
            assert subscriptions.is_subscribed(TASK)
            await client.cancel(1)
            with anyio.fail_after(LIMIT):
                while subscriptions.is_subscribed(TASK):
                    await anyio.sleep(0.01)


class Unreachable(MemoryBus):
    """A bus whose broker does not answer, and whose error names it."""

    def subscribe(self) -> Any:
        return self._refuse()

    @asynccontextmanager
    async def _refuse(self) -> AsyncGenerator[AsyncIterator[BusNotification]]:
        raise BusNotReadyError("redis://secret-host:6379 does not answer")
        yield


async def test_a_bus_that_is_not_ready_is_no_business_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """A stream acknowledged now could miss the next change; the broker's address is for the log."""
    subscriptions = McpSubscriptions(Unreachable(), ready_timeout=0.05)
    async with Client(served(subscriptions)) as client:
        with pytest.raises(MCPError) as refused:
            async with client.listen(tools_list_changed=True):
                pass
    assert refused.value.error.code == types.INTERNAL_ERROR
    assert "secret-host" not in refused.value.error.message
    assert any("secret-host" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


async def test_a_server_without_the_lifespan_refuses_and_says_why_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`install` without `lifespan=` is the likely mistake."""
    subscriptions = McpSubscriptions(MemoryBus())
    mcp = MCPServer("board", subscriptions=subscriptions)
    subscriptions.install(mcp)
    async with Client(mcp) as client:
        with pytest.raises(MCPError) as refused:
            async with client.listen(tools_list_changed=True):
                pass
    assert refused.value.error.code == types.INTERNAL_ERROR
    assert any("lifespan" in record.getMessage() for record in caplog.records)
