"""`McpSubscriptions` over a `MemoryBus`: what reaches the SDK's listeners, and what the caller is told."""

import gc
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from notification_bus import (
    GAP,
    BusClosedError,
    BusNotification,
    BusNotReadyError,
    InvalidNotificationError,
    MemoryBus,
    NotificationTooLargeError,
)
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions._taps import MAX_PENDING
from tests.mcp.board import LAST, TASK, build
from tests.mcp.replicas import LIMIT, expect

LISTS = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())


class Ear:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[ServerEvent] = []
        self._changed = anyio.Event()

    def __call__(self, event: ServerEvent) -> None:
        self.heard.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[list[ServerEvent]], bool]) -> list[ServerEvent]:
        with anyio.fail_after(LIMIT):
            while not condition(self.heard):
                self._changed = anyio.Event()
                await self._changed.wait()
        return self.heard

    async def until_hears(self, event: ServerEvent) -> list[ServerEvent]:
        return await self.until(lambda heard: event in heard)


@pytest.fixture
async def subscriptions() -> AsyncGenerator[McpSubscriptions]:
    subscriptions = McpSubscriptions(MemoryBus())
    async with subscriptions.lifespan():
        yield subscriptions


@pytest.mark.parametrize("event", [*LISTS, ResourceUpdated(TASK)])
async def test_what_is_published_is_heard_by_every_listener_once(
    subscriptions: McpSubscriptions, event: ServerEvent
) -> None:
    """By equal callables too: each subscription counts."""
    one, two = Ear(), Ear()
    for ear in (one, two, two):
        subscriptions.subscribe(ear)
    await subscriptions.publish(event)
    await subscriptions.publish(ResourceUpdated(LAST))
    assert await one.until_hears(ResourceUpdated(LAST)) == [event, ResourceUpdated(LAST)]
    assert (await two.until(lambda heard: len(heard) == 4)).count(event) == 2


async def test_the_notifying_methods_publish_the_four_kinds(subscriptions: McpSubscriptions) -> None:
    """For code outside a request, which has no `ctx`."""
    ear = Ear()
    subscriptions.subscribe(ear)
    await subscriptions.notify_tools_changed()
    await subscriptions.notify_prompts_changed()
    await subscriptions.notify_resources_changed()
    await subscriptions.notify_resource_updated(TASK)
    assert await ear.until_hears(ResourceUpdated(TASK)) == [*LISTS, ResourceUpdated(TASK)]


async def test_an_unsubscribed_listener_hears_nothing_more(subscriptions: McpSubscriptions) -> None:
    """Also when it was unsubscribed twice, or by another listener during the same event."""
    quiet, victim, ear = Ear(), Ear(), Ear()
    unsubscribe = subscriptions.subscribe(quiet)
    unsubscribe()
    unsubscribe()
    cut: list[Callable[[], None]] = []
    subscriptions.subscribe(lambda _: cut[0]())
    cut.append(subscriptions.subscribe(victim))
    subscriptions.subscribe(ear)
    await subscriptions.notify_tools_changed()
    await ear.until_hears(ToolsListChanged())
    assert quiet.heard == victim.heard == []


