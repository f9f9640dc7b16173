"""The two phases of a shutdown: streams end and hand over their results, and only then may the transport go."""

import asyncio
import signal
from collections.abc import Callable

import anyio
import pytest
import trio

from notification_bus._loops import current_loop
from notification_bus.notification import BusNotification
from notification_bus.subscriptions import SubscriptionMessage, SubscriptionRegistry, SubscriptionsClosedError
from tests.core.subscriptions._support import (
    ACKNOWLEDGED,
    BOUND,
    TOOLS,
    ScriptedBus,
    eventually,
    now,
    read,
    rest,
    seen,
    serve,
    tools,
    watching,
)


class Client:
    """The far end of a stream: what it was sent, whether it got its final result, and whether it reads at all."""

    def __init__(self, *, reads: bool = True) -> None:
        self.sent: list[str] = []
        self.finished = False
        self.reads = anyio.Event()
        if reads:
            self.reads.set()

    async def send(self, message: SubscriptionMessage) -> None:
        await self.reads.wait()
        self.sent.append(seen(message))

    async def finish(self) -> None:
        await self.reads.wait()
        self.finished = True


def call_soon(function: Callable[[], None]) -> None:
    """As a signal handler does: there is no task around the call."""
    loop = current_loop()
    schedule: Callable[[Callable[[], None]], object] = (
        loop.call_soon_threadsafe
        if isinstance(loop, asyncio.AbstractEventLoop)
        else trio.lowlevel.current_trio_token().run_sync_soon
    )
    schedule(function)


async def test_each_of_two_hundred_streams_gets_its_final_result() -> None:
    clients = [Client() for _ in range(200)]
    async with SubscriptionRegistry() as registry, anyio.create_task_group() as tasks:
        for number, client in enumerate(clients):
            tasks.start_soon(serve, registry, number, tools(), client.send, client.finish)
        await eventually(lambda: registry.stats().streams == 200)
        with anyio.fail_after(BOUND):
            assert await registry.drain() == 0
        assert all(client.finished and client.sent == [ACKNOWLEDGED] for client in clients)
        assert registry.stats().streams == 0


async def test_a_drain_waits_for_the_result_that_is_still_to_be_handed_over() -> None:
    quick, slow, drained = Client(), Client(reads=False), list[int]()
    async with SubscriptionRegistry(drain=BOUND) as registry, anyio.create_task_group() as tasks:

        async def drain() -> None:
            drained.append(await registry.drain())

        for number, client in enumerate((quick, slow)):
            tasks.start_soon(serve, registry, number, tools(), client.send, client.finish)
        await eventually(lambda: registry.stats().streams == 2)
        tasks.start_soon(drain)
        tasks.start_soon(drain)
        await eventually(lambda: quick.finished)
        await anyio.wait_all_tasks_blocked()
        assert drained == [], "the slow one has not got its result"
        slow.reads.set()
        await eventually(lambda: len(drained) == 2)
        assert drained == [0, 0]
        assert slow.finished
        assert slow.sent == [ACKNOWLEDGED]


async def test_what_waits_is_told_before_the_end_and_nothing_that_comes_after_the_signal() -> None:
    async with SubscriptionRegistry(drain=0.05) as registry, registry.listen(1, watching("a", "b")) as stream:
        await registry.publish(BusNotification.resource_updated("a"))
        registry.begin_drain()
        await registry.publish(BusNotification.resource_updated("b"))
        assert not registry.is_subscribed("b")
        assert await rest(stream) == [ACKNOWLEDGED, "a"]


async def test_a_client_that_does_not_read_holds_up_a_drain_no_longer_than_its_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stuck = Client(reads=False)
    async with SubscriptionRegistry(drain=0.05) as registry, anyio.create_task_group() as tasks:
        tasks.start_soon(serve, registry, 1, tools(), stuck.send, stuck.finish)
        await eventually(lambda: registry.stats().streams == 1)
        with anyio.fail_after(BOUND):
            assert await registry.drain() == 1
            assert "1 streams had not handed over" in caplog.text
            assert await registry.drain(timeout=0.01) == 1
            stuck.reads.set()
            assert await registry.drain(timeout=BOUND) == 0
    assert stuck.finished


