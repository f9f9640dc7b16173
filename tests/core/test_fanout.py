"""Bounded buffers and their subscriptions: what is dropped, announced, kept over a cancelled read, and ended."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus import GAP, BusNotification
from notification_bus._fanout import Buffer, Fanout, Subscription

LIMIT = 10.0
"""Seconds in which whatever must come has come."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def item(number: int) -> BusNotification:
    return BusNotification("test/item", {"number": number})


def ignore(_count: int) -> None:
    pass


def read_now(buffer: Buffer) -> BusNotification:
    """Read where something is there to be read: no event loop is needed for that."""
    coroutine = buffer.__anext__()
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    value: BusNotification = stop.value.value
    return value


def drain(buffer: Buffer) -> list[BusNotification]:
    """Close the buffer and read what it held."""
    buffer.close()
    read: list[BusNotification] = []
    while True:
        coroutine = buffer.__anext__()
        try:
            coroutine.send(None)
        except StopIteration as stop:
            read.append(stop.value)
        except StopAsyncIteration:
            return read


class TestBounds:
    def test_a_full_buffer_drops_its_oldest_and_says_so_before_the_survivors(self) -> None:
        drops: list[int] = []
        buffer = Buffer(3, drops.append)
        for number in range(8):
            buffer.put(item(number))
            assert len(buffer) <= 3
        assert drain(buffer) == [GAP, item(5), item(6), item(7)]
        assert drops == [1] * 5

    def test_a_buffer_filled_to_its_limit_loses_nothing(self) -> None:
        drops: list[int] = []
        buffer = Buffer(3, drops.append)
        for number in range(3):
            buffer.put(item(number))
        assert drain(buffer) == [item(0), item(1), item(2)]
        assert drops == []

    def test_equal_notifications_are_not_merged(self) -> None:
        buffer = Buffer(10, ignore)
        for _ in range(3):
            buffer.put(item(1))
        assert drain(buffer) == [item(1)] * 3

    def test_what_is_lost_between_two_reads_is_announced_there(self) -> None:
        buffer = Buffer(2, ignore)
        buffer.put(item(0))
        assert read_now(buffer) == item(0)
        for number in range(1, 4):
            buffer.put(item(number))
        assert [read_now(buffer), read_now(buffer)] == [GAP, item(2)]
        buffer.put(item(4))
        assert drain(buffer) == [item(3), item(4)]


class TestGaps:
    def test_a_gap_stands_where_it_was_put(self) -> None:
        buffer = Buffer(10, ignore)
        buffer.put(item(0))
        buffer.put_gap()
        buffer.put(item(1))
        assert drain(buffer) == [item(0), GAP, item(1)]

    def test_gaps_at_one_place_merge(self) -> None:
        buffer = Buffer(10, ignore)
        for _ in range(3):
            buffer.put_gap()
        buffer.put(item(0))
        for _ in range(3):
            buffer.put_gap()
        assert drain(buffer) == [GAP, item(0), GAP]

    def test_a_gap_is_told_again_after_it_was_read(self) -> None:
        buffer = Buffer(10, ignore)
        buffer.put_gap()
        assert read_now(buffer) is GAP
        buffer.put_gap()
        assert drain(buffer) == [GAP]

    def test_a_gap_that_overflow_pushes_out_still_comes_first_and_is_no_lost_notification(self) -> None:
        drops: list[int] = []
        buffer = Buffer(2, drops.append)
        buffer.put_gap()
        buffer.put(item(0))
        buffer.put(item(1))
        assert drops == []
        assert drain(buffer) == [GAP, item(0), item(1)]

    def test_a_gap_right_behind_what_was_dropped_is_not_told_twice(self) -> None:
        buffer = Buffer(3, ignore)
        buffer.put(item(0))
        buffer.put_gap()
        for number in (1, 2):
            buffer.put(item(number))
        assert drain(buffer) == [GAP, item(1), item(2)]

    def test_a_gap_into_the_smallest_buffer_is_told_once(self) -> None:
        drops: list[int] = []
        buffer = Buffer(1, drops.append)
        buffer.put(item(0))
        buffer.put_gap()
        assert drops == [1]
        assert drain(buffer) == [GAP]

    def test_a_gap_from_the_wire_is_bounded_like_any_notification(self) -> None:
        buffer = Buffer(4, ignore)
        for _ in range(50):
            buffer.put(GAP)
        assert len(buffer) == 4
        assert set(drain(buffer)) == {GAP}


