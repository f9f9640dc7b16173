"""When streams are told of a gap: a schedule with a clock that the test moves."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus.subscriptions._gaps import GapSchedule
from notification_bus.subscriptions._mailbox import Mailbox


def keep(streams: list[Mailbox]) -> None:
    """A shuffle that leaves the order, so that a test can name who is next."""


def turn_round(streams: list[Mailbox]) -> None:
    streams.reverse()


def schedule(spread: float = 1.0, interval: float = 5.0, moment: float = 0.5) -> GapSchedule:
    return GapSchedule(spread, interval, random=lambda: moment, shuffle=keep)


def streams(count: int, gap: int = 0) -> list[Mailbox]:
    return [Mailbox((position,), gap) for position in range(count)]


def told(gaps: GapSchedule, at: float, open_streams: Sequence[Mailbox]) -> list[int | str]:
    return [stream.keys[0] for stream in gaps.take(at, open_streams)]


def test_without_a_gap_there_is_nothing_to_do() -> None:
    gaps, all_ = schedule(), streams(3)
    assert gaps.delay(0) is None
    assert told(gaps, 0, all_) == []


def test_a_gap_is_told_to_each_stream_once_in_equal_parts_of_the_spread() -> None:
    gaps, all_ = schedule(spread=1.0), streams(4)
    gaps.hear()
    assert gaps.delay(10) == 0
    assert told(gaps, 10, all_) == []
    assert gaps.delay(10) == pytest.approx(0.125)
    for position, at in enumerate((10.125, 10.375, 10.625, 10.875)):
        assert told(gaps, at, all_) == [position]
    assert gaps.delay(11) is None
    assert told(gaps, 100, all_) == []


def test_a_single_stream_is_told_at_a_random_moment_of_the_spread() -> None:
    for moment in (0.01, 0.3, 0.99):
        gaps, all_ = schedule(spread=2.0, moment=moment), streams(1)
        gaps.hear()
        gaps.take(0, all_)
        assert gaps.delay(0) == pytest.approx(2 * moment)


def test_the_order_of_the_streams_is_a_random_one() -> None:
    gaps, all_ = GapSchedule(1.0, 5.0, random=lambda: 0.5, shuffle=turn_round), streams(3)
    gaps.hear()
    gaps.take(0, all_)
    assert told(gaps, 1, all_) == [2, 1, 0]


def test_without_a_spread_everybody_is_told_at_once() -> None:
    gaps, all_ = schedule(spread=0), streams(3)
    gaps.hear()
    assert told(gaps, 0, all_) == [0, 1, 2]


def test_a_stream_that_opens_after_a_gap_is_not_told_of_it() -> None:
    gaps, before = schedule(spread=0), streams(1)
    gaps.hear()
    after = Mailbox(("after",), gaps.number)
    assert told(gaps, 0, [*before, after]) == [0]


def test_a_gap_during_a_round_costs_nothing_where_the_stream_has_not_had_its_turn() -> None:
    gaps, all_ = schedule(spread=1.0, interval=5.0), streams(2)
    gaps.hear()
    gaps.take(0, all_)
    assert told(gaps, 0.25, all_) == [0]
    gaps.hear()
    assert told(gaps, 0.75, all_) == [1]
    assert gaps.delay(0.75) == pytest.approx(4.25), "the next round waits for the interval"
    assert told(gaps, 4.9, all_) == []
    gaps.take(5.0, all_)
    assert told(gaps, 6.0, all_) == [0], "the one that had its turn before the second gap, and no other"
    assert gaps.delay(6.0) is None


def test_any_number_of_gaps_within_the_interval_makes_one_more_round_at_its_end() -> None:
    gaps, all_ = schedule(spread=0, interval=5.0), streams(2)
    gaps.hear()
    assert told(gaps, 0, all_) == [0, 1]
    for _ in range(100):
        gaps.hear()
        assert told(gaps, 4.9, all_) == []
    assert told(gaps, 5.0, all_) == [0, 1]
    assert gaps.delay(5.0) is None


def test_after_a_quiet_interval_a_gap_is_told_at_once_again() -> None:
    gaps, all_ = schedule(spread=0, interval=5.0), streams(1)
    gaps.hear()
    gaps.take(0, all_)
    gaps.hear()
    assert gaps.delay(9) == 0
    assert told(gaps, 9, all_) == [0]


def test_a_round_longer_than_the_interval_is_finished_before_the_next() -> None:
    gaps, all_ = schedule(spread=10.0, interval=1.0), streams(2)
    gaps.hear()
    gaps.take(0, all_)
    assert told(gaps, 2.5, all_) == [0]
    gaps.hear()
    assert told(gaps, 7.5, all_) == [1]
    assert gaps.delay(7.5) == 0
    gaps.take(7.5, all_)
    assert told(gaps, 17.5, all_) == [0]


def test_a_gap_that_nobody_was_open_for_holds_up_none() -> None:
    gaps = schedule(spread=0, interval=5.0)
    gaps.hear()
    gaps.take(0, [])
    assert gaps.delay(0) is None
    gaps.hear()
    assert gaps.delay(0.1) == 0, "no round began, so no interval runs"


@settings(deadline=None)
@given(
    st.floats(0, 3),
    st.floats(0, 10),
    st.lists(st.tuples(st.sampled_from(["hear", "open", "leave"]), st.floats(0, 4)), max_size=30),
)
def test_no_gap_is_forgotten_and_none_is_told_twice_within_the_interval(
    spread: float, interval: float, steps: list[tuple[str, float]]
) -> None:
    """Whatever happens, each stream is told after each gap it was open for, and the rounds keep their distance."""
    gaps, now, all_ = schedule(spread, interval, moment=0.25), 0.0, streams(2)
    told_at: dict[Mailbox, list[float]] = {stream: [] for stream in all_}
    owed: dict[Mailbox, float] = {}

    def run_until(end: float) -> None:
        nonlocal now
        while (delay := gaps.delay(now)) is not None and now + delay <= end:
            now += delay + 1e-9
            for stream in gaps.take(now, all_):
                told_at[stream].append(now)
                owed.pop(stream, None)
        now = end

    for step, pause in steps:
        if step == "hear":
            gaps.hear()
            owed.update({stream: now for stream in all_ if stream not in owed})
        elif step == "open":
            all_.append(Mailbox(("new",), gaps.number))
            told_at[all_[-1]] = []
        elif all_:
            owed.pop(all_.pop(0), None)
        run_until(now + pause)
    run_until(now + 2 * spread + interval + 1)
    assert not owed, "all who were open have been told"
    assert gaps.delay(now) is None
    for times in told_at.values():
        for one, next_ in pairwise(times):
            assert next_ - one >= interval - spread - 1e-6
