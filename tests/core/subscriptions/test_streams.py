"""Streams on a node without a bus: what each is told, in which order, and how it ends."""

import json
from collections.abc import AsyncIterator

import anyio
import pytest

from notification_bus.errors import BusClosedError, NotificationTooLargeError
from notification_bus.notification import DEFAULT_MAX_BODY, GAP, BusNotification
from notification_bus.subscriptions import (
    Capabilities,
    InvalidSubscriptionIdError,
    SubscriptionFilter,
    SubscriptionLimitError,
    SubscriptionRegistry,
)
from tests.core.subscriptions._support import (
    ACKNOWLEDGED,
    BOUND,
    EVERYTHING,
    ID,
    PROMPTS,
    RESOURCES,
    TOOLS,
    UPDATED,
    now,
    read,
    read_seen,
    rest,
    tools,
    watching,
)


@pytest.fixture
async def registry() -> AsyncIterator[SubscriptionRegistry]:
    async with SubscriptionRegistry(drain=0.05) as open_registry:
        yield open_registry


async def publish_everything(registry: SubscriptionRegistry) -> None:
    for method in (TOOLS, PROMPTS, RESOURCES):
        await registry.publish(BusNotification(method))
    for uri in ("board://a", "board://b", "board://c"):
        await registry.publish(BusNotification.resource_updated(uri))