@settings(max_examples=150, deadline=None)
@given(
    limit=st.integers(1, 5),
    steps=st.lists(st.sampled_from(["put", "put", "put", "gap", "read"]), max_size=40),
)
def test_what_is_missed_is_announced_exactly_where_it_is_missed(limit: int, steps: list[str]) -> None:
    dropped = 0

    def on_drop(count: int) -> None:
        nonlocal dropped
        dropped += count

    buffer = Buffer(limit, on_drop)
    put: list[BusNotification] = []
    happened: list[BusNotification] = []
    read: list[BusNotification] = []
    pending = False
    for step in steps:
        if step == "put":
            put.append(item(len(put)))
            happened.append(put[-1])
            buffer.put(put[-1])
            pending = True
        elif step == "gap":
            happened.append(GAP)
            buffer.put_gap()
            pending = True
        elif pending:
            read.append(read_now(buffer))
            pending = len(buffer) > 0
        assert len(buffer) <= limit
    rest = drain(buffer)
    assert not any(a is GAP and b is GAP for a, b in pairwise(rest))
    read += rest

    survivors = [one for one in read if one is not GAP]
    assert survivors == [one for one in put if one in survivors], "in order, no copy twice"
    assert dropped == len(put) - len(survivors)
    # Cut both histories at the survivors: between two of them a gap is read if, and only if, something happened there.
    assert [GAP in piece for piece in _cut(read, survivors)] == [bool(piece) for piece in _cut(happened, survivors)]


def _cut(history: list[BusNotification], at: list[BusNotification]) -> list[list[BusNotification]]:
    pieces: list[list[BusNotification]] = [[]]
    for one in history:
        if one is not GAP and one in at:
            pieces.append([])
        else:
            pieces[-1].append(one)
    return pieces


class TestReading:
    async def test_a_waiting_reader_is_woken_by_a_notification(self) -> None:
        buffer = Buffer(10, ignore)
        got: list[BusNotification] = []

        async def reader() -> None:
            got.append(await anext(buffer))

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader)
                await wait_all_tasks_blocked()
                assert got == []
                buffer.put(item(1))
        assert got == [item(1)]

    async def test_a_waiting_reader_is_woken_by_a_gap(self) -> None:
        buffer = Buffer(10, ignore)
        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:

                async def reader() -> None:
                    assert await anext(buffer) is GAP

                tasks.start_soon(reader)
                await wait_all_tasks_blocked()
                buffer.put_gap()

    @pytest.mark.parametrize("put_first", [True, False], ids=["put then cancel", "cancel then put"])
    async def test_a_read_cancelled_in_the_instant_of_an_arrival_loses_nothing(self, put_first: bool) -> None:
        buffer = Buffer(1000, ignore)
        got: list[BusNotification] = []
        cancelled = 0

        async def reader(scope: anyio.CancelScope) -> None:
            nonlocal cancelled
            with scope:
                got.append(await anext(buffer))
            cancelled += scope.cancelled_caught

        rounds = 40
        with anyio.fail_after(LIMIT):
            for number in range(rounds):
                async with anyio.create_task_group() as tasks:
                    scope = anyio.CancelScope()
                    tasks.start_soon(reader, scope)
                    await wait_all_tasks_blocked()
                    if put_first:
                        buffer.put(item(number))
                    scope.cancel()
                    if not put_first:
                        buffer.put(item(number))
                if not put_first:
                    got.append(read_now(buffer))
        assert cancelled == (0 if put_first else rounds), "the race that this is about did not happen"
        assert got == [item(number) for number in range(rounds)]

    def test_a_task_of_asyncios_own_cancelled_in_the_instant_of_an_arrival_loses_nothing(self) -> None:
        async def main() -> None:
            buffer = Buffer(1000, ignore)
            for number in range(40):
                read = asyncio.ensure_future(anext(buffer))
                await asyncio.sleep(0)
                buffer.put(item(number))
                read.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await read
                assert read_now(buffer) == item(number)

        asyncio.run(main())

    async def test_a_read_cancelled_while_it_gives_the_loop_a_turn_loses_nothing(self) -> None:
        buffer = Buffer(1000, ignore)
        for number in range(300):
            buffer.put(item(number))
        got: list[BusNotification] = []
        cancelled = 0
        while len(got) < 300:
            with anyio.CancelScope() as scope:
                scope.cancel()
                while len(got) < 300:
                    got.append(await anext(buffer))
            cancelled += scope.cancelled_caught
        assert cancelled > 0
        assert got == [item(number) for number in range(300)]

    async def test_a_stream_lives_on_after_a_cancelled_read(self) -> None:
        fanout = Fanout(10, ignore)
        async with subscription_of(fanout) as stream:
            for number in range(5):
                with anyio.move_on_after(0):
                    await anext(stream)
                fanout.deliver(item(number))
                with anyio.fail_after(LIMIT):
                    assert await anext(stream) == item(number)

    async def test_a_reader_of_a_full_buffer_gives_others_their_turn(self) -> None:
        buffer = Buffer(10_000, ignore)
        for number in range(2_000):
            buffer.put(item(number))
        turns = 0
        longest = streak = 0

        async def ticker() -> None:
            nonlocal turns, streak
            while True:
                await checkpoint()
                turns += 1
                streak = 0

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ticker)
                for _ in range(2_000):
                    await anext(buffer)
                    streak += 1
                    longest = max(longest, streak)
                tasks.cancel_scope.cancel()
        assert turns > 0
        assert longest <= 200, "a reader kept the loop for itself"

    async def test_two_readers_share_a_stream_and_no_wakeup_is_lost(self) -> None:
        buffer = Buffer(10, ignore)
        got: list[BusNotification] = []

        async def reader() -> None:
            async for notification in buffer:
                got.append(notification)
                await checkpoint()

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader)
                tasks.start_soon(reader)
                await wait_all_tasks_blocked()
                for number in range(7):
                    buffer.put(item(number))
                    if number % 3 == 0:
                        await wait_all_tasks_blocked()
                await wait_all_tasks_blocked()
                assert sorted(n.encode() for n in got) == sorted(item(n).encode() for n in range(7))
                buffer.close()

    async def test_closing_lets_the_reader_finish_what_is_buffered(self) -> None:
        buffer = Buffer(2, ignore)
        for number in range(3):
            buffer.put(item(number))
        buffer.close()
        assert buffer.closed
        assert [one async for one in buffer] == [GAP, item(1), item(2)]
        assert [one async for one in buffer] == []

    async def test_a_closed_buffer_takes_nothing_more(self) -> None:
        buffer = Buffer(2, ignore)
        assert buffer.put(item(0))
        buffer.close()
        assert not buffer.put(item(1))
        buffer.put_gap()
        assert [one async for one in buffer] == [item(0)]

    async def test_discarding_ends_the_iteration_at_once(self) -> None:
        buffer = Buffer(2, ignore)
        for number in range(3):
            buffer.put(item(number))
        buffer.discard()
        assert len(buffer) == 0
        assert [one async for one in buffer] == []

    @pytest.mark.parametrize("end", [Buffer.close, Buffer.discard])
    async def test_ending_wakes_every_waiting_reader(self, end: Callable[[Buffer], None]) -> None:
        buffer = Buffer(2, ignore)
        ended: list[bool] = []

        async def reader() -> None:
            async for _ in buffer:
                pass
            ended.append(True)

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(reader)
                await wait_all_tasks_blocked()
                end(buffer)
                end(buffer)
        assert ended == [True] * 3


