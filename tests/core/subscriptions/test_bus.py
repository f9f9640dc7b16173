"""A registry with a bus behind it: when a stream may open, and what the pump survives."""

import contextvars
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import anyio
import pytest

from notification_bus.bus import NotificationBus
from notification_bus.errors import (
    BusBackendError,
    BusClosedError,
    BusNotReadyError,
    NotificationBusError,
    NotificationTooLargeError,
)
from notification_bus.memory import MemoryBus
from notification_bus.notification import GAP, BusNotification
from notification_bus.subscriptions import (
    SubscriptionLimitError,
    SubscriptionRegistry,
    SubscriptionsClosedError,
    _pump,
)
from tests.core.subscriptions._support import (
    ACKNOWLEDGED,
    BOUND,
    EVERYTHING,
    TOOLS,
    OpenableScriptedBus,
    ScriptedBus,
    eventually,
    now,
    read,
    read_seen,
    tools,
    watching,
)


class TestReplicas:
    async def test_a_notification_reaches_the_streams_of_every_replica_once(self) -> None:
        async with (
            SubscriptionRegistry(MemoryBus("board")) as here,
            SubscriptionRegistry(MemoryBus("board")) as there,
            SubscriptionRegistry(MemoryBus("other")) as elsewhere,
            here.listen(1, tools()) as local,
            there.listen(1, tools()) as remote,
            elsewhere.listen(1, tools()) as foreign,
        ):
            for stream in (local, remote, foreign):
                await read(stream)
            await here.publish(BusNotification.tools_list_changed())
            assert await read_seen(local, 1) == [TOOLS]
            assert await read_seen(remote, 1) == [TOOLS]
            await eventually(lambda: there.stats().received == 1)
            assert await now(local) == await now(remote) == await now(foreign) == []

    async def test_the_notification_right_after_the_acknowledgment_arrives(self) -> None:
        """A stream that is acknowledged and misses the next change is the fault that this library exists to end."""
        async with SubscriptionRegistry(MemoryBus("board")) as here, SubscriptionRegistry(MemoryBus("board")) as there:
            for number in range(20):
                async with here.listen(number, tools()) as stream:
                    await read(stream)
                    await there.publish(BusNotification.tools_list_changed())
                    assert await read_seen(stream, 1) == [TOOLS]

    async def test_a_node_where_nobody_listens_publishes_all_the_same(self) -> None:
        async with SubscriptionRegistry(MemoryBus("board")) as here, SubscriptionRegistry(MemoryBus("board")) as there:
            assert not here.is_subscribed("a")
            async with there.listen(1, watching("a")) as stream:
                await here.publish(BusNotification.resource_updated("a"))
                assert await read_seen(stream, 2) == [ACKNOWLEDGED, "a"]

    async def test_what_the_caller_can_mend_is_raised_by_publish(self) -> None:
        async with SubscriptionRegistry(MemoryBus(max_body=10)) as registry:
            with pytest.raises(NotificationTooLargeError):
                await registry.publish(BusNotification.tools_list_changed())

    async def test_a_burst_with_a_client_that_does_not_read_reaches_the_one_that_does(self) -> None:
        async with (
            SubscriptionRegistry(MemoryBus()) as registry,
            registry.listen(1, watching("a", "b")) as reading,
            registry.listen(2, watching("a", "b")) as stalled,
        ):
            for number in range(1, 5001):
                await registry.publish(
                    BusNotification("notifications/resources/updated", {"uri": "ab"[number % 2], "n": number})
                )
            last: dict[str, object] = {}
            with anyio.fail_after(BOUND):
                async for message in reading:
                    last[message.params.get("uri", "")] = message.params.get("n")
                    if message.params.get("n") == 5000:
                        break
            await eventually(lambda: registry.stats().received == 5000)
            assert last["a"] == 5000
            assert await now(stalled) == [ACKNOWLEDGED, "b", "a"]


