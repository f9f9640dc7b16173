"""Warnings that come in floods: the first at once, the rest as counts, none forgotten."""

import logging
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus._floodlog import FLOOD_INTERVAL, FloodLog


class Told(logging.Handler):
    """What was logged: the kind and the count."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [
            (record.__dict__["notification_bus_event"], record.__dict__["notification_bus_count"])
            for record in self.records
        ]


class Rig:
    def __init__(self) -> None:
        self.logger = logging.Logger("test")  # noqa: LOG001  # one of its own, beside the tree of loggers
        self.told = Told()
        self.logger.addHandler(self.told)
        self.now = 1000.0
        self.floods = FloodLog(self.logger, clock=lambda: self.now)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_first_is_told_at_once_and_the_rest_as_a_count_when_the_interval_has_passed(rig: Rig) -> None:
    for _ in range(100):
        rig.floods.add("dropped", "dropped one")
    assert rig.told.counts == [("dropped", 1)]
    rig.now += FLOOD_INTERVAL
    rig.floods.add("dropped", "dropped one")
    assert rig.told.counts == [("dropped", 1), ("dropped", 100)]


def test_what_stays_below_the_interval_is_not_told_early(rig: Rig) -> None:
    rig.floods.add("dropped", "dropped one")
    rig.now += FLOOD_INTERVAL - 0.001
    rig.floods.add("dropped", "dropped one", 5)
    rig.floods.flush()
    assert rig.told.counts == [("dropped", 1)]


def test_flushing_tells_what_is_due_and_forcing_tells_the_rest(rig: Rig) -> None:
    for kind in ("a", "b"):
        rig.floods.add(kind, kind)
        rig.floods.add(kind, kind, 2)
        rig.now += FLOOD_INTERVAL / 2
    rig.floods.flush()
    assert rig.told.counts == [("a", 1), ("b", 1), ("a", 2)]
    rig.floods.flush(force=True)
    rig.floods.flush(force=True)
    assert rig.told.counts == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_kind_says_nothing_about_another(rig: Rig) -> None:
    for kind in ("a", "b", "c"):
        rig.floods.add(kind, kind)
    assert rig.told.counts == [("a", 1), ("b", 1), ("c", 1)]


def test_a_record_is_a_warning_with_the_newest_text_and_the_count_for_people_too(rig: Rig) -> None:
    rig.floods.add("dropped", "100 % of %s", 3)
    rig.floods.add("dropped", "older text")
    rig.floods.add("dropped", "newer text")
    rig.floods.flush(force=True)
    first, second = rig.told.records
    assert first.levelno == logging.WARNING
    assert first.getMessage() == "100 % of %s (3 since the last such warning)"
    assert second.getMessage() == "newer text (2 since the last such warning)"


def test_nothing_to_tell_tells_nothing(rig: Rig) -> None:
    rig.floods.flush()
    rig.floods.flush(force=True)
    assert rig.told.records == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 5)) | st.floats(0, 2 * FLOOD_INTERVAL) | st.just("flush"),
        max_size=40,
    )
)
def test_every_event_is_told_exactly_once_and_no_kind_more_than_once_an_interval(
    steps: list[tuple[str, int] | float | str],
) -> None:
    rig = Rig()
    added = {"a": 0, "b": 0}
    told_at: dict[str, list[float]] = {"a": [], "b": []}
    for step in steps:
        before = len(rig.told.records)
        if isinstance(step, tuple):
            kind, count = step
            added[kind] += count
            rig.floods.add(kind, kind, count)
            assert kind in [told for told, _ in rig.told.counts], "the first is told at once"
        elif isinstance(step, str):
            rig.floods.flush()
        else:
            rig.now += step
        for kind, _ in rig.told.counts[before:]:
            told_at[kind].append(rig.now)
    for times in told_at.values():
        assert all(later - earlier >= FLOOD_INTERVAL for earlier, later in pairwise(times))
    rig.floods.flush(force=True)
    for kind, count in added.items():
        assert sum(number for told, number in rig.told.counts if told == kind) == count