def subscription_of(fanout: Fanout) -> Subscription:
    async def open_() -> Buffer:
        await checkpoint()
        return fanout.open()

    return Subscription(open_, fanout.remove)


def deliver_one(fanout: Fanout) -> int:
    return fanout.deliver(item(1))


class TestSubscription:
    async def test_it_is_entered_before_it_is_read(self) -> None:
        stream = subscription_of(Fanout(1, ignore))
        with pytest.raises(RuntimeError, match="has not been entered: use `async with"):
            await anext(stream)

    async def test_entering_it_twice_is_refused(self) -> None:
        fanout = Fanout(1, ignore)
        stream = subscription_of(fanout)
        async with stream:
            with pytest.raises(RuntimeError, match="entered before: call subscribe"):
                await stream.__aenter__()
            assert len(fanout) == 1
        with pytest.raises(RuntimeError, match="entered before: call subscribe"):
            await stream.__aenter__()
        assert len(fanout) == 0

    async def test_entering_it_twice_at_once_opens_one_buffer(self) -> None:
        fanout = Fanout(1, ignore)
        stream = subscription_of(fanout)
        refused: list[RuntimeError] = []

        async def enter() -> None:
            try:
                await stream.__aenter__()
            except RuntimeError as exc:
                refused.append(exc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            tasks.start_soon(enter)
        assert len(refused) == 1
        assert len(fanout) == 1
        await stream.__aexit__(None, None, None)
        assert len(fanout) == 0

    async def test_leaving_it_while_it_is_being_entered_leaves_nothing_behind(self) -> None:
        fanout = Fanout(1, ignore)
        confirmed = anyio.Event()

        async def open_() -> Buffer:
            await confirmed.wait()
            return fanout.open()

        stream = Subscription(open_, fanout.remove)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.__aenter__)
            await wait_all_tasks_blocked()
            await stream.__aexit__(None, None, None)
            confirmed.set()
        assert len(fanout) == 0
        assert [one async for one in stream] == []

    async def test_a_failed_or_cancelled_entering_can_be_tried_again(self) -> None:
        fanout = Fanout(1, ignore)
        fails = True

        async def open_() -> Buffer:
            await checkpoint()
            if fails:
                raise TimeoutError
            return fanout.open()

        stream = Subscription(open_, fanout.remove)
        with pytest.raises(TimeoutError):
            await stream.__aenter__()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.__aenter__()
        assert scope.cancelled_caught
        fails = False
        async with stream:
            assert len(fanout) == 1
        assert len(fanout) == 0

    async def test_leaving_it_from_another_task_twice_wakes_its_reader(self) -> None:
        fanout = Fanout(1, ignore)
        stream = subscription_of(fanout)
        ended = False

        async def reader() -> None:
            nonlocal ended
            async for _ in stream:
                pass
            ended = True

        with anyio.fail_after(LIMIT):
            async with stream, anyio.create_task_group() as tasks:
                tasks.start_soon(reader)
                await wait_all_tasks_blocked()
                await stream.__aexit__(None, None, None)
                await stream.__aexit__(None, None, None)
        assert ended
        assert len(fanout) == 0

    async def test_leaving_it_ends_the_iteration_at_once_even_with_much_to_read(self) -> None:
        fanout = Fanout(5, ignore)
        async with subscription_of(fanout) as stream:
            for number in range(9):
                fanout.deliver(item(number))
        assert [one async for one in stream] == []

    @pytest.mark.parametrize("meet", [deliver_one, Fanout.gap])
    async def test_one_that_is_dropped_without_being_left_warns_and_is_forgotten(
        self, meet: Callable[[Fanout], int]
    ) -> None:
        fanout = Fanout(5, ignore)
        dropped = [await subscription_of(fanout).__aenter__()]
        kept = await subscription_of(fanout).__aenter__()
        assert fanout.deliver(item(0)) == 2
        with pytest.warns(ResourceWarning, match="dropped without being left"):
            dropped.clear()
        assert meet(fanout) == 1
        assert len(fanout._buffers) == 1, "a dropped subscription stays in memory"
        await kept.__aexit__(None, None, None)
        assert not fanout

    async def test_one_dropped_after_it_was_left_warns_of_nothing(self) -> None:
        fanout = Fanout(5, ignore)
        async with subscription_of(fanout) as stream:
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del stream
            gc.collect()

    def test_one_never_entered_warns_of_nothing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            subscription_of(Fanout(5, ignore))
            gc.collect()

    def test_abandoning_takes_nothing_from_under_a_put_that_is_under_way(self) -> None:
        """The collector runs in any thread, also between the two lines in which `put` looks and drops."""
        buffer = Buffer(1, ignore)
        buffer.put(item(0))
        seen_by_put = buffer._items
        buffer.abandon()
        assert len(seen_by_put) == 1
        assert len(buffer) == 0
        assert not buffer.put(item(1))