class TestReadiness:
    async def test_entering_does_not_wait_for_the_bus_and_a_stream_does(self) -> None:
        bus, opened = ScriptedBus(), list[str]()
        with anyio.fail_after(BOUND):
            async with SubscriptionRegistry(bus) as registry, anyio.create_task_group() as tasks:

                async def client() -> None:
                    async with registry.listen(1, tools()) as stream:
                        opened.append((await read(stream)).method)

                tasks.start_soon(client)
                await eventually(lambda: bus.attempts == 1)
                await anyio.wait_all_tasks_blocked()
                assert opened == []
                stats = registry.stats()
                assert (stats.ready, stats.arriving, stats.streams) == (False, 1, 0)
                bus.open.set()
                await eventually(lambda: bool(opened))
                stats = registry.stats()
                assert (stats.ready, stats.arriving) == (True, 0)
        assert opened == [ACKNOWLEDGED]

    async def test_a_bus_that_does_not_become_ready_refuses_the_stream_within_the_bound(self) -> None:
        async with SubscriptionRegistry(ScriptedBus(), ready_timeout=0.05) as registry:
            with anyio.fail_after(BOUND), pytest.raises(BusNotReadyError, match=r"not ready within 0\.05 s"):
                async with registry.listen(1, tools()):
                    pass
            with anyio.fail_after(BOUND), pytest.raises(BusNotReadyError, match=r"within 0\.01 s"):
                await registry.wait_ready(0.01)
            with anyio.fail_after(BOUND), pytest.raises(BusNotReadyError):
                await registry.wait_ready()
            stats = registry.stats()
            assert (stats.refused, stats.arriving, stats.streams) == (1, 0, 0)

    async def test_the_refusal_names_the_cause(self) -> None:
        bus = ScriptedBus()
        bus.refuse = ConnectionRefusedError("nobody is at 10.0.0.1:6379")
        async with SubscriptionRegistry(bus, ready_timeout=0.05) as registry:
            with anyio.fail_after(BOUND), pytest.raises(BusNotReadyError, match=r"nobody is at 10\.0\.0\.1") as caught:
                async with registry.listen(1, tools()):
                    pass
            assert caught.value.__cause__ is bus.refuse

    async def test_a_stream_that_arrives_while_the_bus_is_tried_again_opens_when_it_answers(self) -> None:
        bus = ScriptedBus()
        bus.open.set()
        bus.refuse = ConnectionRefusedError("not yet")
        async with SubscriptionRegistry(bus) as registry, anyio.create_task_group() as tasks:
            opened: list[str] = []

            async def client() -> None:
                async with registry.listen(1, tools()) as stream:
                    opened.append((await read(stream)).method)

            await eventually(lambda: bus.attempts >= 1)
            tasks.start_soon(client)
            await eventually(lambda: registry.stats().arriving == 1)
            bus.refuse = None
            await eventually(lambda: bool(opened))

    async def test_a_bus_that_breaks_the_moment_it_is_ready_keeps_a_stream_waiting(self) -> None:
        class Fickle(ScriptedBus):
            """Breaks its first subscription before anybody who waits for it has had a turn."""

            @asynccontextmanager
            async def _subscription(self) -> AsyncGenerator[AsyncIterator[BusNotification]]:
                async def broken() -> AsyncGenerator[BusNotification]:
                    raise OSError("broken at once")
                    yield GAP  # makes it a generator

                async with super()._subscription() as notifications:
                    yield broken() if self.attempts == 1 else notifications

        bus = Fickle()
        async with SubscriptionRegistry(bus, gap_spread=0) as registry, anyio.create_task_group() as tasks:
            opened: list[str] = []

            async def client() -> None:
                async with registry.listen(1, tools()) as stream:
                    opened.append((await read(stream)).method)

            tasks.start_soon(client)
            await eventually(lambda: registry.stats().arriving == 1)
            bus.open.set()
            await eventually(lambda: bool(opened))
            assert bus.attempts == 2

    async def test_those_who_arrive_take_a_place(self) -> None:
        bus = ScriptedBus()
        async with SubscriptionRegistry(bus, max_streams=1) as registry, anyio.create_task_group() as tasks:
            tasks.start_soon(registry.listen(1, tools()).__aenter__)
            await eventually(lambda: registry.stats().arriving == 1)
            with pytest.raises(SubscriptionLimitError):
                async with registry.listen(2, tools()):
                    pass
            tasks.cancel_scope.cancel()
        assert registry.stats().arriving == 0

    async def test_those_who_wait_while_the_registry_stops_are_told(self) -> None:
        registry, told = SubscriptionRegistry(ScriptedBus(), ready_timeout=0.2), list[type]()

        async def wait() -> None:
            try:
                await registry.wait_ready()
            except NotificationBusError as exc:
                told.append(type(exc))

        async def arrive() -> None:
            try:
                await registry.listen(1, tools()).__aenter__()
            except NotificationBusError as exc:
                told.append(type(exc))

        async with anyio.create_task_group() as tasks:
            async with registry:
                tasks.start_soon(wait)
                tasks.start_soon(arrive)
                await eventually(lambda: registry.stats().arriving == 1)
            async with registry:
                await eventually(lambda: len(told) == 2)
        assert told == [SubscriptionsClosedError, BusNotReadyError]

    async def test_wait_ready_returns_once_the_bus_is(self) -> None:
        bus = ScriptedBus()
        async with SubscriptionRegistry(bus) as registry, anyio.create_task_group() as tasks:
            tasks.start_soon(registry.wait_ready)
            await anyio.wait_all_tasks_blocked()
            bus.open.set()
        assert not registry.stats().ready


