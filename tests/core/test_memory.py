"""`MemoryBus`: the contract within one process and event loop, on both async libraries."""

import gc
import logging
import weakref
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from notification_bus import (
    GAP,
    BusClosedError,
    BusNotification,
    BusURLError,
    MemoryBus,
    NotificationTooLargeError,
    open_bus,
)

LIMIT = 10.0
"""Seconds in which whatever must come has come."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def note(number: int) -> BusNotification:
    return BusNotification("test/note", {"number": number})


async def take(stream: AsyncIterator[BusNotification], count: int) -> list[BusNotification]:
    with anyio.fail_after(LIMIT):
        return [await anext(stream) for _ in range(count)]


async def rest(stream: AsyncIterator[BusNotification]) -> list[BusNotification]:
    with anyio.fail_after(LIMIT):
        return [one async for one in stream]


class TestDelivery:
    async def test_every_subscription_of_every_bus_of_the_channel_gets_one_copy_in_order(self) -> None:
        a, b = MemoryBus("board"), MemoryBus("board")
        async with a, b, a.subscribe() as a1, a.subscribe() as a2, b.subscribe() as b1:
            for number in range(3):
                await a.publish(note(number))
            await b.publish(note(3))
            for stream in (a1, a2, b1):
                assert await take(stream, 4) == [note(number) for number in range(4)]
            await a.aclose()
            await b.aclose()
            for stream in (a1, a2, b1):
                assert await rest(stream) == []

    async def test_equal_notifications_arrive_each(self) -> None:
        async with MemoryBus() as bus, bus.subscribe() as stream:
            for _ in range(3):
                await bus.publish(note(0))
            assert await take(stream, 3) == [note(0)] * 3

    async def test_a_subscription_sees_nothing_of_what_was_published_before_it(self) -> None:
        async with MemoryBus() as bus:
            await bus.publish(note(0))
            async with bus.subscribe() as stream:
                await bus.publish(note(1))
                assert await take(stream, 1) == [note(1)]

    async def test_channels_are_kept_apart_down_to_the_70th_byte(self) -> None:
        """Check 7, deliver.namespace_isolated: a broker may fold, cut or quote names; one channel is one bus."""
        common = "é" * 34 + "x"
        assert len(common.encode()) == 69
        a, b, c = (MemoryBus(name) for name in (common + "a", common + "b", common.upper() + "A"))
        async with a, b, c, a.subscribe() as a1, b.subscribe() as b1, c.subscribe() as c1:
            for number, bus in enumerate((a, b, c)):
                await bus.publish(note(number))
            for number, (bus, stream) in enumerate(((a, a1), (b, b1), (c, c1))):
                assert await take(stream, 1) == [note(number)]
                assert bus.stats().delivered == 1

    async def test_without_a_channel_each_is_a_bus_of_its_own(self) -> None:
        a, b, c, d = MemoryBus(), MemoryBus(), open_bus("memory://"), MemoryBus("private")
        async with a, b, c, d, a.subscribe() as a1, b.subscribe() as b1, c.subscribe() as c1, d.subscribe() as d1:
            for number, bus in enumerate((a, b, c, d)):
                await bus.publish(note(number))
            for number, stream in enumerate((a1, b1, c1, d1)):
                assert await take(stream, 1) == [note(number)]

    async def test_a_bus_opened_from_a_url_shares_the_channel(self) -> None:
        a, b = MemoryBus("board/é"), open_bus("memory://?channel=board%2F%C3%A9")
        async with a, b, a.subscribe() as stream:
            await b.publish(note(0))
            assert await take(stream, 1) == [note(0)]

    async def test_another_event_loop_is_another_world(self) -> None:
        async def elsewhere() -> None:
            async with MemoryBus("board") as bus, bus.subscribe() as stream:
                await bus.publish(note(99))
                assert await take(stream, 1) == [note(99)]

        async with MemoryBus("board") as bus, bus.subscribe() as stream:
            await anyio.to_thread.run_sync(anyio.run, elsewhere)
            await bus.publish(note(0))
            assert await take(stream, 1) == [note(0)]

    async def test_a_bus_that_has_left_the_channel_hears_nothing_of_it(self) -> None:
        async with MemoryBus("board") as a:
            async with MemoryBus("board") as b:
                pass
            async with b:
                await b.aclose()
                await a.publish(note(0))
            assert b.stats().delivered == 0

    async def test_a_bus_that_has_left_the_channel_is_not_kept_alive_by_it(self) -> None:
        async with MemoryBus("board") as a:
            gone = MemoryBus("board")
            async with gone:
                await a.publish(note(0))
            reference = weakref.ref(gone)
            del gone
            gc.collect()
            assert reference() is None

    async def test_what_one_subscriber_does_to_the_params_another_does_not_see(self) -> None:
        async with MemoryBus() as bus, bus.subscribe() as one, bus.subscribe() as other:
            await bus.publish(BusNotification("x", {"a": [1]}))
            mine = cast("dict[str, Any]", (await take(one, 1))[0].params)
            mine["a"].append(2)
            assert (await take(other, 1))[0].params == {"a": [1]}


class TestPublishing:
    async def test_the_limit_is_in_bytes_of_the_encoded_body(self) -> None:
        async with MemoryBus(max_body=44) as bus, bus.subscribe() as stream:
            at_limit = BusNotification("x", {"a": "é" * 6})
            assert len(at_limit.encode()) == 44
            await bus.publish(at_limit)
            with pytest.raises(
                NotificationTooLargeError, match="has 45 bytes and this bus carries at most 44"
            ) as caught:
                await bus.publish(BusNotification("x", {"a": "é" * 6 + "x"}))
            assert (caught.value.size, caught.value.limit) == (45, 44)
            await bus.publish(note(1))
            assert await take(stream, 2) == [at_limit, note(1)]
            assert bus.stats().published == 2

    async def test_what_is_no_notification_is_refused(self) -> None:
        async with MemoryBus() as bus:
            for wrong in ({"method": "x"}, "x", b'{"method":"x"}', None):
                with pytest.raises(TypeError, match="BusNotification, not"):
                    await bus.publish(cast("BusNotification", wrong))

    async def test_a_caller_cancelled_in_it_has_published(self) -> None:
        async with MemoryBus() as bus, bus.subscribe() as stream:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await bus.publish(note(0))
            assert scope.cancelled_caught
            await bus.publish(note(1))
            assert await take(stream, 2) == [note(0), note(1)]

    async def test_a_burst_gives_readers_their_turns_and_loses_nothing(self) -> None:
        got: list[BusNotification] = []

        async with MemoryBus(buffer=4) as bus, anyio.create_task_group() as tasks:

            async def reader() -> None:
                async with bus.subscribe() as stream:
                    started.set()
                    async for one in stream:
                        got.append(one)  # noqa: PERF401  # a comprehension would show nothing before the end

            started = anyio.Event()
            tasks.start_soon(reader)
            await started.wait()
            for number in range(300):
                await bus.publish(note(number))
            await wait_all_tasks_blocked()
            await bus.aclose()
        assert got == [note(number) for number in range(300)]
        assert bus.stats().dropped == {}

    async def test_a_subscriber_that_never_reads_costs_the_others_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with MemoryBus("board", buffer=5) as bus, bus.subscribe() as stuck, bus.subscribe() as quick:
            for number in range(40):
                await bus.publish(note(number))
                assert await take(quick, 1) == [note(number)]
            assert await take(stuck, 6) == [GAP] + [note(number) for number in range(35, 40)]
            assert bus.stats().dropped == {"buffer": 35}
        told = [record for record in caplog.records if record.name == "notification_bus.memory"]
        assert [record.levelno for record in told] == [logging.WARNING] * 2
        assert {record.__dict__["notification_bus_event"] for record in told} == {"dropped:buffer"}
        assert [record.__dict__["notification_bus_count"] for record in told] == [1, 34]
        assert "channel='board'" in told[0].getMessage()
        assert "reads too slowly" in told[0].getMessage()


class TestClosing:
    async def test_the_streams_end_after_what_they_held(self) -> None:
        async with MemoryBus() as bus, bus.subscribe() as stream:
            await bus.publish(note(0))
            await bus.aclose()
            assert await rest(stream) == [note(0)]

    async def test_a_waiting_reader_ends(self) -> None:
        ended: list[BusNotification] | None = None

        async with MemoryBus() as bus, bus.subscribe() as stream, anyio.create_task_group() as tasks:

            async def reader() -> None:
                nonlocal ended
                ended = await rest(stream)

            tasks.start_soon(reader)
            await wait_all_tasks_blocked()
            await bus.aclose()
        assert ended == []

    async def test_afterwards_publishing_and_subscribing_say_that_it_is_closed(self) -> None:
        async with MemoryBus() as bus:
            stream = bus.subscribe()
        with pytest.raises(BusClosedError, match="not open"):
            await bus.publish(note(0))
        with pytest.raises(BusClosedError, match="not open"):
            await stream.__aenter__()
        with pytest.raises(BusClosedError, match="not open"):
            await bus.wait_ready()
        assert bus.stats().published == 0

    async def test_entered_again_it_works_again_and_keeps_its_counts(self) -> None:
        bus = MemoryBus("board")
        for number in range(3):
            async with bus, bus.subscribe() as stream:
                await bus.publish(note(number))
                assert await take(stream, 1) == [note(number)]
        stats = bus.stats()
        assert (stats.published, stats.delivered, stats.subscriptions) == (3, 3, 0)

    async def test_a_subscription_of_an_earlier_life_can_be_left_late(self) -> None:
        bus = MemoryBus("board")
        async with bus:
            old = await bus.subscribe().__aenter__()
        async with bus, bus.subscribe() as stream:
            await old.__aexit__(None, None, None)
            assert bus.stats().subscriptions == 1
            await bus.publish(note(0))
            assert await take(stream, 1) == [note(0)]


class TestStats:
    async def test_they_tell_whether_it_is_open_and_since_when(self) -> None:
        bus = MemoryBus()
        assert (bus.stats().connected, bus.stats().since) == (False, None)
        async with bus:
            await bus.wait_ready(0)
            stats = bus.stats()
            assert stats.connected
            assert stats.since is not None
            async with bus.subscribe(), bus.subscribe():
                assert bus.stats().subscriptions == 2
        assert (bus.stats().connected, bus.stats().since) == (False, None)

    async def test_they_count_a_delivery_for_each_subscription(self) -> None:
        async with MemoryBus("board") as a, MemoryBus("board") as b, a.subscribe(), a.subscribe(), b.subscribe():
            await a.publish(note(0))
            await checkpoint()
            assert (a.stats().published, a.stats().delivered) == (1, 2)
            assert (b.stats().published, b.stats().delivered) == (0, 1)


def test_its_repr_names_the_channel() -> None:
    assert repr(MemoryBus("board")) == "<MemoryBus channel='board'>"
    assert repr(MemoryBus()) == "<MemoryBus channel=None>"


@pytest.mark.parametrize("channel", ["", 7, "\ud800"])
def test_a_channel_that_is_no_name_is_refused(channel: Any) -> None:
    with pytest.raises(BusURLError, match="channel"):
        MemoryBus(channel)
