"""Clients of the revisions before 2026-07-28 on a server with `McpSubscriptions(..., legacy_clients=True)`."""

# pyright: reportDeprecated=false

import gc
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.subscriptions import ToolsListChanged
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from notification_bus import BusNotification, MemoryBus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities, SubscriptionFilter
from tests.brokers import Server
from tests.core.subscriptions._support import OpenableScriptedBus
from tests.mcp.board import BUS, INSTALL, LEGACY, STDIO, TASK, build
from tests.mcp.official import Suite
from tests.mcp.replicas import LIMIT, ROOT, expect, replica, start_replicas, url_of

# The SDK's client says so of its own methods for these revisions.
pytestmark = pytest.mark.filterwarnings("ignore:.* removed as of 2026-07-28")

TOOLS, PROMPTS, RESOURCES = (f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
OTHER = "board://tasks/2"


@pytest.fixture
def anyio_backend() -> str:
    """Uvicorn runs on asyncio, and a client is a client."""
    return "asyncio"


class Inbox:
    """What a client is told, in one word each: the URI of an update, the method of anything else."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._news = anyio.Event()

    async def __call__(self, message: object) -> None:
        if isinstance(message, Exception):
            raise message
        told: Any = message
        assert "_meta" not in told.model_dump(by_alias=True, exclude_none=True).get("params", {})
        self.seen.append(told.params.uri if isinstance(message, types.ResourceUpdatedNotification) else told.method)
        self._news.set()

    async def until(self, *expected: str) -> list[str]:
        """Read until all of these have arrived; all that arrived, which is then forgotten."""
        with anyio.move_on_after(LIMIT):
            while not set(expected) <= set(self.seen):
                self._news = anyio.Event()
                await self._news.wait()
        assert set(expected) <= set(self.seen), f"waited {LIMIT:g} s in vain"
        seen, self.seen = self.seen, []
        return seen


bridged = partial(McpSubscriptions, legacy_clients=True)


def served(subscriptions: McpSubscriptions) -> MCPServer[dict[str, object]]:
    return build("board", subscriptions)


@asynccontextmanager
async def connected(server: Any) -> AsyncGenerator[tuple[Client, Inbox]]:
    inbox = Inbox()
    async with Client(server, mode="legacy", message_handler=inbox) as client:
        yield client, inbox


async def change(client: Client, kind: str) -> None:
    assert not (await client.call_tool("change", {"kind": kind})).is_error


async def update(client: Client, uri: str) -> None:
    assert not (await client.call_tool("update", {"uri": uri})).is_error


async def streams(client: Client) -> int:
    """Open streams of the replica that answers."""
    (content,) = (await client.call_tool("state")).content
    assert isinstance(content, types.TextContent)
    found: int = json.loads(content.text)["streams"]
    return found


async def eventually(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(LIMIT):
        while not condition():
            await anyio.sleep(0.01)


async def until_it_hears(client: Client, inbox: Inbox, *, changing: Client | None = None) -> None:
    """A client over HTTP hears from when its GET stream is open, which nothing says."""
    while TOOLS not in inbox.seen:
        await change(changing or client, "tools")
        await anyio.sleep(0.05)
    inbox.seen.clear()


class TestOneConnection:
    async def test_without_the_bridge_they_are_promised_nothing_and_hear_nothing(self) -> None:
        """The reason for all of this; when it fails, the SDK has a bridge of its own."""
        subscriptions = McpSubscriptions(MemoryBus())
        mcp = build("board", subscriptions)
        async with connected(mcp) as (client, inbox):
            assert client.server_capabilities.tools == types.ToolsCapability(list_changed=False)
            with pytest.raises(MCPError, match="Method not found"):
                await client.subscribe_resource(TASK)
            await change(client, "tools")
            await client.send_ping()
            assert inbox.seen == []

    async def test_they_are_told_what_they_will_hear_of(self) -> None:
        async with connected(served(bridged(MemoryBus()))) as (client, _):
            said = client.server_capabilities
            assert said.tools == types.ToolsCapability(list_changed=True)
            assert said.prompts == types.PromptsCapability(list_changed=True)
            assert said.resources == types.ResourcesCapability(list_changed=True, subscribe=True)
            assert client.protocol_version < "2026"

    async def test_they_hear_of_the_lists_and_of_what_they_named(self) -> None:
        async with connected(served(bridged(MemoryBus()))) as (client, inbox):
            for kind, method in (("tools", TOOLS), ("prompts", PROMPTS), ("resources", RESOURCES)):
                await change(client, kind)
                assert await inbox.until(method) == [method]
            await client.subscribe_resource(TASK)
            await update(client, OTHER)
            await update(client, TASK)
            assert await inbox.until(TASK) == [TASK]

    async def test_naming_a_resource_twice_counts_once_and_taking_it_back_ends_it(self) -> None:
        async with connected(served(bridged(MemoryBus()))) as (client, inbox):
            for _ in range(2):
                await client.subscribe_resource(TASK)
            await client.unsubscribe_resource(OTHER)  # never named: no harm
            await client.unsubscribe_resource(TASK)
            await update(client, TASK)
            await change(client, "tools")
            assert await inbox.until(TOOLS) == [TOOLS]

    async def test_each_hears_what_it_named_itself(self) -> None:
        mcp = served(bridged(MemoryBus()))
        async with connected(mcp) as (one, first), connected(mcp) as (two, second):
            await one.subscribe_resource(TASK)
            await two.subscribe_resource(OTHER)
            for uri in (TASK, OTHER):
                await update(one, uri)
            await change(one, "tools")
            assert sorted(await first.until(TOOLS)) == sorted([TASK, TOOLS])
            assert sorted(await second.until(TOOLS)) == sorted([OTHER, TOOLS])

    async def test_the_uri_is_the_string_that_was_sent(self) -> None:
        """`str(AnyUrl("http://x"))` has a slash more."""
        async with connected(served(bridged(MemoryBus()))) as (client, inbox):
            await client.subscribe_resource("http://x")
            await update(client, "http://x/")
            await update(client, "http://x")
            assert await inbox.until("http://x") == ["http://x"]

    async def test_what_others_put_into_the_params_arrives(self) -> None:
        bus = MemoryBus()
        found: list[Any] = []

        async def note(message: object) -> None:
            found.append(message)

        async with Client(served(bridged(bus)), mode="legacy", message_handler=note) as client:
            await client.subscribe_resource(TASK)
            await bus.publish(
                BusNotification("notifications/resources/updated", {"uri": TASK, "_meta": {"example.com/by": "me"}})
            )
            await eventually(lambda: bool(found))
            assert found[0].params.model_dump(by_alias=True, exclude_none=True) == {
                "uri": TASK,
                "_meta": {"example.com/by": "me"},
            }

    async def test_its_stream_goes_with_the_connection(self) -> None:
        subscriptions = bridged(MemoryBus())
        mcp = served(subscriptions)
        async with connected(mcp) as (staying, _):
            async with connected(mcp) as (client, inbox):
                await client.subscribe_resource(TASK)
                assert subscriptions.is_subscribed(TASK)
                await change(staying, "tools")
                await inbox.until(TOOLS)
                streams = subscriptions.stats()
                assert streams.streams == 2
            await eventually(lambda: not subscriptions.is_subscribed(TASK))
            streams = subscriptions.stats()
            assert streams.streams == 1

    async def test_of_a_client_that_has_gone_nothing_is_kept(self) -> None:
        """A server meets thousands in a day: each left its connection behind, with all that hangs on it."""
        mcp = served(bridged(MemoryBus()))

        def connections() -> int:
            gc.collect()
            return sum(isinstance(thing, Connection) for thing in gc.get_objects())

        async with connected(mcp):
            before = connections()
            for _ in range(5):
                async with connected(mcp) as (client, _):
                    await client.subscribe_resource(TASK)
            assert connections() == before

    async def test_a_client_of_today_on_the_same_server_hears_by_its_stream(self) -> None:
        mcp = served(bridged(MemoryBus()))
        async with connected(mcp) as (_, inbox), Client(mcp) as today, today.listen(tools_list_changed=True) as stream:
            with pytest.raises(MCPError, match="Method not found"):
                await today.subscribe_resource(TASK)
            await change(today, "tools")
            await expect(stream, ToolsListChanged())
            await inbox.until(TOOLS)

    async def test_installing_twice_tells_once(self) -> None:
        subscriptions = bridged(MemoryBus())
        mcp = served(subscriptions)
        for _ in range(2):
            subscriptions.install(mcp)
        async with connected(mcp) as (client, inbox):
            await change(client, "tools")
            await inbox.until(TOOLS)
            await change(client, "prompts")
            assert await inbox.until(PROMPTS) == [PROMPTS]


class TestRefusals:
    async def test_what_the_server_cannot_push_is_neither_said_nor_sent(self) -> None:
        can = Capabilities(tools_list_changed=False, resources_subscribe=False)
        async with connected(served(bridged(MemoryBus(), capabilities=can))) as (client, inbox):
            said = client.server_capabilities
            assert said.tools == types.ToolsCapability(list_changed=False)
            assert said.resources == types.ResourcesCapability(list_changed=True, subscribe=False)
            with pytest.raises(MCPError, match="Method not found") as refused:
                await client.subscribe_resource(TASK)
            assert refused.value.error.code == types.METHOD_NOT_FOUND
            await change(client, "tools")
            await change(client, "prompts")
            assert await inbox.until(PROMPTS) == [PROMPTS]

    async def test_limits_are_said(self) -> None:
        mcp = served(bridged(MemoryBus(), max_uris=2, max_uri_length=20))
        async with connected(mcp) as (client, inbox):
            with pytest.raises(MCPError, match="at most 20") as refused:
                await client.subscribe_resource("board://" + "x" * 20)
            assert refused.value.error.code == types.INVALID_PARAMS
            for uri in (TASK, OTHER):
                await client.subscribe_resource(uri)
            with pytest.raises(MCPError, match="at most 2") as refused:
                await client.subscribe_resource("board://tasks/3")
            assert refused.value.error.code == types.INVALID_PARAMS
            await update(client, OTHER)
            assert await inbox.until(OTHER) == [OTHER]

    async def test_authorize_is_asked_for_the_lists_and_for_each_resource(self) -> None:
        asked: list[SubscriptionFilter] = []

        async def authorize(ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
            await anyio.lowlevel.checkpoint()
            params = ctx.session.client_params
            assert params is not None
            assert params.client_info.name == "mcp"
            asked.append(requested)
            return SubscriptionFilter(prompts_list_changed=True, resource_subscriptions=(TASK,))

        async with connected(served(bridged(MemoryBus(), authorize=authorize))) as (client, inbox):
            await client.subscribe_resource(TASK)
            with pytest.raises(MCPError, match="may not open this subscription") as refused:
                await client.subscribe_resource(OTHER)
            assert OTHER not in str(refused.value)
            for uri in (OTHER, TASK):
                await update(client, uri)
            for kind in ("tools", "prompts"):
                await change(client, kind)
            assert sorted(await inbox.until(TASK, PROMPTS)) == sorted([TASK, PROMPTS])
        assert len(asked) == 3

    async def test_who_may_not_hear_of_the_lists_may_still_name_resources(self) -> None:
        def authorize(ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
            if requested.tools_list_changed:
                raise PermissionError
            return requested

        subscriptions = bridged(MemoryBus(), authorize=authorize, end_empty=True)
        async with connected(served(subscriptions)) as (client, inbox):
            await change(client, "tools")
            await client.subscribe_resource(TASK)
            await update(client, TASK)
            assert await inbox.until(TASK) == [TASK]

    async def test_an_answer_of_authorize_holds_no_longer_than_a_stream_may_last(self) -> None:
        allowed = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=(TASK, OTHER))

        def authorize(ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
            return allowed

        subscriptions = bridged(MemoryBus(), authorize=authorize, max_lifetime=0.2)
        async with connected(served(subscriptions)) as (client, _):
            for uri in (TASK, OTHER):
                await client.subscribe_resource(uri)
            allowed = SubscriptionFilter(resource_subscriptions=(OTHER,))
            await eventually(lambda: not subscriptions.is_subscribed(TASK) and subscriptions.is_subscribed(OTHER))

    async def test_what_changes_while_authorize_is_asked_is_made_good(self) -> None:
        """Nothing keeps such a client from reading the lists meanwhile."""
        asked, answer = anyio.Event(), anyio.Event()

        async def authorize(ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
            asked.set()
            await answer.wait()
            return requested

        async with connected(served(bridged(MemoryBus(), authorize=authorize))) as (client, inbox):
            await asked.wait()
            await client.list_tools()
            await change(client, "tools")
            answer.set()
            await inbox.until(TOOLS)

    async def test_a_request_given_up_while_authorize_is_asked_leaves_the_client_able_to_hear(self) -> None:
        asked, answer = anyio.Event(), anyio.Event()

        async def authorize(ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
            if requested.tools_list_changed:
                asked.set()
                await answer.wait()
            return requested

        subscriptions = bridged(MemoryBus(), authorize=authorize)
        app = served(subscriptions).streamable_http_app(json_response=True)
        async with running(app), http(app) as post:
            await post("initialize", _HELLO)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(post, "resources/subscribe", {"uri": TASK})
                await asked.wait()
                await post.notify("notifications/cancelled", {"requestId": 1})
            answer.set()
            assert "result" in await post("resources/subscribe", {"uri": TASK})
            assert subscriptions.is_subscribed(TASK)

    async def test_no_place_for_another_stream_is_said_and_made_good_when_there_is_one(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It cannot be asked to come again, so it is told to look when it is served at last."""
        subscriptions = bridged(MemoryBus(), max_streams=1, ready_timeout=0.1)
        mcp = served(subscriptions)
        held, leave = anyio.Event(), anyio.Event()

        async def hold() -> None:
            async with connected(mcp) as (client, inbox):
                await change(client, "tools")
                await inbox.until(TOOLS)
                held.set()
                await leave.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await held.wait()
            async with connected(mcp) as (client, inbox):
                with pytest.raises(MCPError, match="not available at the moment"):
                    await client.subscribe_resource(TASK)
                await eventually(lambda: "hears nothing yet" in caplog.text)
                leave.set()
                assert sorted(await inbox.until(TOOLS, PROMPTS, RESOURCES)) == sorted([TOOLS, PROMPTS, RESOURCES])
                await client.subscribe_resource(TASK)
                await update(client, TASK)
                await inbox.until(TASK)

    async def test_a_client_that_asks_while_it_is_being_taken_on_is_taken_on_once(self) -> None:
        """Two streams for one client would tell it everything twice."""
        asked, answer = 0, anyio.Event()

        async def authorize(ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
            nonlocal asked
            if requested.tools_list_changed:
                asked += 1
                await answer.wait()
            return requested

        subscriptions = bridged(MemoryBus(), authorize=authorize)
        async with connected(served(subscriptions)) as (client, inbox), anyio.create_task_group() as tasks:
            await eventually(lambda: asked == 1)
            tasks.start_soon(client.subscribe_resource, TASK)
            await client.send_ping()  # so that the request before it has been taken up
            answer.set()
            await eventually(lambda: subscriptions.is_subscribed(TASK))
            await update(client, TASK)
            await inbox.until(TASK)
            streams = subscriptions.stats()
            assert (asked, streams.opened) == (1, 1)


class TestOutages:
    async def test_a_server_without_the_lifespan_refuses_and_says_why_in_the_log(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not that it is shutting down; and not only where a resource is asked for."""
        subscriptions = bridged(MemoryBus())
        mcp = MCPServer("board", subscriptions=subscriptions)
        mcp.resource(TASK, name="one")(lambda: "one")
        subscriptions.install(mcp)
        async with connected(mcp) as (client, _):
            await eventually(lambda: "lifespan" in caplog.text)
            with pytest.raises(MCPError, match="not available at the moment"):
                await client.subscribe_resource(TASK)

    async def test_a_broker_that_comes_later_is_made_good(self) -> None:
        bus = OpenableScriptedBus()
        async with connected(served(bridged(bus, ready_timeout=0.1))) as (client, inbox):
            assert client.server_capabilities.tools == types.ToolsCapability(list_changed=True)
            with pytest.raises(MCPError, match="not available at the moment"):
                await client.subscribe_resource(TASK)
            bus.open.set()
            await inbox.until(TOOLS, PROMPTS, RESOURCES)
            await client.subscribe_resource(TASK)
            await update(client, TASK)
            await inbox.until(TASK)

    async def test_a_broker_that_comes_while_the_client_is_kept_waiting_is_made_good_too(self) -> None:
        """It has read the lists meanwhile, and nothing owes it what changed since."""
        bus = OpenableScriptedBus()
        async with connected(served(bridged(bus, ready_timeout=0.5))) as (client, inbox):
            await client.list_tools()
            bus.open.set()
            await inbox.until(TOOLS, PROMPTS, RESOURCES)

    async def test_a_gap_is_told_as_a_change_of_everything(self) -> None:
        bus = MemoryBus()
        async with connected(served(bridged(bus, gap_spread=0, gap_interval=0))) as (client, inbox):
            await client.subscribe_resource(TASK)
            await bus.publish(BusNotification("notifications/bus/gap"))
            assert sorted(await inbox.until(TOOLS, PROMPTS, RESOURCES, TASK)) == sorted(
                [TOOLS, PROMPTS, RESOURCES, TASK]
            )

    async def test_a_stream_that_has_lasted_long_enough_is_followed_by_another(self) -> None:
        subscriptions = bridged(MemoryBus(), max_lifetime=0.2)
        async with connected(served(subscriptions)) as (client, inbox):
            await client.subscribe_resource(TASK)
            for _ in range(2):
                await inbox.until(TASK, TOOLS, PROMPTS, RESOURCES)
            assert (await client.call_tool("state")).content

    async def test_a_drain_ends_it_and_nothing_is_taken_on_any_more(self) -> None:
        subscriptions = bridged(MemoryBus())
        async with connected(served(subscriptions)) as (client, inbox):
            await client.subscribe_resource(TASK)
            await update(client, TASK)
            assert await subscriptions.drain() == 0
            await inbox.until(TASK)
            before = monotonic()
            with pytest.raises(MCPError, match="shutting down"):
                await client.subscribe_resource(OTHER)
            assert monotonic() - before < 1, "there is nothing to wait for"


def with_handlers(
    theirs: Callable[[ServerRequestContext[Any, Any], Any], Awaitable[types.EmptyResult]],
    subscriptions: McpSubscriptions,
) -> LowLevelServer[Any]:
    """A server with handlers of its own for what the bridge serves."""

    async def resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    server: LowLevelServer[Any] = LowLevelServer(
        "board",
        on_list_resources=resources,
        on_subscribe_resource=theirs,
        on_unsubscribe_resource=theirs,
        lifespan=subscriptions.lifespan,
    )
    return server


class TestOtherServers:
    async def test_a_low_level_server_with_handlers_of_its_own_is_asked_too(self) -> None:
        asked: list[str] = []

        async def theirs(ctx: ServerRequestContext[Any, Any], params: Any) -> types.EmptyResult:
            asked.append(f"{ctx.method} {params.uri}")
            if str(params.uri) == OTHER:
                raise MCPError(types.INVALID_PARAMS, "not this one")
            return types.EmptyResult()

        subscriptions = bridged(MemoryBus(), max_uri_length=20)
        server = with_handlers(theirs, subscriptions)
        async with connected(server) as (client, inbox):
            assert client.server_capabilities.tools is None
            await client.subscribe_resource(TASK)
            with pytest.raises(MCPError, match="not this one"):
                await client.subscribe_resource(OTHER)
            with pytest.raises(MCPError, match="at most 20"):  # and theirs keeps nothing of it
                await client.subscribe_resource("board://" + "x" * 20)
            for uri in (OTHER, TASK):
                await subscriptions.notify_resource_updated(uri)
            assert await inbox.until(TASK) == [TASK]
            await client.unsubscribe_resource(TASK)
            assert asked == [
                f"resources/{what}" for what in (f"subscribe {TASK}", f"subscribe {OTHER}", f"unsubscribe {TASK}")
            ]

    async def test_what_only_a_server_itself_serves_stays_served(self) -> None:
        """It says `subscribe`, by its own handlers."""

        async def theirs(ctx: ServerRequestContext[Any, Any], params: Any) -> types.EmptyResult:
            return types.EmptyResult()

        subscriptions = bridged(MemoryBus(), capabilities=Capabilities(resources_subscribe=False))
        server = with_handlers(theirs, subscriptions)
        async with connected(server) as (client, _):
            assert client.server_capabilities.resources == types.ResourcesCapability(list_changed=True, subscribe=True)
            await client.subscribe_resource(TASK)
            assert not subscriptions.is_subscribed(TASK)
            await client.unsubscribe_resource(TASK)

    async def test_fastmcp(self) -> None:
        fastmcp: Any = pytest.importorskip("fastmcp", reason="FastMCP needs a later mcp than the oldest we support")
        subscriptions = bridged(MemoryBus(), watch=True)
        mcp = fastmcp.FastMCP("board", lifespan=subscriptions.lifespan)
        mcp.resource(TASK)(lambda: "one")
        async with connected(mcp._mcp_server) as (client, inbox):
            assert client.server_capabilities.resources == types.ResourcesCapability(list_changed=True, subscribe=True)
            await client.subscribe_resource(TASK)
            await subscriptions.notify_resource_updated(OTHER)
            await subscriptions.notify_resource_updated(TASK)
            assert await inbox.until(TASK) == [TASK]
            mcp.tool(lambda: "x", name="added")
            assert await inbox.until(TOOLS) == [TOOLS]


class TestOverHttp:
    async def test_a_change_on_another_replica_reaches_it(self, redis_server: Server) -> None:
        with start_replicas(f"{redis_server.url}?channel=test-legacy", install=True, legacy=True) as (first, second):
            async with connected(first) as (client, inbox), Client(second, mode="legacy") as other:
                await until_it_hears(client, inbox, changing=other)
                await client.subscribe_resource(TASK)
                await update(other, OTHER)
                await update(other, TASK)
                assert TASK in (seen := await inbox.until(TASK))
                assert OTHER not in seen

    async def test_ending_the_session_ends_its_stream(self) -> None:
        """The SDK's client ends it by DELETE."""
        with replica("memory://?channel=board", install=True, legacy=True) as process:
            url = url_of(process)
            async with connected(url) as (client, inbox):
                await until_it_hears(client, inbox)
                assert await streams(client) == 1
            async with Client(url) as today:
                with anyio.fail_after(LIMIT):
                    while await streams(today):
                        await anyio.sleep(0.01)

    async def test_a_signal_ends_the_process_although_their_streams_are_open(self) -> None:
        with replica("memory://?channel=board", install=True, legacy=True) as process:
            url = url_of(process)
            async with AsyncExitStack() as stack:
                for _ in range(5):
                    client, inbox = await stack.enter_async_context(connected(url))
                    await until_it_hears(client, inbox)
                before = monotonic()
                process.terminate()
                await anyio.to_thread.run_sync(lambda: process.wait(LIMIT))
                assert monotonic() - before < 3

    @pytest.mark.parametrize("scenario", ["resources-subscribe", "resources-unsubscribe"])
    async def test_the_official_suite_for_these_revisions(
        self, scenario: str, conformance: Suite, tmp_path: Path
    ) -> None:
        with replica("memory://?channel=board", install=True, legacy=True) as process:
            checks = await conformance.check_server(url_of(process), scenario, "2025-11-25", tmp_path)
        assert scenario in {check["id"] for check in checks}
        assert not [check for check in checks if check["status"] in ("FAILURE", "WARNING")]

    async def test_stateless_http_promises_nothing(self) -> None:
        """Nothing can be sent there without a request."""
        subscriptions = bridged(MemoryBus())
        app = served(subscriptions).streamable_http_app(stateless_http=True, json_response=True)
        async with running(app), http(app) as post:
            answer = await post("initialize", _HELLO)
            said = answer["result"]["capabilities"]
            assert said["tools"]["listChanged"] is False
            assert said["resources"] == {"listChanged": False, "subscribe": False}
            refused = await post("resources/subscribe", {"uri": TASK})
            assert refused["error"]["code"] == types.METHOD_NOT_FOUND
            streams = subscriptions.stats()
            assert streams.opened == 0


async def test_over_stdio() -> None:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tests.mcp.board"],
        cwd=ROOT,
        env=os.environ | {BUS: "memory://?channel=board", STDIO: "1", INSTALL: "1", LEGACY: "1"},
    )
    async with connected(stdio_client(parameters)) as (client, inbox):
        await client.subscribe_resource(TASK)
        await update(client, TASK)
        assert await inbox.until(TASK) == [TASK]
        await change(client, "tools")
        assert await inbox.until(TOOLS) == [TOOLS]


async def test_a_client_that_asks_before_it_has_said_that_it_is_ready() -> None:
    """The protocol says it should not; it is served all the same."""
    subscriptions = bridged(MemoryBus())
    app = served(subscriptions).streamable_http_app(json_response=True)
    async with running(app), http(app) as post:
        await post("initialize", _HELLO)
        assert await post("resources/subscribe", {"uri": TASK}) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert subscriptions.is_subscribed(TASK)


_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


@asynccontextmanager
async def running(app: Any) -> AsyncGenerator[None]:
    async with app.router.lifespan_context(app):
        yield


class Posting:
    """A client of the wire."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._session: dict[str, str] = {}

    async def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        response = await self._client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={"Accept": "application/json, text/event-stream", **self._session},
        )
        if "mcp-session-id" in response.headers:
            self._session = {"Mcp-Session-Id": response.headers["mcp-session-id"]}
        answer: dict[str, Any] = response.json()
        return answer

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        await self._client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "method": method, "params": params},
            headers={"Accept": "application/json, text/event-stream", **self._session},
        )


@asynccontextmanager
async def http(app: Any) -> AsyncGenerator[Posting]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        yield Posting(client)