class TestEntering:
    async def test_the_bus_is_entered_and_left_with_the_registry_once(self) -> None:
        bus = OpenableScriptedBus()
        bus.open.set()
        registry = SubscriptionRegistry(bus)
        for _ in range(2):
            async with registry:
                assert bus.entered == 1
                async with registry:
                    assert bus.entered == 1
                await registry.publish(GAP)
                await registry.wait_ready()
                assert bus.subscriptions == 1
            assert (bus.entered, bus.subscriptions) == (0, 0)

    async def test_publish_works_as_soon_as_the_registry_is_entered(self) -> None:
        async with SubscriptionRegistry(MemoryBus()) as registry:
            await registry.publish(GAP)

    async def test_a_bus_that_cannot_be_entered_says_why_and_leaves_the_registry_closed(self) -> None:
        bus = OpenableScriptedBus()
        registry = SubscriptionRegistry(bus)
        bus.refuse_entering = BusBackendError("not on this library")
        with pytest.raises(BusBackendError, match="not on this library"):
            async with registry:
                pass
        with pytest.raises(BusClosedError):
            await registry.publish(GAP)
        bus.refuse_entering = None
        async with registry:
            assert bus.entered == 1

    async def test_everybody_who_enters_at_once_hears_why_it_failed(self) -> None:
        bus, heard = OpenableScriptedBus(), list[str]()
        bus.refuse_entering = BusBackendError("no")
        registry = SubscriptionRegistry(bus)

        async def enter() -> None:
            with pytest.raises(BusBackendError):
                await registry.__aenter__()
            heard.append("no")

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(enter)
        assert heard == ["no"] * 3

    async def test_a_cancelled_entering_leaves_nothing_behind(self) -> None:
        bus = OpenableScriptedBus()
        registry = SubscriptionRegistry(bus)
        with anyio.move_on_after(0):
            await registry.__aenter__()
        assert bus.entered == 0
        with pytest.raises(BusClosedError):
            await registry.publish(GAP)

    async def test_a_bus_that_fails_in_closing_is_warned_of_and_the_registry_closes(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bus = OpenableScriptedBus()
        bus.refuse_leaving = OSError("broken while closing")
        async with SubscriptionRegistry(bus):
            pass
        assert "broken while closing" in caplog.text
        assert bus.entered == 0

    async def test_stopping_leaves_no_task(self) -> None:
        def tasks() -> set[int]:
            return {task.id for task in anyio.get_running_tasks()}

        before = tasks()
        async with SubscriptionRegistry(MemoryBus(), gap_spread=BOUND) as registry, registry.listen(1, tools()):
            await registry.publish(GAP)
            await eventually(lambda: registry.stats().gaps == 1)
        assert tasks() <= before

    async def test_the_pump_runs_outside_the_context_of_whoever_entered(self) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
        found: list[str] = []

        class Curious(ScriptedBus):
            def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[BusNotification]]:
                found.append(variable.get())
                return super().subscribe()

        variable.set("a request")
        async with SubscriptionRegistry(Curious()):
            await eventually(lambda: bool(found))
        assert found == ["none"]

    def test_a_scripted_bus_is_a_bus(self) -> None:
        assert isinstance(ScriptedBus(), NotificationBus)


