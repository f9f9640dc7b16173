"""What waits to be sent, and the gap that is owed for what was dropped from it."""

from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from notification_bus._broker.outbox import GapDebt, Outbox

LIMIT = 10.0
"""Seconds in which whatever must come has come."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ignore(_count: int) -> None:
    pass


class TestQueue:
    def test_a_full_outbox_drops_its_oldest_and_counts_it(self) -> None:
        drops: list[int] = []
        outbox = Outbox(3, drops.append)
        for number in range(8):
            outbox.put(b"%d" % number)
            assert len(outbox) <= 3
        assert outbox.take(10, 1000) == [b"5", b"6", b"7"]
        assert drops == [1] * 5

    def test_taking_is_bounded_by_count_and_by_size(self) -> None:
        outbox = Outbox(100, ignore)
        for _ in range(10):
            outbox.put(b"x" * 10)
        assert len(outbox.take(3, 1000)) == 3
        assert len(outbox.take(100, 20)) == 2
        assert len(outbox.take(100, 29)) == 2
        assert len(outbox.take(100, 1000)) == 3
        assert outbox.take(100, 1000) == []

    def test_a_body_larger_than_the_size_is_taken_alone(self) -> None:
        outbox = Outbox(100, ignore)
        for size in (50, 1, 1):
            outbox.put(b"x" * size)
        assert [len(body) for body in outbox.take(10, 10)] == [50]
        assert [len(body) for body in outbox.take(10, 10)] == [1, 1]

    def test_clearing_gives_everything_up_and_says_how_much(self) -> None:
        outbox = Outbox(100, ignore)
        for _ in range(4):
            outbox.put(b"x")
        assert outbox.clear() == 4
        assert outbox.clear() == 0
        assert outbox.take(10, 1000) == []

    @settings(max_examples=80, deadline=None)
    @given(
        st.integers(1, 4),
        st.lists(
            st.integers(0, 6).map(lambda n: b"x" * n) | st.tuples(st.integers(1, 4), st.integers(1, 12)), max_size=40
        ),
    )
    def test_it_is_a_bounded_queue(self, limit: int, steps: list[bytes | tuple[int, int]]) -> None:
        dropped: list[int] = []
        outbox = Outbox(limit, dropped.append)
        waiting: list[bytes] = []
        lost = 0
        for step in steps:
            if isinstance(step, bytes):
                outbox.put(step)
                waiting.append(step)
                lost += len(waiting) > limit
                del waiting[:-limit]
            else:
                count, size = step
                taken = outbox.take(count, size)
                assert taken == waiting[: len(taken)]
                assert len(taken) <= count
                assert len(taken) <= 1 or sum(map(len, taken)) <= size
                rest = waiting[len(taken) :]
                if rest and taken:
                    assert len(taken) == count or sum(map(len, taken)) + len(rest[0]) > size, "less than could be taken"
                assert taken or not waiting
                waiting = rest
            assert len(outbox) == len(waiting)
            assert sum(dropped) == lost


class TestBell:
    async def test_a_body_wakes_the_writer(self) -> None:
        outbox = Outbox(10, ignore)
        taken: list[bytes] = []

        async def writer() -> None:
            await outbox.wait()
            taken.extend(outbox.take(10, 100))

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer)
                await wait_all_tasks_blocked()
                outbox.put(b"x")
                outbox.put(b"y")
        assert taken == [b"x", b"y"]

    async def test_ringing_wakes_the_writer_with_nothing_to_send(self) -> None:
        outbox = Outbox(10, ignore)
        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outbox.wait)
                await wait_all_tasks_blocked()
                outbox.ring()

    async def test_a_ring_before_it_waits_keeps_it_awake_once(self) -> None:
        outbox = Outbox(10, ignore)
        outbox.ring()
        outbox.ring()
        with anyio.fail_after(LIMIT):
            await outbox.wait()
        with anyio.move_on_after(0) as scope:
            await outbox.wait()
        assert scope.cancelled_caught

    async def test_it_does_not_wait_while_a_body_is_there(self) -> None:
        outbox = Outbox(10, ignore)
        outbox.put(b"x")
        with anyio.fail_after(LIMIT):
            await outbox.wait()
            await outbox.wait()

    async def test_a_wait_that_was_cancelled_takes_no_wakeup_with_it(self) -> None:
        outbox = Outbox(10, ignore)
        with anyio.fail_after(LIMIT):
            for wake in (outbox.ring, lambda: outbox.put(b"x")):
                with anyio.move_on_after(0):
                    await outbox.wait()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(outbox.wait)
                    await wait_all_tasks_blocked()
                    wake()
                outbox.clear()


class TestGathering:
    async def test_few_never_wait(self) -> None:
        outbox = Outbox(100, ignore)
        with anyio.CancelScope() as scope:
            scope.cancel()  # a turn would be cancelled
            await outbox.gather(4, 10)
            for _ in range(3):
                outbox.put(b"x")
            await outbox.gather(4, 10)
        assert not scope.cancelled_caught

    async def test_a_burst_is_awaited_until_it_pauses_or_is_enough(self) -> None:
        for turns, most in ((3, 100), (50, 20)):
            outbox = Outbox(1000, ignore)

            async def burst(outbox: Outbox = outbox, turns: int = turns) -> None:
                for _ in range(turns):
                    for _ in range(4):
                        outbox.put(b"x")
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(burst)
                await outbox.wait()
                with anyio.fail_after(5):
                    await outbox.gather(4, most)
                # trio runs what is due in a random order: there a turn may bring nothing, and the next twice as much.
                assert len(outbox) in range(4, min(4 * turns, most + 8) + 1)
                tasks.cancel_scope.cancel()


@dataclass
class Sent:
    """What one write put on the connection: the losses that its gap tells of, and the probe behind it."""

    losses: set[int]
    epoch: int


@dataclass
class Wire:
    """One connection, as the writer and the reader of a session use the debt."""

    announced: set[int] = field(default_factory=set[int])
    probes: list[Sent] = field(default_factory=list[Sent])


class GapDebtMachine(RuleBasedStateMachine):
    """A loss is confirmed by a probe sent after its gap on the same connection, or is due again on the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.debt = GapDebt()
        self.wire: Wire | None = None
        self.losses: set[int] = set()
        self.confirmed: set[int] = set()

    @rule()
    def lose(self) -> None:
        self.debt.incur()
        self.losses.add(len(self.losses))

    @rule()
    def connect(self) -> None:
        self.debt.connected()
        self.wire = Wire()
        assert self.debt.due is bool(self.losses - self.confirmed)

    @rule(with_probe=st.booleans(), refused=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.wire is not None)
    def write(self, with_probe: bool, refused: bool) -> None:
        assert self.wire is not None
        if self.debt.due:
            epoch = self.debt.send()
            assert epoch == self.debt.sent
            self.wire.announced = set(self.losses)
        assert not self.debt.due
        if with_probe:
            self.wire.probes.append(Sent(set(self.wire.announced), self.debt.sent))
        if refused:
            # As a session does: which of the bodies on their way were refused is unknown, so nothing is believed.
            self.debt.refused()
            self.wire.probes.clear()
            self.wire.announced.clear()

    @rule(skip=st.integers(0, 2))
    @precondition(lambda self: self.wire is not None and bool(self.wire.probes))
    def probe_returns(self, skip: int) -> None:
        assert self.wire is not None
        skip = min(skip, len(self.wire.probes) - 1)
        for probe in self.wire.probes[: skip + 1]:
            self.debt.pay(probe.epoch)
            self.confirmed |= probe.losses
        del self.wire.probes[: skip + 1]

    @invariant()
    def every_loss_is_confirmed_or_announced_or_due(self) -> None:
        announced = set[int]() if self.wire is None else self.wire.announced
        open_ = self.losses - self.confirmed - announced
        assert not open_ or self.debt.due

    @invariant()
    def nothing_is_announced_for_ever(self) -> None:
        if self.wire is not None and self.losses == self.confirmed:
            assert not self.debt.due


GapDebtMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestGapDebt = GapDebtMachine.TestCase


class TestOwnGap:
    def test_a_loss_on_a_living_connection_is_news_to_the_own_subscriptions(self) -> None:
        debt = GapDebt()
        debt.connected()
        debt.incur()
        assert debt.due
        assert debt.is_news(debt.send())

    def test_a_loss_before_the_connection_is_no_news_since_the_reconnect_was_told(self) -> None:
        debt = GapDebt()
        debt.connected()
        debt.incur()
        debt.connected()
        assert debt.due
        assert not debt.is_news(debt.send())
        debt.incur()
        assert debt.is_news(debt.send())

    def test_a_new_instance_owes_nothing(self) -> None:
        debt = GapDebt()
        debt.connected()
        assert not debt.due
        assert not debt.is_news(0)

    def test_a_late_probe_of_an_earlier_gap_leaves_a_later_loss_unpaid(self) -> None:
        debt = GapDebt()
        debt.connected()
        debt.incur()
        first = debt.send()
        debt.incur()
        second = debt.send()
        debt.pay(second)
        debt.pay(first)
        debt.connected()
        assert not debt.due, "what was paid stays paid"
