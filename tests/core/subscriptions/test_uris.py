"""Which resources a URI lies below."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notification_bus.subscriptions._keys import ancestors

LONG = 10_000


@pytest.mark.parametrize(
    ("uri", "above"),
    [
        (
            "board://sprint/tasks/1",
            ["board://sprint/tasks/", "board://sprint/tasks", "board://sprint/", "board://sprint", "board://"],
        ),
        ("board://sprint/", ["board://sprint", "board://"]),
        ("board://sprint", ["board://"]),
        ("board://", []),
        ("file:///a/b", ["file:///a/", "file:///a", "file:///", "file://"]),
        ("b://a/1?q=/x/y", ["b://a/1", "b://a/", "b://a", "b://"]),
        ("b://a/1#/x?/y", ["b://a/1", "b://a/", "b://a", "b://"]),
        ("b://a?q#f", ["b://a?q", "b://a", "b://"]),
        ("b://a/?q", ["b://a/", "b://a", "b://"]),
        ("b://?q", ["b://"]),
        ("urn:isbn:1/2", ["urn:isbn:1/", "urn:isbn:1"]),
        ("urn:isbn:1", []),
        ("/a/b", ["/a/", "/a", "/"]),
        ("a", []),
        ("", []),
    ],
)
def test_the_uris_above_are_the_shorter_paths_nearest_first(uri: str, above: list[str]) -> None:
    assert list(ancestors(uri, LONG)) == above


@settings(deadline=None)
@given(st.text("ab/?#:", max_size=12), st.integers(0, 12))
@example("://", 12)
def test_the_uris_above_are_proper_beginnings_in_falling_length(uri: str, longest: int) -> None:
    found = list(ancestors(uri, longest))
    assert found == sorted(set(found), key=len, reverse=True)
    for above in found:
        assert uri.startswith(above)
        assert 0 < len(above) < len(uri)
        assert len(above) <= longest
    assert found == [above for above in ancestors(uri, LONG) if len(above) <= longest]


def test_a_hostile_uri_costs_no_more_than_the_longest_one_that_can_be_watched() -> None:
    assert max(map(len, ancestors("b://" + "/" * 1_000_000, 100))) == 100
