"""When to try again: at once, then ever later up to a cap, and not all replicas in one burst."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus._backoff import Backoff


def test_the_first_try_is_made_at_once_and_again_after_a_success() -> None:
    backoff = Backoff(2.0)
    for _ in range(3):
        assert backoff.next() == 0.0
        assert [backoff.next() > 0 for _ in range(10)] == [True] * 10
        backoff.reset()


@pytest.mark.parametrize(
    ("jitter", "waits"),
    [(0.0, [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]), (1.0, [0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])],
)
def test_waits_double_up_to_the_cap(jitter: float, waits: list[float]) -> None:
    backoff = Backoff(2.0, lambda: jitter)
    assert [backoff.next() for _ in waits] == pytest.approx(waits)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 1e6), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=60))
def test_no_wait_is_longer_than_the_cap_or_shorter_than_half_of_what_it_may_be(
    cap: float, jitters: list[float]
) -> None:
    given_jitters = iter(jitters)
    backoff = Backoff(cap, lambda: next(given_jitters))
    assert backoff.next() == 0.0
    for tries in range(len(jitters)):
        longest = min(cap, 0.1 * 2**tries)
        assert longest / 2 <= backoff.next() <= longest


def test_an_outage_of_days_ends_in_no_overflow() -> None:
    backoff = Backoff(2.0, lambda: 0.5)
    waits = [backoff.next() for _ in range(5_000)]
    assert waits[-1] == 1.5
    assert sum(waits) > 3600
    uncapped = Backoff(1e300, lambda: 0.5)
    assert max(uncapped.next() for _ in range(5_000)) < 1e10


def test_replicas_that_lost_the_same_broker_come_back_spread() -> None:
    fleet = [Backoff(2.0) for _ in range(100)]
    for backoff in fleet:
        for _ in range(6):
            backoff.next()
    waits = [backoff.next() for backoff in fleet]
    assert min(waits) >= 1.0
    assert max(waits) <= 2.0
    # A hundred uniform draws leave three tenths of a second empty less often than once in a billion runs.
    assert len({int(wait * 10) for wait in waits}) >= 8
