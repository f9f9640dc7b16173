"""The manifest, the functions and the protocol's docstring say the same."""

import inspect
import re

from notification_bus import NotificationBus
from notification_bus.testing import MANIFEST, Context
from notification_bus.testing.checks import FUNCTIONS, MODULES
from notification_bus.testing.manifest import CLAIMS


def _rules() -> list[str]:
    return re.findall(r"^\s*\d+\. \*\*(\w+)\*\*:", NotificationBus.__doc__ or "", flags=re.MULTILINE)


def test_every_entry_has_a_function_and_every_function_an_entry() -> None:
    assert list(dict.fromkeys(check.id for check in MANIFEST)) == [check.id for check in MANIFEST]
    assert {check.id for check in MANIFEST} == set(FUNCTIONS)


def test_every_public_function_of_the_modules_of_checks_is_a_check_or_a_helper_of_one() -> None:
    """A check that `__all__` forgets would never run."""
    for module in MODULES:
        taking_a_context = {
            name
            for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
            if function.__module__ == module.__name__
            and not name.startswith("_")
            and [p.annotation for p in inspect.signature(function).parameters.values()] == [Context]
        }
        assert taking_a_context <= set(module.__all__), module.__name__
        assert {
            name for name in module.__all__ if name.partition("_")[0] not in {"expect", "sockets"}
        } == taking_a_context


def test_every_rule_of_the_protocol_is_proven_and_every_check_proves_one() -> None:
    rules = _rules()
    assert len(rules) == 16
    assert {check.rule for check in MANIFEST} == set(rules)


def test_a_check_that_is_binding_depends_on_no_claim_but_that_equals_are_kept() -> None:
    for check in MANIFEST:
        if check.level == "CAPABILITY":
            assert check.claim is not None, check.id
        else:
            assert check.claim in {None, "distinct"}, check.id
    assert {check.claim for check in MANIFEST} - {None} == set(CLAIMS)


def test_behaviours_are_sentences() -> None:
    for check in MANIFEST:
        assert re.fullmatch(r"[A-Z`].*\.", check.behaviour), check.id
        assert len(check.behaviour) < 140, check.id
