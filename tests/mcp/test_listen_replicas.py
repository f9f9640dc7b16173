"""Listen streams that `McpSubscriptions` serves: two replicas as processes, on Redis."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
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
from tests.mcp.replicas import LIMIT, expect, replica, stalled_listener, start_replicas, url_of

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


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def posted(method: str, params: Mapping[str, Any], **envelope: Any) -> dict[str, Any]:
    """What a client that writes its own HTTP sends."""
    return {
        "json": {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": META}, **envelope},
        "headers": {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        },
    }


@asynccontextmanager
async def listening(http: httpx.AsyncClient, url: str, request_id: object) -> AsyncGenerator[AsyncIterator[Any]]:
    """The messages of a stream."""
    request = posted("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=request_id)

    async def messages(response: httpx.Response) -> AsyncIterator[Any]:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))

    async with http.stream("POST", url, **request) as response:
        yield messages(response)


async def test_two_clients_with_one_id_are_two_streams_and_nobody_cancels_them_by_it(replicas: Sequence[str]) -> None:
    """Over HTTP each request is a connection of its own; `notifications/cancelled` may come from anybody."""
    a, b = replicas
    stream_id = {"io.modelcontextprotocol/subscriptionId": 1}
    with anyio.fail_after(LIMIT):
        async with (
            httpx.AsyncClient(timeout=LIMIT) as http,
            listening(http, a, 1) as one,
            listening(http, a, 1) as two,
            Client(b) as other,
        ):
            for stream in (one, two):
                acknowledged = await anext(stream)
                assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
                assert acknowledged["params"]["_meta"] == stream_id
            response = await http.post(a, **posted("notifications/cancelled", {"requestId": 1}))
            assert response.status_code in {202, 400}  # the answer of mcp 2.3, and that of 2.0
            await other.call_tool("change", {"kind": "tools"})
            for stream in (one, two):
                changed = await anext(stream)
                assert changed["method"] == "notifications/tools/list_changed"
                assert changed["params"]["_meta"] == stream_id


async def test_a_server_that_answers_in_json_streams_listens_all_the_same(redis_server: Server) -> None:
    """`json_response=True` is about single answers; a listen has none until it ends."""
    with (
        replica(f"{redis_server.url}?channel=test-mcp-json", install=True, json_response=True) as process,
        anyio.fail_after(LIMIT),
    ):
        url = url_of(process)
        async with httpx.AsyncClient(timeout=LIMIT) as http, listening(http, url, "one") as stream:
            assert (await anext(stream))["method"] == "notifications/subscriptions/acknowledged"
            request = posted("tools/call", {"name": "change", "arguments": {"kind": "tools"}}, id="two")
            request["headers"]["mcp-name"] = "change"
            response = await http.post(url, **request)
            assert response.headers["content-type"] == "application/json"
            assert response.json()["result"]["isError"] is False
            assert (await anext(stream))["method"] == "notifications/tools/list_changed"