async def test_the_bound_counts_from_the_signal() -> None:
    async with SubscriptionRegistry(drain=BOUND * 100) as registry, registry.listen(1, tools()):
        registry._signalled = -BOUND * 1000
        registry._table.begin_drain()
        with anyio.fail_after(BOUND):
            assert await registry.drain() == 1
            await registry.aclose()


async def test_a_drain_without_streams_waits_for_nothing() -> None:
    async with SubscriptionRegistry(drain=BOUND * 100) as registry:
        with anyio.fail_after(BOUND):
            assert await registry.drain() == 0
    async with SubscriptionRegistry(drain=BOUND * 100) as registry:
        async with registry.listen(1, tools()):
            pass
        with anyio.fail_after(BOUND):
            assert await registry.drain() == 0


async def test_after_the_signal_no_stream_is_opened_until_the_registry_starts_anew() -> None:
    registry = SubscriptionRegistry()
    async with registry:
        registry.begin_drain()
        registry.begin_drain()
        assert registry.stats().draining
        with pytest.raises(SubscriptionsClosedError, match=r"shutting down .* another replica"):
            async with registry.listen(1, tools()):
                pass
        assert registry.stats().refused == 1
    with pytest.raises(SubscriptionsClosedError):
        async with registry.listen(1, tools()):
            pass
    async with registry, registry.listen(1, tools()) as stream:
        assert not registry.stats().draining
        assert await now(stream) == [ACKNOWLEDGED]


async def test_a_stream_that_is_still_arriving_is_waited_for_and_refused() -> None:
    bus, refused = ScriptedBus(), list[str]()
    async with (
        SubscriptionRegistry(bus, drain=BOUND, ready_timeout=BOUND * 100) as registry,
        anyio.create_task_group() as tasks,
    ):

        async def arrive() -> None:
            try:
                async with registry.listen(1, tools()):
                    refused.append("it was opened")
            except SubscriptionsClosedError:
                refused.append("refused")

        tasks.start_soon(arrive)
        await eventually(lambda: registry.stats().arriving == 1)
        with anyio.fail_after(BOUND):
            assert await registry.drain() == 0
        assert refused == ["refused"]
        assert registry.stats().arriving == 0


async def test_a_stream_whose_bus_becomes_ready_together_with_the_signal_is_refused() -> None:
    bus = ScriptedBus()
    async with SubscriptionRegistry(bus, ready_timeout=BOUND) as registry:
        outcome: list[str] = []

        async def arrive() -> None:
            try:
                async with registry.listen(1, tools()):
                    outcome.append("it was opened")
            except SubscriptionsClosedError:
                outcome.append("refused")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(arrive)
            await eventually(lambda: registry.stats().arriving == 1)
            assert registry._pump is not None
            registry._pump._ready.set()
            registry.begin_drain()
        assert outcome == ["refused"]
        assert registry.stats().streams == 0


async def test_leaving_the_registry_waits_for_the_results() -> None:
    client = Client()
    async with anyio.create_task_group() as tasks:
        async with SubscriptionRegistry() as registry:
            tasks.start_soon(serve, registry, 1, tools(), client.send, client.finish)
            await eventually(lambda: registry.stats().streams == 1)
        assert client.finished


async def test_leaving_a_cancelled_registry_waits_for_the_results_too() -> None:
    client = Client()
    registry = SubscriptionRegistry()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with registry:
                tasks.start_soon(serve, registry, 1, tools(), client.send, client.finish)
                await eventually(lambda: registry.stats().streams == 1)
                scope.cancel()
                await anyio.sleep_forever()
        assert client.finished