async def test_a_listener_that_raises_keeps_nothing_from_the_others(
    subscriptions: McpSubscriptions, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's own rule for its in-memory bus."""

    def broken(event: ServerEvent) -> None:
        raise ValueError(f"no {event}")

    ear = Ear()
    subscriptions.subscribe(broken)
    subscriptions.subscribe(ear)
    for number in range(3):
        await subscriptions.notify_resource_updated(f"board://{number}")
    await ear.until(lambda heard: len(heard) == 3)
    assert subscriptions.stats().tap_errors == 3
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "no ResourceUpdated(uri='board://0')" in warnings[0]


async def test_equal_events_that_wait_are_heard_once(subscriptions: McpSubscriptions) -> None:
    """5,000 notifications must not become 5,000 entries of a buffer of 1,024."""
    ear = Ear()
    subscriptions.subscribe(ear)
    for _ in range(5000):
        await subscriptions.notify_tools_changed()
    await subscriptions.notify_resource_updated(LAST)

    def every_one_is_accounted_for(heard: list[ServerEvent]) -> bool:
        stats = subscriptions.stats()
        return stats.delivered == 5001 and len(heard) == stats.delivered - stats.coalesced

    # The last of them is heard, for itself and for those before it, and not merely counted.
    heard = await ear.until(every_one_is_accounted_for)
    assert len(heard) < 1024
    assert heard.count(ResourceUpdated(LAST)) == 1


async def test_a_change_after_a_delivery_is_delivered_again(subscriptions: McpSubscriptions) -> None:
    """Coalescing must never swallow a change that the listener has not heard of."""
    ear = Ear()
    subscriptions.subscribe(ear)
    for count in range(1, 4):
        await subscriptions.notify_tools_changed()
        await ear.until(lambda heard, count=count: len(heard) == count)  # type: ignore[misc]


async def test_a_flood_of_different_uris_gives_an_sdk_stream_time_to_be_written(
    subscriptions: McpSubscriptions,
) -> None:
    """Nothing here coalesces: 3,000 different events for one stream, whose buffer holds 1,024."""
    uris = [f"board://tasks/{number}" for number in range(3000)]

    async def publish() -> None:
        for uri in uris:
            await subscriptions.notify_resource_updated(uri)
        await subscriptions.notify_resource_updated(LAST)

    async with (
        Client(build("board", subscriptions, sdk_streams=True)) as client,
        client.listen(resource_subscriptions=[*uris, LAST]) as stream,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(publish)
        # Every one of them arrives.
        await expect(stream, *(ResourceUpdated(uri) for uri in uris), ResourceUpdated(LAST))


async def test_more_different_events_than_fit_end_in_a_gap_not_in_growing_memory() -> None:
    """The tap is told of a gap then."""
    subscriptions = McpSubscriptions(MemoryBus())
    ear = Ear()
    async with subscriptions.lifespan():
        subscriptions.subscribe(ear)
        await subscriptions.notify_tools_changed()
        await ear.until_hears(ToolsListChanged())
        for number in range(2 * MAX_PENDING):
            await subscriptions.notify_resource_updated(f"board://{number}")
            assert len(subscriptions._registry._taps._pending) <= MAX_PENDING
        await ear.until_hears(PromptsListChanged())
        assert subscriptions.stats().gaps


async def test_a_gap_reports_the_lists_and_the_resources_known_to_be_updated() -> None:
    """`GAP` means: look again at everything you care about."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus)
    ear = Ear()
    async with subscriptions.lifespan():
        subscriptions.subscribe(ear)
        await subscriptions.notify_resource_updated(TASK)
        await ear.until_hears(ResourceUpdated(TASK))
        ear.heard.clear()
        await bus.publish(GAP)
        await ear.until(lambda heard: set(heard) == {*LISTS, ResourceUpdated(TASK)})
    assert subscriptions.stats().gaps == 1


async def test_what_no_listen_stream_carries_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK's listener raises on anything but the four kinds."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus)
    ear = Ear()
    async with subscriptions.lifespan():
        subscriptions.subscribe(ear)
        await bus.publish(BusNotification("notifications/message", {"level": "info", "data": "hello"}))
        await bus.publish(BusNotification("tools/call", {"name": "delete_everything"}))
        await bus.publish(BusNotification("notifications/resources/updated"))
        await bus.publish(BusNotification("notifications/resources/updated", {"uri": 7}))
        await bus.publish(BusNotification("notifications/tools/list_changed", {"_meta": {"from": "another language"}}))
        assert await ear.until_hears(ToolsListChanged()) == [ToolsListChanged()]
    assert (subscriptions.stats().ignored, subscriptions.stats().malformed) == (2, 2)
    assert any("without a URI" in record.getMessage() for record in caplog.records)


async def test_two_servers_in_one_process_hear_each_other_through_their_channel() -> None:
    """What the demo falls back to where there is no broker; also what two servers on one channel do by mistake."""
    a, b = (build(name, McpSubscriptions(MemoryBus("board"))) for name in "ab")
    async with (
        Client(a) as client,
        Client(b) as other,
        client.listen(tools_list_changed=True, resource_subscriptions=[TASK]) as stream,
    ):
        await other.call_tool("change", {"kind": "task"})
        assert await expect(stream, ResourceUpdated(TASK)) == [ResourceUpdated(TASK)]


async def test_a_gap_reports_every_resource_in_the_filter_of_a_stream_of_the_sdk() -> None:
    """Also one that was never updated before, and only that: so the SDK's listener must show its filter."""
    bus = MemoryBus()
    subscriptions = McpSubscriptions(bus)
    async with (
        Client(build("board", subscriptions, sdk_streams=True)) as client,
        client.listen(prompts_list_changed=True, resource_subscriptions=[TASK, LAST]) as stream,
    ):
        taps = subscriptions._registry._taps
        assert set(taps._by_uri) == {TASK, LAST}
        await bus.publish(GAP)
        await expect(stream, PromptsListChanged(), ResourceUpdated(TASK), ResourceUpdated(LAST))
        async with client.listen(resource_subscriptions=[TASK]) as second:
            await subscriptions.notify_resource_updated(TASK)
            await expect(second, ResourceUpdated(TASK))
    assert not taps._by_uri


# What the caller is told


def test_something_that_is_no_bus_is_refused() -> None:
    """With the remedy: a URL is the likely mistake."""
    with pytest.raises(TypeError, match=r"not a str: build one with open_bus"):
        McpSubscriptions(cast("Any", "redis://localhost?channel=board"))


async def test_publishing_before_the_start_says_that_it_was_never_started() -> None:
    """Starlette does not run the lifespan of a mounted app: that must not look like silence."""
    subscriptions = McpSubscriptions(MemoryBus())
    with pytest.raises(BusClosedError, match=r"never started.*lifespan=subscriptions\.lifespan.*Starlette"):
        await subscriptions.notify_tools_changed()
    with pytest.raises(BusClosedError, match="never started"):
        subscriptions.subscribe(print)
    with pytest.raises(BusClosedError, match="never started"):
        subscriptions.publish_from_thread(ToolsListChanged())


async def test_publishing_after_the_end_says_so() -> None:
    """A stream that is acknowledged now would stay silent, so it is refused too."""
    subscriptions = McpSubscriptions(MemoryBus())
    async with subscriptions.lifespan():
        pass
    with pytest.raises(BusClosedError, match="has ended"):
        await subscriptions.notify_tools_changed()
    with pytest.raises(BusClosedError, match="has ended"):
        subscriptions.subscribe(print)


# The SDK leaves its streams to the collector where subscribe() raises.
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
async def test_a_server_without_the_lifespan_fails_the_tool_and_the_listen_instead_of_being_deaf(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`subscriptions=` without `lifespan=` is the likely mistake."""
    # The SDK logs the error, and a kept record would keep the streams of its traceback for a later test to collect.
    caplog.set_level(logging.CRITICAL, logger="mcp")
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.shared.exceptions import MCPError

    mcp = MCPServer("board", subscriptions=McpSubscriptions(MemoryBus()))

    @mcp.tool()
    async def change(ctx: Context) -> None:
        await ctx.notify_tools_changed()

    _ = change
    async with Client(mcp) as client:
        result = await client.call_tool("change", {})
        assert result.is_error
        with pytest.raises(MCPError):
            async with client.listen(tools_list_changed=True):
                pass
    gc.collect()


async def test_what_is_no_event_is_refused(subscriptions: McpSubscriptions) -> None:
    """The caller can mend it, so the caller is told."""
    with pytest.raises(TypeError, match=r"takes one of .* not a str: 'tools'"):
        await subscriptions.publish(cast("Any", "tools"))
    with pytest.raises(InvalidNotificationError, match="uri is int"):
        await subscriptions.notify_resource_updated(cast("Any", 7))
    with pytest.raises(InvalidNotificationError, match="lone surrogate"):
        await subscriptions.notify_resource_updated("board://\ud800")


async def test_a_uri_beyond_what_the_bus_carries_is_refused() -> None:
    """At once, in the tool that uses it."""
    subscriptions = McpSubscriptions(MemoryBus(max_body=100))
    async with subscriptions.lifespan():
        with pytest.raises(NotificationTooLargeError):
            await subscriptions.notify_resource_updated("board://" + "x" * 100)


# Threads


async def test_a_worker_thread_publishes(subscriptions: McpSubscriptions) -> None:
    """Both ways: anyio's own, and the one for threads that anyio does not know."""
    ear = Ear()
    subscriptions.subscribe(ear)

    def work() -> None:
        anyio.from_thread.run(subscriptions.notify_tools_changed)
        subscriptions.publish_from_thread(PromptsListChanged())

    await anyio.to_thread.run_sync(work)
    assert await ear.until_hears(PromptsListChanged()) == [ToolsListChanged(), PromptsListChanged()]


async def test_a_thread_of_ones_own_publishes_and_hears_of_its_mistakes(subscriptions: McpSubscriptions) -> None:
    """A watcher or a consumer lives in such a thread."""
    ear = Ear()
    subscriptions.subscribe(ear)
    errors: list[BaseException] = []

    def work() -> None:
        subscriptions.publish_from_thread(ResourceUpdated(TASK))
        try:
            subscriptions.publish_from_thread(cast("Any", "tools"))
        except TypeError as exc:
            errors.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    await ear.until_hears(ResourceUpdated(TASK))
    await anyio.to_thread.run_sync(thread.join)
    assert len(errors) == 1


async def test_publishing_from_the_loops_own_thread_is_refused(subscriptions: McpSubscriptions) -> None:
    """It would wait for itself."""
    with pytest.raises(RuntimeError, match=r"await publish\(event\)"):
        subscriptions.publish_from_thread(ToolsListChanged())


async def test_a_listener_cannot_be_added_from_a_thread(subscriptions: McpSubscriptions) -> None:
    """The tables belong to the event loop."""
    with pytest.raises(BusClosedError, match="another event loop"):
        await anyio.to_thread.run_sync(subscriptions.subscribe, print)


# Buses of others


class BareBus:
    """A bus that is no context manager, ends its streams, refuses subscriptions, and has no sense of readiness."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.subscribed = 0
        self.streams: list[anyio.abc.ObjectSendStream[BusNotification]] = []

    async def publish(self, notification: BusNotification) -> None:
        for stream in self.streams:
            await stream.send(notification)

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[AsyncIterator[BusNotification]]:
        if self.refusals:
            raise self.refusals.pop(0)
        self.subscribed += 1
        send, receive = anyio.create_memory_object_stream[BusNotification](100)
        self.streams.append(send)
        async with send, receive:
            yield receive
        self.streams.remove(send)


async def test_a_bus_that_is_no_context_manager_is_just_used() -> None:
    """The protocol has two methods; entering is not one of them."""
    subscriptions = McpSubscriptions(BareBus())
    ear = Ear()
    async with subscriptions.lifespan():
        subscriptions.subscribe(ear)
        await subscriptions.notify_tools_changed()
        await ear.until_hears(ToolsListChanged())


async def test_a_stream_that_ends_is_replaced_and_everything_is_reported_as_changed() -> None:
    """A bus of ours never ends one; the pump must not die of one that does."""
    bus = BareBus()
    subscriptions = McpSubscriptions(bus)
    ear = Ear()
    async with subscriptions.lifespan():
        subscriptions.subscribe(ear)
        await bus.streams[0].aclose()
        await ear.until(lambda heard: set(heard) == set(LISTS))
        assert bus.subscribed == 2
        await subscriptions.notify_resource_updated(TASK)
        await ear.until_hears(ResourceUpdated(TASK))


async def test_a_subscription_that_is_refused_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """The server starts meanwhile, says so once, and its streams are told when the bus has confirmed."""
    refusals = [BusNotReadyError("the broker is down"), OSError("unreachable"), BusNotReadyError("still")]
    bus = BareBus(*refusals)
    subscriptions = McpSubscriptions(bus, ready_timeout=0.01)
    ear = Ear()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(subscriptions.lifespan())
        subscriptions.subscribe(ear)
        await ear.until(lambda heard: set(heard) == set(LISTS))
        assert subscriptions.stats().ready
    told = [r for r in caplog.records if getattr(r, "notification_bus_event", "") == "mcp_not_ready"]
    assert len(told) == 1
    assert any("the broker is down" in r.getMessage() for r in caplog.records)


async def test_a_stream_opened_after_the_confirmation_is_told_nothing_that_did_not_happen() -> None:
    """The start of a server is no gap."""
    subscriptions = McpSubscriptions(MemoryBus())
    ear = Ear()
    async with subscriptions.lifespan():
        assert subscriptions.stats().ready
        subscriptions.subscribe(ear)
        await subscriptions.notify_resource_updated(TASK)
        assert await ear.until_hears(ResourceUpdated(TASK)) == [ResourceUpdated(TASK)]