class TestFanout:
    async def test_every_subscription_gets_its_own_copy_of_the_order(self) -> None:
        fanout = Fanout(10, ignore)
        async with subscription_of(fanout) as one, subscription_of(fanout) as other:
            assert fanout
            assert fanout.deliver(item(0)) == 2
            assert fanout.deliver(item(1)) == 2
            for stream in (one, other):
                assert [await anext(stream), await anext(stream)] == [item(0), item(1)]
        assert not fanout
        assert fanout.deliver(item(2)) == 0
        assert fanout.gap() == 0

    async def test_a_slow_subscription_costs_its_siblings_nothing(self) -> None:
        drops: list[int] = []
        fanout = Fanout(2, drops.append)
        async with subscription_of(fanout) as slow, subscription_of(fanout) as quick:
            for number in range(9):
                fanout.deliver(item(number))
                assert await anext(quick) == item(number)
            assert sum(drops) == 7
            assert [await anext(slow) for _ in range(3)] == [GAP, item(7), item(8)]

    async def test_closing_it_ends_every_stream_after_what_it_held(self) -> None:
        fanout = Fanout(10, ignore)
        async with subscription_of(fanout) as one, subscription_of(fanout) as other:
            fanout.deliver(item(0))
            fanout.close()
            assert len(fanout) == 0
            for stream in (one, other):
                assert await _all(stream) == [item(0)]

    async def test_a_gap_goes_to_every_subscription(self) -> None:
        fanout = Fanout(10, ignore)
        async with subscription_of(fanout) as one, subscription_of(fanout) as other:
            assert fanout.gap() == 2
            assert fanout.gap() == 2
            fanout.deliver(item(0))
            for stream in (one, other):
                assert [await anext(stream), await anext(stream)] == [GAP, item(0)]


async def _all(stream: AsyncIterator[BusNotification]) -> list[BusNotification]:
    with anyio.fail_after(LIMIT):
        return [one async for one in stream]