async def test_a_stream_that_outlives_the_registry_ends_and_does_not_touch_the_next_start() -> None:
    registry = SubscriptionRegistry(drain=0.01)
    async with registry:
        old = await registry.listen(1, tools()).__aenter__()
        await read(old)
    async with registry, registry.listen(1, tools()) as new:
        assert await rest(old) == []
        await old.__aexit__(None, None, None)
        await registry.publish(BusNotification.tools_list_changed())
        assert await now(new) == [ACKNOWLEDGED, TOOLS]
        assert registry.stats().streams == 1


async def test_a_result_written_by_somebody_else_is_waited_for_after_the_stream_was_left() -> None:
    handed_over, drained = list[Callable[[], None]](), list[int]()
    async with SubscriptionRegistry(drain=BOUND) as registry, anyio.create_task_group() as tasks:

        async def handle() -> None:
            async with registry.listen(1, tools()) as stream:
                async for _ in stream:
                    pass
                handed_over.append(stream.defer_result())

        async def drain() -> None:
            drained.append(await registry.drain())

        tasks.start_soon(handle)
        await eventually(lambda: registry.stats().streams == 1)
        tasks.start_soon(drain)
        await eventually(lambda: bool(handed_over) and registry.stats().streams == 0)
        await anyio.wait_all_tasks_blocked()
        assert drained == []
        handed_over[0]()
        handed_over[0]()
        await eventually(lambda: drained == [0])


async def test_a_drain_that_begins_after_the_stream_was_left_waits_for_its_result_too() -> None:
    async with SubscriptionRegistry(drain=0.01) as registry:
        async with registry.listen(1, tools()) as stream:
            handed_over = stream.defer_result()
        assert await registry.drain() == 1
        handed_over()
        assert await registry.drain() == 0


async def test_a_handler_that_is_cancelled_is_not_waited_for() -> None:
    client = Client(reads=False)
    async with SubscriptionRegistry(drain=BOUND * 100) as registry, anyio.create_task_group() as tasks:
        tasks.start_soon(serve, registry, 1, tools(), client.send, client.finish)
        await eventually(lambda: registry.stats().streams == 1)
        tasks.cancel_scope.cancel()
    assert not client.finished
    assert registry.stats().streams == 0


async def test_the_signal_may_come_from_a_callback_of_the_event_loop() -> None:
    client = Client()
    async with SubscriptionRegistry() as registry, anyio.create_task_group() as tasks:
        tasks.start_soon(serve, registry, 1, tools(), client.send, client.finish)
        await eventually(lambda: registry.stats().streams == 1)
        call_soon(registry.begin_drain)
        await eventually(lambda: client.finished)


async def test_a_callback_may_refuse_those_who_are_arriving() -> None:
    bus = ScriptedBus()
    async with SubscriptionRegistry(bus, ready_timeout=BOUND * 100) as registry, anyio.create_task_group() as tasks:

        async def arrive() -> None:
            with pytest.raises(SubscriptionsClosedError):
                await registry.listen(1, tools()).__aenter__()

        tasks.start_soon(arrive)
        await eventually(lambda: registry.stats().arriving == 1)
        call_soon(registry.begin_drain)
        await eventually(lambda: registry.stats().arriving == 0)


async def test_a_signal_ends_the_streams_before_its_handler_is_asked_for_more() -> None:
    """What is installed is taken back, and who handled it before has heard it."""
    heard: list[str] = []

    def theirs(*_: object) -> None:
        heard.append("theirs")

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        async with SubscriptionRegistry() as registry, registry.listen(1, tools()) as stream:
            with registry.draining_on_signals():
                assert await read(stream)
                signal.raise_signal(signal.SIGTERM)
                assert heard == ["theirs"]
                assert await rest(stream) == []
                with pytest.raises(SubscriptionsClosedError):
                    await registry.listen(2, tools()).__aenter__()
            assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