class TestAcknowledgment:
    async def test_it_comes_first_with_the_accepted_filter_whatever_was_published_before_it_was_read(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(7, EVERYTHING) as stream:
            await publish_everything(registry)
            await registry.publish(GAP)
            first = await read(stream)
            assert first.to_wire() == {
                "method": ACKNOWLEDGED,
                "params": {"notifications": EVERYTHING.to_wire(), "_meta": {ID: 7}},
            }
            assert await read_seen(stream, 5) == [TOOLS, PROMPTS, RESOURCES, "board://a", "board://b"]

    async def test_it_comes_first_on_a_stream_that_is_ended_before_it_was_read(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, tools()) as stream:
            await registry.publish(BusNotification.tools_list_changed())
            registry.begin_drain()
            assert await rest(stream) == [ACKNOWLEDGED, TOOLS]

    async def test_it_shows_what_can_be_pushed_and_nothing_else_is(self, registry: SubscriptionRegistry) -> None:
        registry.capabilities = Capabilities(prompts_list_changed=False, resources_subscribe=False)
        asked = SubscriptionFilter.from_wire({**EVERYTHING.to_wire(), "taskIds": ["t"]})
        async with registry.listen(1, asked) as stream:
            await publish_everything(registry)
            accepted = (await read(stream)).params["notifications"]
            assert accepted == stream.accepted.to_wire() == {"toolsListChanged": True, "resourcesListChanged": True}
            assert await now(stream) == [TOOLS, RESOURCES]

    async def test_an_advertised_extension_is_acknowledged(self, registry: SubscriptionRegistry) -> None:
        registry.capabilities = Capabilities(extensions=frozenset({"taskIds"}))
        async with registry.listen(1, SubscriptionFilter.from_wire({"taskIds": ["t"]})) as stream:
            assert (await read(stream)).params["notifications"] == {"taskIds": ["t"]}

    async def test_a_filter_of_which_nothing_is_accepted_opens_a_stream_that_says_so(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, SubscriptionFilter()) as stream:
            await publish_everything(registry)
            await registry.publish(GAP)
            assert (await read(stream)).params["notifications"] == {}
            assert await now(stream) == []
            registry.begin_drain()
            assert await rest(stream) == []

    async def test_such_a_stream_ends_after_its_acknowledgment_where_that_is_asked_for(self) -> None:
        async with SubscriptionRegistry(
            end_empty=True, capabilities=Capabilities(tools_list_changed=False)
        ) as registry:
            async with registry.listen(1, tools()) as stream:
                assert await rest(stream) == [ACKNOWLEDGED]
            async with registry.listen(1, watching("a")) as stream:
                await read(stream)
                assert await now(stream) == []

    async def test_a_stream_that_has_an_extension_to_serve_is_not_empty(self) -> None:
        able = Capabilities(extensions=frozenset({"taskIds"}))
        async with (
            SubscriptionRegistry(end_empty=True, capabilities=able) as registry,
            registry.listen(1, SubscriptionFilter(extra={"taskIds": ["t"]})) as stream,
        ):
            await read(stream)
            assert await now(stream) == []


class TestIds:
    @pytest.mark.parametrize("subscription_id", [0, 1, -5, 2**53 + 1, "1", "", "ünï", "a" * 1000], ids=ascii)
    async def test_each_message_carries_the_id_as_the_client_wrote_it(
        self, registry: SubscriptionRegistry, subscription_id: int | str
    ) -> None:
        async with registry.listen(subscription_id, EVERYTHING) as stream:
            await publish_everything(registry)
            for _ in range(6):
                found = json.loads(json.dumps((await read(stream)).to_wire()))["params"]["_meta"][ID]
                assert (type(found), found) == (type(subscription_id), subscription_id)
            assert stream.meta == {ID: subscription_id}

    async def test_streams_with_the_same_id_are_strangers(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, tools()) as one:
            async with registry.listen(1, tools()) as other, registry.listen("1", tools()) as third:
                await registry.publish(BusNotification.tools_list_changed())
                for stream in (one, other, third):
                    assert await read_seen(stream, 2) == [ACKNOWLEDGED, TOOLS]
            await registry.publish(BusNotification.tools_list_changed())
            assert await now(one) == [TOOLS]

    @pytest.mark.parametrize("subscription_id", [None, 1.0, True, b"1"])
    async def test_an_id_that_no_request_can_have_is_refused(
        self, registry: SubscriptionRegistry, subscription_id: object
    ) -> None:
        with pytest.raises(InvalidSubscriptionIdError, match=f"{type(subscription_id).__name__}.*give the id"):
            async with registry.listen(subscription_id, tools()):  # type: ignore[arg-type]
                pass
        assert registry.stats().refused == 1


class TestDelivery:
    async def test_a_stream_is_told_what_its_filter_admits_and_no_more(self, registry: SubscriptionRegistry) -> None:
        filters = {
            TOOLS: tools(),
            PROMPTS: SubscriptionFilter(prompts_list_changed=True),
            RESOURCES: SubscriptionFilter(resources_list_changed=True),
            "board://c": watching("board://c"),
        }
        for expected, asked in filters.items():
            async with registry.listen(1, asked) as stream:
                await publish_everything(registry)
                assert await now(stream) == [ACKNOWLEDGED, expected]

    async def test_what_was_published_before_it_opened_is_not_told(self, registry: SubscriptionRegistry) -> None:
        await publish_everything(registry)
        async with registry.listen(1, EVERYTHING) as stream:
            assert await now(stream) == [ACKNOWLEDGED]

    async def test_the_params_travel_along_and_what_others_say_about_the_stream_does_not(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(7, watching("a")) as stream:
            await read(stream)
            await registry.publish(
                BusNotification(UPDATED, {"uri": "a", "title": "A", "_meta": {ID: 666, "trace": "t-1"}})
            )
            assert (await read(stream)).params == {"uri": "a", "title": "A", "_meta": {ID: 7, "trace": "t-1"}}
            await registry.publish(BusNotification(UPDATED, {"uri": "a", "_meta": "nonsense"}))
            assert (await read(stream)).params == {"uri": "a", "_meta": {ID: 7}}

    async def test_a_list_change_with_or_without_params_has_params_with_the_id(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(7, tools()) as stream:
            await read(stream)
            for params, expected in ((None, {}), ({}, {}), ({"hint": [1]}, {"hint": [1]})):
                await registry.publish(BusNotification(TOOLS, params))
                assert (await read(stream)).params == {**expected, "_meta": {ID: 7}}

    async def test_a_message_that_a_reader_changes_is_not_changed_for_the_others(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, watching("a")) as one, registry.listen(2, watching("a")) as other:
            for stream in (one, other):
                (await read(stream)).params["notifications"]["resourceSubscriptions"].append("b")
            await registry.publish(BusNotification(UPDATED, {"uri": "a", "deep": {"list": [1]}, "_meta": {"x": {}}}))
            message = await read(one)
            message.params["deep"]["list"].append(2)
            message.params["_meta"]["x"]["y"] = 1
            assert (await read(other)).params == {"uri": "a", "deep": {"list": [1]}, "_meta": {"x": {}, ID: 2}}
            assert one.accepted == watching("a")

    async def test_the_params_of_a_list_change_are_each_streams_own(self, registry: SubscriptionRegistry) -> None:
        notification = BusNotification(TOOLS, {"names": ["a"]})
        async with registry.listen(1, tools()) as one, registry.listen(2, tools()) as other:
            for stream in (one, other):
                await read(stream)
            await registry.publish(notification)
            (await read(one)).params["names"].append("b")
            assert (await read(other)).params == {"names": ["a"], "_meta": {ID: 2}}
            assert notification == BusNotification(TOOLS, {"names": ["a"]})

    async def test_a_uri_spelt_like_a_method_is_a_uri(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, watching(TOOLS, "0")) as stream:
            await publish_everything(registry)
            assert await now(stream) == [ACKNOWLEDGED]
            await registry.publish(BusNotification.resource_updated(TOOLS))
            assert (await read(stream)).to_wire() == {"method": UPDATED, "params": {"uri": TOOLS, "_meta": {ID: 1}}}

    @pytest.mark.parametrize(
        "method",
        [
            "notifications/progress",
            "notifications/message",
            "notifications/tasks",
            "notifications/cancelled",
            "notifications/elicitation/complete",
            "notifications/bus/probe",
            ACKNOWLEDGED,
        ],
    )
    async def test_what_cannot_be_subscribed_to_is_counted_and_never_delivered(
        self, registry: SubscriptionRegistry, method: str
    ) -> None:
        async with registry.listen(1, EVERYTHING) as stream:
            await registry.publish(BusNotification(method, {"uri": "board://a"}))
            await registry.publish(BusNotification.tools_list_changed())
            assert await now(stream) == [ACKNOWLEDGED, TOOLS]
        assert registry.stats().ignored == 1

    @pytest.mark.parametrize("params", [None, {}, {"uri": None}, {"uri": 7}, {"uri": ["board://a"]}])
    async def test_an_update_of_nothing_is_counted_warned_of_and_skipped(
        self, registry: SubscriptionRegistry, params: dict[str, None], caplog: pytest.LogCaptureFixture
    ) -> None:
        async with registry.listen(1, EVERYTHING) as stream:
            await registry.publish(BusNotification(UPDATED, params))
            assert await now(stream) == [ACKNOWLEDGED]
        assert registry.stats().malformed == 1
        assert "without a URI" in caplog.text

    async def test_what_the_caller_can_mend_is_raised_without_a_bus_too(self, registry: SubscriptionRegistry) -> None:
        with pytest.raises(NotificationTooLargeError):
            await registry.publish(BusNotification(TOOLS, {"x": "x" * DEFAULT_MAX_BODY}))
        with pytest.raises(TypeError, match="takes a BusNotification, not dict"):
            await registry.publish({"method": TOOLS})  # type: ignore[arg-type]

    async def test_a_burst_gives_the_readers_their_turns(self, registry: SubscriptionRegistry) -> None:
        found = 0
        async with registry.listen(1, tools()) as stream, anyio.create_task_group() as tasks:

            async def follow() -> None:
                nonlocal found
                async for _ in stream:
                    found += 1

            tasks.start_soon(follow)
            # 100 turns, of which trio gives a reader two in three: it runs what is due in a random order.
            for _ in range(6400):
                await registry.publish(BusNotification.tools_list_changed())
            assert found >= 20
            tasks.cancel_scope.cancel()

    async def test_without_a_bus_a_gap_is_told_at_once(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, EVERYTHING) as stream, registry.listen(2, tools()) as other:
            await read(stream)
            await registry.publish(BusNotification(UPDATED, {"uri": "board://b", "version": 1}))
            await registry.publish(GAP)
            assert await read_seen(stream, 1) == ["board://b"], "first in the order of waiting, now without its params"
            assert await now(stream) == [TOOLS, PROMPTS, RESOURCES, "board://a"]
            assert await now(other) == [ACKNOWLEDGED, TOOLS]
        assert (registry.stats().gaps, registry.stats().told) == (1, 2)

    async def test_a_gap_takes_params_that_may_be_out_of_date(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, watching("a")) as stream:
            await read(stream)
            await registry.publish(BusNotification(UPDATED, {"uri": "a", "version": 1}))
            await registry.publish(GAP)
            assert (await read(stream)).params == {"uri": "a", "_meta": {ID: 1}}


class TestReading:
    async def test_a_burst_is_told_as_its_last_change_to_whoever_did_not_read(
        self, registry: SubscriptionRegistry
    ) -> None:
        """The stalled client of issue 5: neither stream ends, and each has the last change."""
        async with registry.listen(1, EVERYTHING) as reading, registry.listen(2, EVERYTHING) as stalled:
            last: dict[str, int] = {}

            async def follow() -> None:
                async for message in reading:
                    if message.method == UPDATED:
                        last[message.params["uri"]] = message.params["n"]
                    if last.get("board://b") == 5000:
                        return

            with anyio.fail_after(BOUND):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(follow)
                    for number in range(1, 5001):
                        uri = "board://a" if number % 2 else "board://b"
                        await registry.publish(BusNotification(UPDATED, {"uri": uri, "n": number}))
            assert last == {"board://a": 4999, "board://b": 5000}
            await read(stalled)
            assert [(await read(stalled)).params["n"] for _ in range(2)] == [4999, 5000]
            assert await now(stalled) == []
            assert registry.stats().coalesced >= 4998

    async def test_a_reader_that_waits_is_woken(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, tools()) as stream:
            await read(stream)
            found: list[str] = []

            async def follow() -> None:
                found.append((await read(stream)).method)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.wait_all_tasks_blocked()
                assert found == []
                await registry.publish(BusNotification.tools_list_changed())
            assert found == [TOOLS]

    async def test_a_cancelled_read_loses_nothing(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, watching(*map(str, range(200)))) as stream:
            await read(stream)
            for number in range(200):
                await registry.publish(BusNotification.resource_updated(str(number)))
            found: list[str] = []
            while len(found) < 200:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    found.append((await anext(stream)).params["uri"])
                with anyio.move_on_after(0):
                    await anyio.sleep_forever()
                if scope.cancelled_caught:
                    found.append((await read(stream)).params["uri"])
            assert found == list(map(str, range(200)))
            assert await now(stream) == []
            await registry.publish(BusNotification.resource_updated("7"))
            assert await now(stream) == ["7"], "also after a read that was cancelled while it waited"

    async def test_a_reader_of_a_full_mailbox_gives_the_others_their_turns(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, watching(*map(str, range(1000)))) as stream:
            await registry.publish(GAP)
            turns = 0

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    await anyio.lowlevel.checkpoint()
                    turns += 1

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(count_turns)
                for _ in range(1001):
                    await anext(stream)
                tasks.cancel_scope.cancel()
            assert turns >= 10

    async def test_two_tasks_cannot_read_one_stream_at_once(self, registry: SubscriptionRegistry) -> None:
        async with registry.listen(1, tools()) as stream, anyio.create_task_group() as tasks:
            await read(stream)
            tasks.start_soon(read, stream)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(anyio.BusyResourceError):
                await anext(stream)
            await registry.publish(BusNotification.tools_list_changed())

    async def test_leaving_from_another_task_wakes_the_reader_and_ends_it(self, registry: SubscriptionRegistry) -> None:
        stream = await registry.listen(1, tools()).__aenter__()
        ended: list[list[str]] = []

        async def follow() -> None:
            ended.append(await rest(stream))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            await stream.__aexit__(None, None, None)
        assert ended == [[ACKNOWLEDGED]]

    async def test_a_stream_that_has_been_left_yields_nothing_not_even_its_acknowledgment(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, tools()) as stream:
            await registry.publish(BusNotification.tools_list_changed())
        assert await rest(stream) == []
        await stream.__aexit__(None, None, None)

    async def test_a_stream_is_entered_once_and_before_it_is_read(self, registry: SubscriptionRegistry) -> None:
        stream = registry.listen(1, tools())
        for use in (stream.end, stream.defer_result, lambda: stream.accepted):
            with pytest.raises(RuntimeError, match="has not been entered"):
                use()
        with pytest.raises(RuntimeError, match="has not been entered"):
            await anext(stream)
        async with stream:
            with pytest.raises(RuntimeError, match="entered before"):
                await stream.__aenter__()

    async def test_a_stream_that_was_left_before_it_was_entered_cannot_be_entered(
        self, registry: SubscriptionRegistry
    ) -> None:
        stream = registry.listen(1, tools())
        await stream.__aexit__(None, None, None)
        with pytest.raises(RuntimeError, match="entered before"):
            await stream.__aenter__()

    async def test_a_stream_that_its_handler_ends_tells_what_waits_and_no_more(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, watching("a")) as stream, registry.listen(2, watching("a")) as other:
            await registry.publish(BusNotification.resource_updated("a"))
            stream.end()
            await registry.publish(BusNotification.resource_updated("a"))
            await registry.publish(GAP)
            assert await rest(stream) == [ACKNOWLEDGED, "a"]
            assert await now(other) == [ACKNOWLEDGED, "a"]

    async def test_a_stream_ends_gracefully_at_the_end_of_its_lifetime(self) -> None:
        async with SubscriptionRegistry(max_lifetime=0.05) as registry, registry.listen(1, tools()) as stream:
            assert await rest(stream) == [ACKNOWLEDGED]
            assert not registry.is_subscribed("a")

    async def test_a_stream_that_always_has_something_to_say_ends_at_the_end_of_its_lifetime(self) -> None:
        async with SubscriptionRegistry(max_lifetime=0.05) as registry, registry.listen(1, tools()) as stream:
            with anyio.fail_after(BOUND):
                await registry.publish(BusNotification.tools_list_changed())
                async for _ in stream:
                    await registry.publish(BusNotification.tools_list_changed())

    async def test_a_stream_that_is_dropped_is_warned_of_and_forgotten(self, registry: SubscriptionRegistry) -> None:
        streams = [await registry.listen(1, watching("a")).__aenter__()]
        assert registry.stats().streams == 1
        with pytest.warns(ResourceWarning, match="dropped without being left"):
            streams.clear()
        assert (registry.stats().streams, registry.is_subscribed("a")) == (0, False)


class TestNode:
    async def test_is_subscribed_answers_for_the_streams_that_are_open(self, registry: SubscriptionRegistry) -> None:
        assert not registry.is_subscribed("a")
        async with registry.listen(1, watching("a", "b")):
            async with registry.listen(2, watching("a")):
                assert registry.is_subscribed("a")
            assert registry.is_subscribed("a")
            assert not registry.is_subscribed("A")
            assert registry.stats().uris == 2
        assert not registry.is_subscribed("a")
        assert registry.stats().uris == 0

    async def test_a_stream_that_fails_or_is_cancelled_is_forgotten(self, registry: SubscriptionRegistry) -> None:
        with pytest.raises(ZeroDivisionError):
            async with registry.listen(1, watching("a")):
                raise ZeroDivisionError
        with anyio.move_on_after(0):
            async with registry.listen(1, watching("a")):
                await anyio.sleep_forever()
        assert not registry.is_subscribed("a")
        assert registry.stats().streams == 0

    async def test_streams_may_come_and_go_while_they_are_told(self, registry: SubscriptionRegistry) -> None:
        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks:

                async def visit(number: int) -> None:
                    for _ in range(5):
                        async with registry.listen(number, watching("a")) as stream:
                            assert await read_seen(stream, 2) == [ACKNOWLEDGED, "a"]

                async def keep_publishing() -> None:
                    while True:
                        await registry.publish(BusNotification.resource_updated("a"))

                tasks.start_soon(keep_publishing)
                async with anyio.create_task_group() as visitors:
                    for number in range(20):
                        visitors.start_soon(visit, number)
                tasks.cancel_scope.cancel()
        assert registry.stats().streams == 0
        assert registry.stats().opened == 100

    async def test_without_a_bus_there_is_no_task(self, anyio_backend_name: str) -> None:
        def tasks() -> set[str]:
            return {task.name or "" for task in anyio.get_running_tasks()}

        before = tasks()
        async with SubscriptionRegistry() as registry, registry.listen(1, tools()) as stream:
            await registry.publish(BusNotification.tools_list_changed())
            await registry.publish(GAP)
            assert await now(stream) == [ACKNOWLEDGED, TOOLS]
            assert tasks() == before


class TestLimits:
    async def test_one_stream_too_many_is_refused_and_a_place_that_is_left_can_be_taken(self) -> None:
        async with SubscriptionRegistry(max_streams=2) as registry, registry.listen(1, tools()) as first:
            async with registry.listen(2, tools()):
                with pytest.raises(SubscriptionLimitError, match="at most 2: try again later") as caught:
                    async with registry.listen(3, tools()):
                        pass
                assert (caught.value.limit, caught.value.value, caught.value.allowed) == ("max_streams", 2, 2)
            async with registry.listen(4, tools()):
                await registry.publish(BusNotification.tools_list_changed())
            assert await now(first) == [ACKNOWLEDGED, TOOLS]
            assert registry.stats().refused == 1

    async def test_a_hundred_thousand_uris_are_refused_and_nobody_is_harmed(
        self, registry: SubscriptionRegistry
    ) -> None:
        async with registry.listen(1, tools()) as stream:
            with pytest.raises(
                SubscriptionLimitError, match=r"100000 URIs .* at most 1000: subscribe to fewer"
            ) as caught:
                async with registry.listen(2, watching(*(f"a://{number}" for number in range(100_000)))):
                    pass
            assert caught.value.limit == "max_uris"
            await registry.publish(BusNotification.tools_list_changed())
            assert await now(stream) == [ACKNOWLEDGED, TOOLS]
        assert registry.stats().uris == 0

    async def test_the_last_allowed_uri_and_the_last_allowed_character_are_allowed(self) -> None:
        async with SubscriptionRegistry(max_uris=3, max_uri_length=5) as registry:
            async with registry.listen(1, watching("12345", "2", "3", "3")) as stream:
                assert (await read(stream)).params["notifications"] == {"resourceSubscriptions": ["12345", "2", "3"]}
            with pytest.raises(SubscriptionLimitError, match=r"6 characters .* at most 5: use a shorter one") as caught:
                registry.narrow(watching("1", "123456"))
            assert caught.value.limit == "max_uri_length"
            with pytest.raises(SubscriptionLimitError, match="4 URIs"):
                registry.narrow(watching("1", "2", "3", "4"))

    async def test_uris_that_are_not_served_are_dropped_however_many_they_are(self) -> None:
        unable = Capabilities(resources_subscribe=False)
        async with (
            SubscriptionRegistry(max_uris=1, capabilities=unable) as registry,
            registry.listen(1, watching("a", "b")) as stream,
        ):
            assert (await read(stream)).params["notifications"] == {}


class TestOpening:
    async def test_a_registry_that_was_never_entered_says_so(self) -> None:
        registry = SubscriptionRegistry()
        with pytest.raises(BusClosedError, match="SubscriptionRegistry is not open"):
            async with registry.listen(1, tools()):
                pass
        with pytest.raises(BusClosedError, match="SubscriptionRegistry is not open"):
            await registry.publish(GAP)
        with pytest.raises(BusClosedError):
            await registry.wait_ready()
        assert not registry.stats().ready
        assert not registry.is_subscribed("a")

    async def test_it_is_stopped_by_its_last_exit_and_can_be_entered_again(self) -> None:
        registry = SubscriptionRegistry()
        for _ in range(2):
            async with registry:
                async with registry:
                    pass
                async with registry.listen(1, tools()) as stream:
                    await registry.publish(BusNotification.tools_list_changed())
                    assert await now(stream) == [ACKNOWLEDGED, TOOLS]
                await registry.wait_ready()
                assert registry.stats().ready
            assert not registry.stats().ready
        assert registry.stats().opened == 2

    def test_it_works_on_one_event_loop_after_the_other(self) -> None:
        registry = SubscriptionRegistry()

        async def use() -> list[str]:
            async with registry, registry.listen(1, tools()) as stream:
                await registry.publish(BusNotification.tools_list_changed())
                return await now(stream)

        for backend in ("asyncio", "trio", "asyncio"):
            assert anyio.run(use, backend=backend) == [ACKNOWLEDGED, TOOLS]

    def test_a_loop_that_ended_with_the_registry_open_leaves_nothing_behind(self) -> None:
        registry = SubscriptionRegistry()

        async def leave_open() -> None:
            await registry.__aenter__()

        async def use() -> int:
            async with registry:
                return registry.stats().streams

        anyio.run(leave_open)
        assert anyio.run(use) == 0

    async def test_it_names_its_bus_and_its_streams(self, registry: SubscriptionRegistry) -> None:
        assert repr(registry) == "<SubscriptionRegistry bus=None streams=0>"
        assert registry.bus is None
