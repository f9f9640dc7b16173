"""The checks and the protocol's docstring say the same."""

import inspect
import re
from pathlib import Path

from notification_bus import NotificationBus
from notification_bus.testing import CHECKS
from notification_bus.testing import checks as package
from notification_bus.testing.check import CLAIMS, Check
from notification_bus.testing.checks import HARNESS_CHECKS

ALL = (*HARNESS_CHECKS, *CHECKS.values())


def _rules() -> list[str]:
    return re.findall(r"^\s*\d+\. \*\*(\w+)\*\*:", NotificationBus.__doc__ or "", flags=re.MULTILINE)


def test_every_decorated_function_runs_and_is_named_by_its_id() -> None:
    """A check in a module that the package forgets would never run; one with another's id would replace it."""
    decorated = [
        value
        for _, module in inspect.getmembers(package, inspect.ismodule)
        for value in vars(module).values()
        if isinstance(value, Check)
    ]
    assert sorted(check.id for check in decorated) == sorted(check.id for check in ALL)
    assert [check.id.replace(".", "_", 1) for check in ALL] == [
        getattr(check.function, "__name__", "") for check in ALL
    ]
    assert list(CHECKS) == [check.id for check in CHECKS.values()]


def test_every_module_of_checks_is_collected() -> None:
    names = {path.stem for path in Path(package.__path__[0]).glob("*.py")}
    collected = {getattr(check.function, "__module__", "").rpartition(".")[2] for check in ALL}
    assert collected == names - {"__init__"}


def test_every_rule_of_the_protocol_is_proven_and_every_check_proves_one() -> None:
    rules = _rules()
    assert len(rules) == 16
    assert {check.rule for check in CHECKS.values()} == set(rules)


def test_a_check_of_the_harness_is_binding_and_proves_no_rule_of_a_bus() -> None:
    assert {(check.level, check.rule, check.claim) for check in HARNESS_CHECKS} == {("MUST", "harness", None)}
    assert not {check.id for check in HARNESS_CHECKS} & set(CHECKS)


def test_a_check_that_is_binding_depends_on_no_claim_but_that_equals_are_kept() -> None:
    for check in CHECKS.values():
        if check.level == "CAPABILITY":
            assert check.claim is not None, check.id
        else:
            assert check.claim in {None, "distinct"}, check.id
    assert {check.claim for check in CHECKS.values()} - {None} == set(CLAIMS)


def test_behaviours_are_sentences() -> None:
    for check in ALL:
        assert re.fullmatch(r"[A-Z`].*\.", check.behaviour), check.id
        assert len(check.behaviour) < 140, check.id
