"""Listen streams that `McpSubscriptions.install` serves: two replicas as processes, on Redis."""

from collections.abc import Iterator, Mapping, Sequence

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

from tests.brokers import Server
from tests.mcp.board import LAST, TASK
from tests.mcp.replicas import LIMIT, expect, stalled_listener, start_replicas

EVENTS: Mapping[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
    "task": ResourceUpdated(TASK),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The client library of Redis runs on asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def replicas(redis_server: Server) -> Iterator[Sequence[str]]:
    with start_replicas(f"{redis_server.url}?channel=test-mcp-install", install=True) as urls:
        yield urls


@pytest.mark.parametrize("kind", EVENTS)
async def test_a_change_on_one_replica_reaches_a_client_of_the_other(replicas: Sequence[str], kind: str) -> None:
    """And nothing else arrives there: the next thing on the stream is what is published next."""
    event = EVENTS[kind]
    a, b = replicas
    async with (
        Client(a) as client,
        Client(b) as other,
        client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[TASK, LAST],
        ) as stream,
    ):
        assert not (await other.call_tool("change", {"kind": kind})).is_error
        assert await expect(stream, event) == [event]
        await other.call_tool("update", {"uri": LAST})
        assert await expect(stream, ResourceUpdated(LAST)) == [ResourceUpdated(LAST)]


async def test_a_burst_ends_no_stream_and_the_last_change_is_seen(replicas: Sequence[str]) -> None:
    """5,000 notifications, one client that reads nothing and one that does."""
    a, b = replicas
    with stalled_listener(a) as stalled:
        async with (
            Client(a) as client,
            Client(b) as other,
            client.listen(tools_list_changed=True, resource_subscriptions=[LAST]) as stream,
        ):
            with anyio.fail_after(2 * LIMIT):
                await other.call_tool("burst", {"count": 5000})
            seen = await expect(stream, ToolsListChanged(), ResourceUpdated(LAST))
            print(f"a burst of 5000 was heard as {len(seen)}")  # noqa: T201
            await other.call_tool("change", {"kind": "tools"})
            await expect(stream, ToolsListChanged())
        # The other stream is open still: it has the last change, and no result.
        stalled.settimeout(0.5)
        heard = b""
        try:
            while piece := stalled.recv(65536):
                heard += piece
        except TimeoutError:
            pass
        assert b"notifications/tools/list_changed" in heard
        assert b'"result"' not in heard
