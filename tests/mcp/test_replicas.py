"""The five failures of the obvious bus (a Redis publish plus a reader task): real processes, client and server."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from notification_bus import BusNotification, open_bus
from notification_bus.mcp import McpSubscriptions
from tests.brokers import Provider, Server, witness
from tests.mcp.board import LAST, TASK, build
from tests.mcp.replicas import LIMIT, expect, stalled_listener, start_replicas

LISTS: Sequence[ServerEvent] = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())
PROMPT = 3.0
"""Seconds within which a tool answers whatever the broker does, on a busy machine too; redis-py's time-out is 5."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The client library of Redis runs on asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def broker(brokers: Provider) -> Iterator[Server]:
    """A server that these tests may harm, and leave running."""
    with brokers.dedicated("redis") as server:
        yield server


@pytest.fixture(scope="module")
def replicas(broker: Server) -> Iterator[Sequence[str]]:
    """Two replicas on that server."""
    with start_replicas(on(broker)) as urls:
        yield urls


def on(server: Server) -> str:
    # Probes are quick here, so that a frozen broker is noticed within the test's time.
    return f"{server.url}?channel=board&probe_interval=1&probe_timeout=1"


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must succeed, and promptly."""
    before = monotonic()
    with anyio.fail_after(LIMIT):
        result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    assert monotonic() - before < PROMPT or tool == "burst"
    return str(getattr(result.content[0], "text", ""))


async def until_ready(*clients: Client) -> None:
    """Wait until the bus of each of these replicas has confirmed."""
    with anyio.fail_after(LIMIT):
        for client in clients:
            while not json.loads(await call(client, "state"))["connected"]:  # another process's
                await anyio.sleep(0.01)


async def test_a_restarted_broker_delivers_again(broker: Server, replicas: Sequence[str]) -> None:
    """MCP.md, failure 1: the reader died unseen, and nothing was delivered ever after."""
    a, b = replicas
    async with Client(a) as client, Client(b) as other:
        await until_ready(client, other)
        async with client.listen(tools_list_changed=True, resource_subscriptions=[TASK]) as stream:
            await call(other, "change", kind="task")
            await expect(stream, ResourceUpdated(TASK))
            for _ in range(2):
                broker.restart()
                # What the outage may have swallowed is announced, the resource that is known included.
                await expect(stream, ToolsListChanged(), ResourceUpdated(TASK))
                await until_ready(client, other)
                await call(other, "change", kind="task")
                await expect(stream, ResourceUpdated(TASK))


async def test_a_tool_succeeds_while_the_broker_is_down_and_its_change_arrives_later(
    broker: Server, replicas: Sequence[str]
) -> None:
    """MCP.md, failure 2: the tool answered isError after its change, so that a model repeats it."""
    a, b = replicas
    uri = "board://changed/while/down"
    async with Client(a) as client, Client(b) as other:
        await until_ready(client, other)
        async with client.listen(resource_subscriptions=[uri]) as stream:
            broker.kill()
            await call(other, "update", uri=uri)
            await call(other, "update", uri=uri)
            broker.restart()
            # As itself, or as part of what A reports after the gap, if it was on its way when the broker died.
            await expect(stream, ResourceUpdated(uri))


async def test_a_tool_does_not_wait_for_a_frozen_broker(broker: Server, replicas: Sequence[str]) -> None:
    """MCP.md, failure 3: the tool call blocked for redis-py's time-out of 5 s."""
    a, b = replicas
    uri = "board://changed/while/frozen"
    async with Client(a) as client, Client(b) as other:
        await until_ready(client, other)
        async with client.listen(resource_subscriptions=[uri]) as stream:
            broker.freeze()
            try:
                await call(other, "update", uri=uri)
            finally:
                broker.thaw()
            await expect(stream, ResourceUpdated(uri))


async def test_a_server_starts_and_answers_while_its_broker_is_down(brokers: Provider) -> None:
    """A stream acknowledged then is told to look again as soon as the broker is there."""
    with brokers.dedicated("redis") as broker, ExitStack() as stack:
        broker.kill()
        a, b = stack.enter_context(start_replicas(on(broker)))
        async with (
            Client(a) as client,
            Client(b) as other,
            client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=[TASK],
            ) as stream,
        ):
            await call(other, "change", kind="tools")
            assert not json.loads(await call(client, "state"))["ready"]
            broker.restart()
            await expect(stream, *LISTS, ResourceUpdated(TASK))
            await until_ready(client, other)
            await call(other, "change", kind="prompts")
            await expect(stream, PromptsListChanged())


async def test_a_burst_ends_no_stream_not_even_a_stalled_one(replicas: Sequence[str]) -> None:
    """MCP.md, failure 4: 5,000 notifications ended every stream at about 1,024."""
    a, b = replicas
    with stalled_listener(a):
        async with Client(a) as client, Client(b) as other:
            await until_ready(client, other)
            async with client.listen(tools_list_changed=True, resource_subscriptions=[LAST]) as stream:
                await call(other, "burst", count=5000)
                await expect(stream, ToolsListChanged(), ResourceUpdated(LAST))
                # Alive, and not merely ended with the last one still in it.
                await call(other, "change", kind="tools")
                await expect(stream, ToolsListChanged())


async def test_what_is_published_right_after_the_acknowledgment_arrives(redis_server: Server) -> None:
    """MCP.md, failure 5: a bus that starts within subscribe() lost it in 20 of 20 times.

    A server that has just started, its first stream, and a stranger whose connection is open already: nothing is
    quicker than that.
    """
    channel = "test-mcp-right-after"
    async with witness("redis", redis_server.url, channel) as stranger:
        for number in range(20):
            uri = f"board://tasks/{number}"
            mcp = build("board", McpSubscriptions(open_bus(f"{redis_server.url}?channel={channel}")))
            async with Client(mcp) as client, client.listen(resource_subscriptions=[uri]) as stream:
                await stranger.publish(BusNotification.resource_updated(uri).encode())
                assert await expect(stream, ResourceUpdated(uri)) == [ResourceUpdated(uri)]


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("tools", ToolsListChanged()),
        ("prompts", PromptsListChanged()),
        ("resources", ResourcesListChanged()),
        ("task", ResourceUpdated(TASK)),
    ],
)
async def test_a_change_on_one_replica_reaches_a_client_of_the_other(
    replicas: Sequence[str], kind: str, event: ServerEvent
) -> None:
    """And nothing else arrives there: the next thing on the stream is what is published next."""
    a, b = replicas
    async with Client(a) as client, Client(b) as other:
        await until_ready(client, other)
        async with client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[TASK, LAST],
        ) as stream:
            await call(other, "change", kind=kind)
            assert await expect(stream, event) == [event]
            await call(other, "update", uri=LAST)
            assert await expect(stream, ResourceUpdated(LAST)) == [ResourceUpdated(LAST)]
