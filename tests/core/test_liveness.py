"""Probes that anybody may have written, and what they tell about who is there."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus import GAP, BusNotification, BusOptions
from notification_bus._broker.liveness import CONTROL_PREFIX, GAP_METHOD, PROBE_METHOD, Peers, Probe, may_be_control


def read(**params: Any) -> Probe | None:
    base: dict[str, Any] = {"instance": "a1", "number": 7, "interval": 10.0}
    return Probe.read(BusNotification(PROBE_METHOD, base | params))


class TestProbe:
    def test_it_travels_as_an_ordinary_notification(self) -> None:
        """Check 49, gap.unknown_to_peers."""
        assert json.loads(Probe("a1", 7, 10.0).encode()) == {
            "method": "notifications/bus/probe",
            "params": {"instance": "a1", "number": 7, "interval": 10.0},
        }
        assert json.loads(Probe("a1", 7, 10.0, leaving=True).encode())["params"]["leaving"] is True
        assert PROBE_METHOD.startswith(CONTROL_PREFIX)
        assert GAP_METHOD.startswith(CONTROL_PREFIX)

    @settings(max_examples=60, deadline=None)
    @given(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64),
        st.integers(0, 2**63),
        st.floats(0, 3600, exclude_min=True),
        st.booleans(),
    )
    def test_it_comes_back_as_it_was_sent(self, instance: str, number: int, interval: float, leaving: bool) -> None:
        probe = Probe(instance, number, interval, leaving)
        assert Probe.read(BusNotification.decode(probe.encode())) == probe

    @pytest.mark.parametrize("interval", [3600, 7200.0, 10.0**9, BusOptions(channel="x").probe_interval])
    def test_one_sent_at_any_interval_that_the_options_allow_can_be_read_back(self, interval: float) -> None:
        """An instance that could not read its own probes would reconnect for ever."""
        options = BusOptions(channel="x", probe_interval=interval)
        probe = Probe("a1", 7, Peers(options.probe_interval).interval)
        read_back = Probe.read(BusNotification.decode(probe.encode()))
        assert read_back is not None
        assert (read_back.instance, read_back.number) == ("a1", 7)
        assert read_back.interval == min(interval, 3600), "a stranger's word must not make a peer that is never missed"

    @pytest.mark.parametrize(
        "params",
        [
            {"instance": None},
            {"instance": 7},
            {"instance": ""},
            {"instance": "x" * 65},
            {"number": None},
            {"number": "7"},
            {"number": 7.0},
            {"number": True},
            {"interval": None},
            {"interval": "10"},
            {"interval": True},
            {"interval": 0},
            {"interval": -1},
            {"interval": []},
        ],
        ids=str,
    )
    def test_a_strangers_probe_that_makes_no_sense_is_none(self, params: dict[str, Any]) -> None:
        assert read(**params) is None

    @pytest.mark.parametrize("params", [None, {}, {"instance": "a"}, {"number": 1, "interval": 1}])
    def test_a_probe_that_lacks_something_is_none(self, params: dict[str, Any] | None) -> None:
        assert Probe.read(BusNotification(PROBE_METHOD, params)) is None

    @pytest.mark.parametrize("leaving", [None, 0, 1, "true", [], {}])
    def test_only_true_takes_leave(self, leaving: object) -> None:
        probe = read(leaving=leaving)
        assert probe is not None
        assert not probe.leaving

    def test_more_members_are_tolerated_and_a_whole_interval_is_a_number_too(self) -> None:
        assert read(more=[1], interval=5) == Probe("a1", 7, 5.0)


class TestMayBeControl:
    @pytest.mark.parametrize("kind", [bytes, str])
    @pytest.mark.parametrize(
        ("body", "may"),
        [
            (Probe("me", 1, 10.0).encode(), True),
            (GAP.encode(), True),
            (b"[" + GAP.encode() + b"]", True),
            (b'{"method":"notifications\\/bus\\/gap"}', True),
            (b'{"method":"\\u006eotifications/other"}', True),
            (b'{"method":"notifications/tools/list_changed"}', False),
        ],
    )
    def test_no_probe_or_gap_is_overlooked_however_it_is_spelled(self, kind: type, body: bytes, may: bool) -> None:
        assert may_be_control(body if kind is bytes else body.decode()) is may


class TestPeers:
    def test_whoever_is_heard_is_there_until_three_intervals_have_passed(self) -> None:
        peers = Peers(10.0)
        peers.heard(Probe("a", 1, 10.0), 100.0)
        assert len(peers) == 1
        assert not peers.all_lost(129.9)
        assert peers.all_lost(130.0)
        assert len(peers) == 0

    def test_silence_is_told_once(self) -> None:
        peers = Peers(10.0)
        assert not peers.all_lost(0.0)
        peers.heard(Probe("a", 1, 10.0), 0.0)
        assert peers.all_lost(50.0)
        assert not peers.all_lost(1000.0)
        peers.heard(Probe("a", 2, 10.0), 2000.0)
        assert peers.all_lost(2030.0)

    def test_one_that_is_still_heard_keeps_the_others_silence_from_meaning_anything(self) -> None:
        peers = Peers(10.0)
        for name in "abc":
            peers.heard(Probe(name, 1, 10.0), 0.0)
        peers.heard(Probe("c", 2, 10.0), 25.0)
        assert not peers.all_lost(40.0)
        assert len(peers) == 1
        assert peers.all_lost(55.0)

    def test_a_rolling_restart_is_quiet(self) -> None:
        """A peer that closes says so, and is not missed."""
        peers = Peers(10.0)
        for name in "abc":
            peers.heard(Probe(name, 1, 10.0), 0.0)
            peers.heard(Probe(name, 2, 10.0, leaving=True), 1.0)
        assert len(peers) == 0
        assert not peers.all_lost(1000.0)
        peers.heard(Probe("unknown", 2, 10.0, leaving=True), 1.0)
        assert len(peers) == 0

    def test_one_peer_gone_with_leave_and_one_without_is_a_loss(self) -> None:
        peers = Peers(10.0)
        peers.heard(Probe("a", 1, 10.0), 0.0)
        peers.heard(Probe("b", 1, 10.0), 0.0)
        peers.heard(Probe("a", 2, 10.0, leaving=True), 1.0)
        assert peers.all_lost(31.0)

    def test_a_peer_that_probes_rarely_is_given_its_own_time(self) -> None:
        peers = Peers(10.0)
        peers.heard(Probe("a", 1, 100.0), 0.0)
        assert not peers.all_lost(299.0)
        assert peers.all_lost(300.0)

    def test_a_peer_that_claims_to_probe_often_is_given_this_instances_time(self) -> None:
        peers = Peers(10.0)
        peers.heard(Probe("a", 1, 0.001), 0.0)
        assert not peers.all_lost(29.0)

    def test_after_a_reconnect_everybody_is_given_their_time_again(self) -> None:
        peers = Peers(10.0)
        peers.heard(Probe("a", 1, 10.0), 0.0)
        peers.connected(500.0)
        assert not peers.all_lost(529.0)
        assert peers.all_lost(530.0)
        peers.connected(600.0)
        assert len(peers) == 0

    def test_who_took_leave_is_not_expected_after_a_reconnect(self) -> None:
        peers = Peers(10.0)
        peers.heard(Probe("a", 1, 10.0), 0.0)
        peers.heard(Probe("a", 2, 10.0, leaving=True), 1.0)
        peers.connected(2.0)
        assert len(peers) == 0
        assert not peers.all_lost(1000.0)

    def test_nobody_can_fill_the_memory_with_made_up_names(self) -> None:
        peers = Peers(10.0)
        for number in range(10_050):
            peers.heard(Probe(str(number), 1, 10.0), 0.0)
        assert len(peers) == 10_000
        peers.heard(Probe("0", 2, 10.0), 20.0)
        assert not peers.all_lost(30.0)
        assert len(peers) == 1

    @settings(max_examples=60, deadline=None)
    @given(st.floats(0.01, 10_000), st.integers(0, 300))
    def test_the_rate_of_probes_on_the_channel_is_bounded_as_the_fleet_grows(
        self, interval: float, others: int
    ) -> None:
        peers = Peers(interval)
        for number in range(others):
            peers.heard(Probe(str(number), 1, interval), 0.0)
        assert peers.interval >= interval
        if peers.interval < 3600:
            assert (others + 1) / peers.interval <= 10 / interval * 1.001
        if others < 10:
            assert peers.interval == interval
        assert peers.interval <= max(interval, 3600.0)

    @settings(max_examples=120, deadline=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from(["heard", "leaves", "look", "look", "connected"]), st.sampled_from("ab"))
            | st.integers(1, 25),
            max_size=40,
        )
    )
    def test_all_are_lost_exactly_when_the_last_of_them_has_been_silent_for_too_long(
        self, steps: list[tuple[str, str] | int]
    ) -> None:
        peers = Peers(10.0)
        now = 0.0
        expected: dict[str, float] = {}
        for step in steps:
            if isinstance(step, int):
                now += step
                continue
            what, name = step
            if what == "heard":
                peers.heard(Probe(name, 1, 10.0), now)
                expected[name] = now + 30.0
            elif what == "leaves":
                peers.heard(Probe(name, 1, 10.0, leaving=True), now)
                expected.pop(name, None)
            elif what == "connected":
                peers.connected(now)
                expected = dict.fromkeys(expected, now + 30.0)
            else:
                alive = {peer: until for peer, until in expected.items() if now < until}
                assert peers.all_lost(now) is (bool(expected) and not alive)
                expected = alive
            assert len(peers) == len(expected)
