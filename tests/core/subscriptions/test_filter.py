"""The filter on the wire, and what narrowing leaves of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus.errors import NotificationBusError
from notification_bus.subscriptions import Capabilities, InvalidFilterError, SubscriptionFilter

FLAGS = {
    "toolsListChanged": "tools_list_changed",
    "promptsListChanged": "prompts_list_changed",
    "resourcesListChanged": "resources_list_changed",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FILTERS = st.builds(
    SubscriptionFilter,
    tools_list_changed=st.booleans(),
    prompts_list_changed=st.booleans(),
    resources_list_changed=st.booleans(),
    resource_subscriptions=st.lists(st.text(st.characters(codec="utf-8")), max_size=4),
    extra=st.dictionaries(st.sampled_from(["taskIds", "x"]), JSON, max_size=2),
)
CAPABILITIES = st.builds(
    Capabilities,
    tools_list_changed=st.booleans(),
    prompts_list_changed=st.booleans(),
    resources_list_changed=st.booleans(),
    resources_subscribe=st.booleans(),
    extensions=st.frozensets(st.sampled_from(["taskIds", "x"])),
)


@settings(deadline=None)
@given(FILTERS)
def test_a_filter_read_back_from_the_wire_is_the_same(asked: SubscriptionFilter) -> None:
    wire = json.loads(json.dumps(asked.to_wire()))
    assert SubscriptionFilter.from_wire(wire) == asked
    assert SubscriptionFilter.from_wire(wire).to_wire() == wire


@pytest.mark.parametrize(("wire", "attribute"), FLAGS.items())
def test_each_flag_is_read_and_written_in_camel_case(wire: str, attribute: str) -> None:
    read = SubscriptionFilter.from_wire({wire: True})
    assert read == SubscriptionFilter(**{attribute: True})  # type: ignore[arg-type]
    assert read.to_wire() == {wire: True}


@pytest.mark.parametrize(
    "nothing", [{}, dict.fromkeys(FLAGS, False), {**dict.fromkeys(FLAGS), "resourceSubscriptions": None}]
)
def test_false_null_and_absent_ask_for_nothing_and_are_not_written(nothing: dict[str, Any]) -> None:
    read = SubscriptionFilter.from_wire(nothing)
    assert read.is_empty
    assert read.to_wire() == {}


def test_an_empty_list_of_uris_is_not_written() -> None:
    assert SubscriptionFilter.from_wire({"resourceSubscriptions": []}).to_wire() == {}


def test_a_uri_asked_for_twice_counts_once_in_the_order_asked_for() -> None:
    read = SubscriptionFilter.from_wire({"resourceSubscriptions": ["b://2", "a://1", "b://2"]})
    assert read.resource_subscriptions == ("b://2", "a://1")


def test_uris_are_kept_letter_by_letter() -> None:
    uris = ["http://x", "http://x/", "HTTP://X", "http://x/%41", "", " ", "ünï://ö"]
    assert SubscriptionFilter.from_wire({"resourceSubscriptions": uris}).to_wire() == {"resourceSubscriptions": uris}


def test_unknown_members_are_kept() -> None:
    wire = {"toolsListChanged": True, "taskIds": ["t-1", {"deep": None}], "x": None}
    assert SubscriptionFilter.from_wire(wire).to_wire() == wire


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (None, "the filter is null"),
        (["toolsListChanged"], "the filter is list"),
        ("toolsListChanged", "the filter is str"),
        ({"toolsListChanged": 1}, "toolsListChanged is int 1"),
        ({"promptsListChanged": "true"}, "promptsListChanged is str 'true'"),
        ({"resourcesListChanged": []}, "resourcesListChanged is list"),
        ({"resourceSubscriptions": "a://1"}, "resourceSubscriptions is str 'a://1'"),
        ({"resourceSubscriptions": {"a://1": True}}, "resourceSubscriptions is dict"),
        ({"resourceSubscriptions": ["a://1", 7]}, r"resourceSubscriptions\[1\] is int 7"),
        ({"resourceSubscriptions": ["a://1", None]}, r"resourceSubscriptions\[1\] is null"),
        ({"resourceSubscriptions": ["\ud800"]}, r"resourceSubscriptions\[0\] holds a lone surrogate"),
    ],
)
def test_what_is_no_filter_is_refused_with_the_member_its_value_and_the_remedy(wire: object, says: str) -> None:
    with pytest.raises(InvalidFilterError, match=says) as caught:
        SubscriptionFilter.from_wire(wire)
    assert isinstance(caught.value, NotificationBusError)


def test_a_refused_value_is_never_shown_at_full_length() -> None:
    with pytest.raises(InvalidFilterError) as caught:
        SubscriptionFilter.from_wire({"toolsListChanged": ["x" * 1_000_000] * 1000})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("uris", ["a://1", None, 7])
def test_a_filter_built_with_something_else_than_a_list_of_uris_is_refused(uris: Any) -> None:
    with pytest.raises(InvalidFilterError, match="give a list of URIs"):
        SubscriptionFilter(resource_subscriptions=uris)


def test_a_filter_cannot_be_changed_through_what_it_was_built_from() -> None:
    uris, extra = ["a://1"], {"taskIds": 1}
    built = SubscriptionFilter(resource_subscriptions=uris, extra=extra)  # type: ignore[arg-type]  # any iterable does
    uris.append("a://2")
    extra["y"] = 2
    built.to_wire()["resourceSubscriptions"].append("a://3")
    assert built.to_wire() == {"resourceSubscriptions": ["a://1"], "taskIds": 1}
    assert hash(built) == hash(SubscriptionFilter(resource_subscriptions=("a://1",)))


def test_narrowing_drops_what_is_not_advertised() -> None:
    asked = SubscriptionFilter.from_wire(
        {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a://1"], "taskIds": [1]}
    )
    assert asked.narrow(Capabilities(prompts_list_changed=False)).to_wire() == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["a://1"],
    }
    assert asked.narrow(Capabilities(resources_subscribe=False, extensions=frozenset({"taskIds"}))).to_wire() == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "taskIds": [1],
    }


@settings(deadline=None)
@given(FILTERS, CAPABILITIES)
def test_narrowing_never_adds_and_twice_is_once(asked: SubscriptionFilter, capabilities: Capabilities) -> None:
    accepted = asked.narrow(capabilities)
    assert accepted.narrow(capabilities) == accepted
    assert accepted.to_wire().items() <= asked.to_wire().items() if not asked.extra else True
    assert accepted.to_wire().keys() <= asked.to_wire().keys()
    assert asked.narrow(Capabilities(extensions=frozenset({"taskIds", "x"}))) == asked


@settings(deadline=None)
@given(FILTERS, FILTERS)
def test_an_intersection_holds_what_both_ask_for(one: SubscriptionFilter, other: SubscriptionFilter) -> None:
    both = one.intersect(other)
    for attribute in FLAGS.values():
        assert getattr(both, attribute) is (getattr(one, attribute) and getattr(other, attribute))
    assert both.resource_subscriptions == tuple(
        uri for uri in one.resource_subscriptions if uri in other.resource_subscriptions
    )
    assert both.extra == {name: one.extra[name] for name in one.extra if name in other.extra}


def test_a_filter_of_extensions_alone_passes_nothing() -> None:
    assert SubscriptionFilter(extra={"taskIds": [1]}).is_empty
