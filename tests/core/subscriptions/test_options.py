"""The options of a registry, and the errors that name a limit."""

import pickle
from math import inf, nan
from typing import Any

import pytest

from notification_bus.errors import NotificationBusError
from notification_bus.subscriptions import (
    RegistryOptionError,
    RegistryOptions,
    SubscriptionLimitError,
    SubscriptionRegistry,
)

SECONDS = ("drain", "ready_timeout", "gap_spread", "gap_interval")


@pytest.mark.parametrize("name", ["max_streams", "max_uris", "max_uri_length"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3", None])
def test_a_count_that_is_no_whole_number_from_one_on_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RegistryOptionError, match=f"{name} is {value!r}: give"):
        SubscriptionRegistry(**{name: value})


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [-1, -0.1, True, nan, inf, "3", None])
def test_a_time_that_is_no_number_of_seconds_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RegistryOptionError, match=f"{name} is {value!r}: give"):
        SubscriptionRegistry(**{name: value})


@pytest.mark.parametrize("value", [0, -1, True, nan, "3"])
def test_a_lifetime_that_is_neither_seconds_nor_none_is_refused(value: Any) -> None:
    with pytest.raises(RegistryOptionError, match=f"max_lifetime is {value!r}: give"):
        SubscriptionRegistry(max_lifetime=value)


@pytest.mark.parametrize("name", ["sub_resources", "end_empty"])
def test_a_switch_that_is_no_boolean_is_refused(name: str) -> None:
    with pytest.raises(RegistryOptionError, match=f"{name} is 1: give True or False"):
        SubscriptionRegistry(**{name: 1})  # type: ignore[arg-type]


def test_zero_seconds_are_allowed_where_they_mean_at_once() -> None:
    options = RegistryOptions(drain=0, ready_timeout=0, gap_spread=0, gap_interval=0)
    assert all(getattr(options, name) == 0 for name in SECONDS)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="max_stream"):
        SubscriptionRegistry(max_stream=1)  # type: ignore[call-arg]


def test_a_limit_error_names_the_option_the_value_and_what_is_allowed() -> None:
    error = SubscriptionLimitError("max_uris", 100_000, 1000)
    assert isinstance(error, NotificationBusError)
    assert (error.limit, error.value, error.allowed) == ("max_uris", 100_000, 1000)
    assert "100000 URIs" in str(error)
    assert "at most 1000" in str(error)
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert (str(copied), copied.limit) == (str(error), error.limit)
