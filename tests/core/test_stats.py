"""The counts: a snapshot that stays as it was, and that a health page can show."""

import json
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from notification_bus import BusStats
from notification_bus import stats as stats_module
from notification_bus.stats import Counters


def test_a_snapshot_stays_as_it_was() -> None:
    counters = Counters()
    counters.dropped["buffer"] += 1
    before = counters.snapshot(2)
    counters.dropped["buffer"] += 3
    counters.dropped["outbox"] += 1
    counters["published"] += 1
    assert (before.dropped, before.published, before.subscriptions) == ({"buffer": 1}, 0, 2)
    assert counters.snapshot(0).dropped == {"buffer": 4, "outbox": 1}
    with pytest.raises(FrozenInstanceError):
        before.published = 1  # type: ignore[misc]


def test_a_snapshot_can_be_shown_copied_and_sent() -> None:
    counters = Counters()
    counters.last_error = "cannot connect: refused"
    counters.dropped["outbox"] += 2
    stats = counters.snapshot(1)
    shown = json.loads(json.dumps(asdict(stats)))
    assert shown == {
        "connected": False,
        "since": None,
        "subscriptions": 1,
        "published": 0,
        "delivered": 0,
        "dropped": {"outbox": 2},
        "in_doubt": 0,
        "malformed": 0,
        "gaps": 0,
        "reconnects": 0,
        "last_error": "cannot connect: refused",
    }
    assert BusStats(**shown) == stats
    assert pickle.loads(pickle.dumps(stats)) == stats  # noqa: S301  # our own bytes
    assert replace(stats, published=3).published == 3


def test_the_time_is_that_of_the_last_change_of_state(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stats_module, "time", lambda: now)
    counters = Counters()
    assert counters.snapshot(0).since is None
    counters.mark(connected=False)
    assert not counters.connected
    assert counters.since == 100.0
    now = 101.0
    counters.mark(connected=False)
    assert counters.since == 100.0
    counters.mark(connected=True)
    assert counters.connected
    assert counters.since == 101.0
    now = 102.0
    counters.mark(connected=True)
    assert counters.since == 101.0
    counters.close()
    assert not counters.connected
    assert counters.since is None
    counters.mark(connected=True)
    assert counters.since == 102.0


def test_what_was_not_sent_is_told_from_what_was_not_read() -> None:
    counters = Counters()
    counters["in_doubt"] = 4
    counters.dropped.update({"buffer": 8, "outbox": 1, "refused": 16, "too_large": 32, "closed": 64})
    assert counters.snapshot(0).unsent == 1 + 4 + 16 + 32 + 64