class TestPump:
    @pytest.mark.parametrize(
        "thing",
        [None, 7, {"method": TOOLS}, object(), BusNotification("notifications/resources/updated")],
        ids=["None", "int", "dict", "object", "update-without-uri"],
    )
    async def test_a_bus_that_yields_nonsense_is_read_on(self, thing: object, caplog: pytest.LogCaptureFixture) -> None:
        bus = ScriptedBus()
        bus.open.set()
        async with SubscriptionRegistry(bus) as registry, registry.listen(1, EVERYTHING) as stream:
            await read(stream)
            bus.feed(thing)
            bus.feed(BusNotification.tools_list_changed())
            assert await read_seen(stream, 1) == [TOOLS]
            assert (registry.stats().malformed, bus.attempts) == (1, 1)
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1

    async def test_a_flood_of_nonsense_is_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        bus = ScriptedBus()
        bus.open.set()
        async with SubscriptionRegistry(bus) as registry, registry.listen(1, tools()) as stream:
            for _ in range(500):
                bus.feed(None)
            bus.feed(BusNotification.tools_list_changed())
            assert await read_seen(stream, 2) == [ACKNOWLEDGED, TOOLS]
            assert registry.stats().malformed == 500
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2

    @pytest.mark.parametrize("broken", ["raises", "ends"])
    async def test_a_subscription_that_breaks_is_made_anew_and_the_streams_hear_of_the_gap(self, broken: str) -> None:
        bus = ScriptedBus()
        bus.open.set()
        async with SubscriptionRegistry(bus, gap_spread=0) as registry, registry.listen(1, watching("a")) as stream:
            await read(stream)
            if broken == "raises":
                bus.feed(OSError("connection reset"))
            else:
                bus.end()
            assert await read_seen(stream, 1) == ["a"], "what was published meanwhile is unknown"
            assert bus.attempts == 2
            assert registry.stats().gaps == 1
            bus.feed(BusNotification.resource_updated("a"))
            assert await read_seen(stream, 1) == ["a"]

    async def test_streams_that_are_open_stay_open_while_the_bus_is_away_and_new_ones_wait(self) -> None:
        bus = ScriptedBus()
        bus.open.set()
        async with (
            SubscriptionRegistry(bus, gap_spread=0, ready_timeout=0.02) as registry,
            registry.listen(1, tools()) as stream,
        ):
            await read(stream)
            bus.refuse = OSError("gone")
            bus.feed(OSError("connection reset"))
            await eventually(lambda: bus.attempts >= 2)
            assert await now(stream) == []
            with pytest.raises(BusNotReadyError, match="gone"):
                async with registry.listen(2, tools()):
                    pass
            assert not registry.stats().ready
            bus.refuse = None
            assert await read_seen(stream, 1) == [TOOLS]

    async def test_an_outage_is_warned_of_once_and_its_end_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        bus = ScriptedBus()
        bus.open.set()
        bus.refuse = OSError("nobody there")
        async with SubscriptionRegistry(bus) as registry:
            await eventually(lambda: bus.attempts >= 3)
            bus.refuse = None
            await registry.wait_ready()
        texts = [record.getMessage() for record in caplog.records if record.name == "notification_bus.subscriptions"]
        assert len(texts) == 2
        assert "nobody there" in texts[0]
        assert "again" in texts[1]

    async def test_an_outage_after_a_healthy_time_is_warned_of_and_ended_as_quickly_as_the_first(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(_pump, "LONGEST_PAUSE", 0.0)
        bus = ScriptedBus()
        bus.open.set()

        def tried_more_than(count: int) -> Callable[[], bool]:
            return lambda: bus.attempts > count

        async with SubscriptionRegistry(bus) as registry:
            for outage in range(1, 4):
                await registry.wait_ready()
                bus.feed(OSError(f"outage {outage}"))
                await eventually(tried_more_than(outage))
        warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [text[-8:] for text in warned] == ["outage 1", "outage 2", "outage 3"]

    async def test_a_pump_that_always_finds_something_gives_the_others_their_turns(self) -> None:
        class Endless(ScriptedBus):
            """Never waits, and so never yields to the event loop by itself."""

            @asynccontextmanager
            async def _subscription(self) -> AsyncGenerator[AsyncIterator[BusNotification]]:
                async def always() -> AsyncGenerator[BusNotification]:
                    while True:
                        yield BusNotification.tools_list_changed()

                async with aclosing(always()) as notifications:
                    yield notifications

        with anyio.fail_after(BOUND):
            async with SubscriptionRegistry(Endless()) as registry, registry.listen(1, tools()) as stream:
                assert await read_seen(stream, 2) == [ACKNOWLEDGED, TOOLS]


class TestGaps:
    async def test_a_gap_from_the_bus_is_told_to_every_stream_that_was_open(self) -> None:
        async with (
            SubscriptionRegistry(MemoryBus(), gap_spread=0.05) as registry,
            registry.listen(1, EVERYTHING) as one,
            registry.listen(2, tools()) as other,
        ):
            assert await read_seen(one, 1) == await read_seen(other, 1) == [ACKNOWLEDGED]
            await registry.publish(GAP)
            assert len(await read_seen(one, 5)) == 5
            assert await read_seen(other, 1) == [TOOLS]
            await eventually(lambda: registry.stats().told == 2)
            assert await now(one) == await now(other) == []

    async def test_a_gap_read_from_the_wire_counts_as_one(self) -> None:
        async with SubscriptionRegistry(MemoryBus(), gap_spread=0) as registry, registry.listen(1, tools()) as stream:
            await registry.publish(BusNotification.decode(b'{"method":"notifications/bus/gap"}'))
            assert await read_seen(stream, 2) == [ACKNOWLEDGED, TOOLS]

    async def test_a_stream_that_opens_after_a_gap_is_not_told_of_it(self) -> None:
        async with (
            SubscriptionRegistry(MemoryBus(), gap_spread=0.05) as registry,
            registry.listen(1, tools()) as before,
        ):
            await registry.publish(GAP)
            await eventually(lambda: registry.stats().gaps == 1)
            async with registry.listen(2, tools()) as after:
                assert await read_seen(before, 2) == [ACKNOWLEDGED, TOOLS]
                assert await now(after) == [ACKNOWLEDGED]
                assert registry.stats().told == 1

    async def test_many_gaps_in_a_row_are_told_once_and_once_more(self) -> None:
        async with (
            SubscriptionRegistry(MemoryBus(), gap_spread=0, gap_interval=0.5) as registry,
            registry.listen(1, tools()) as stream,
        ):
            await read(stream)
            await registry.publish(GAP)
            assert await read_seen(stream, 1) == [TOOLS]
            for _ in range(100):
                await registry.publish(GAP)
            await eventually(lambda: registry.stats().gaps == 101)
            assert await read_seen(stream, 1) == [TOOLS]
            assert registry.stats().told == 2
            assert registry._telling is not None
            with anyio.fail_after(BOUND):
                await registry._telling.wait()
            assert await now(stream) == []

    async def test_a_later_gap_starts_telling_again(self) -> None:
        async with (
            SubscriptionRegistry(MemoryBus(), gap_spread=0, gap_interval=0) as registry,
            registry.listen(1, tools()) as stream,
        ):
            await read(stream)
            for _ in range(3):
                await registry.publish(GAP)
                assert await read_seen(stream, 1) == [TOOLS]

    async def test_a_gap_that_nobody_was_open_for_starts_nothing(self) -> None:
        async with SubscriptionRegistry(MemoryBus()) as registry:
            await registry.publish(GAP)
            await eventually(lambda: registry.stats().gaps == 1)
            assert registry._telling is None

    async def test_a_stream_that_leaves_before_its_turn_is_told_nothing(self) -> None:
        async with SubscriptionRegistry(MemoryBus(), gap_spread=0.05) as registry:
            async with registry.listen(1, tools()) as stream:
                await read(stream)
                await registry.publish(GAP)
                await eventually(lambda: registry.stats().gaps == 1)
            assert registry._telling is not None
            with anyio.fail_after(BOUND):
                await registry._telling.wait()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
