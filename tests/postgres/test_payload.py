"""What is done to bodies, without a server."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus_postgres._payload import MAX_PAYLOAD, SUFFIX_LIMIT, escaped, suffix, transactions


def test_suffixes_are_json_white_space_and_differ_for_each_number() -> None:
    suffixes = [suffix(n) for n in range(100_000)]
    assert suffixes[0] == ""
    assert len(set(suffixes)) == len(suffixes)
    assert set("".join(suffixes)) <= set(" \t\n\r")


def test_no_suffix_is_longer_than_what_is_kept_free_for_it() -> None:
    assert len(suffix(10**30)) == SUFFIX_LIMIT


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "a ", "a\t", "b", "a  ", "é", "é\n"])))
def test_no_two_payloads_of_a_transaction_are_equal_and_nothing_else_changes(payloads: list[str]) -> None:
    """P05: PostgreSQL delivers one of several equal ones of a transaction."""
    result = list(transactions(payloads))
    assert all(len(set(part)) == len(part) for part in result)
    sent = [payload for part in result for payload in part]
    assert len(sent) == len(payloads)
    assert all(
        after.startswith(before) and not after[len(before) :].strip()
        for before, after in zip(payloads, sent, strict=True)
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12))
def test_equal_payloads_that_cannot_grow_go_into_transactions_of_their_own(shortages: list[int]) -> None:
    """P05 at the edge of P04: one at the limit has no room for white space."""
    payloads = ["é" * 100 + "x" * (MAX_PAYLOAD - 200 - shortage) for shortage in shortages]
    result = list(transactions(payloads))
    sent = [payload for part in result for payload in part]
    assert all(len(set(part)) == len(part) for part in result)
    assert [payload.rstrip() for payload in sent] == payloads
    assert all(len(payload.encode()) <= MAX_PAYLOAD for payload in sent)


def test_payloads_that_differ_are_handed_on_as_they_are() -> None:
    payloads = ["a", "b"]
    assert list(transactions(payloads)) == [payloads]
    assert list(transactions(["a", "a"])) == [["a", "a "]]


@settings(deadline=None)
@given(st.recursive(st.text(), lambda values: st.dictionaries(st.text(), values), max_leaves=5))
def test_escaping_keeps_the_value_and_leaves_ascii(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert escaped(text).isascii()
    assert json.loads(escaped(text)) == value
