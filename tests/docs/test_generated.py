"""The generated pages are what would be generated now."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from notification_bus.testing import CHECKS

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(generator().PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    page = generator().PAGES[name]
    assert (DOCS / name).read_text(encoding="utf-8") == page(), "run `uv run python docs/generate.py`"


def test_every_rule_is_on_the_page_of_the_contract() -> None:
    assert list(generator().rules()) == [
        *("echo", "ready", "hand_off", "at_most_once", "complete", "order", "bounded", "never_ends"),
        *("reconnect", "gaps", "untrusted", "wire", "close", "cancellation", "isolation", "lifecycle"),
    ]


def test_the_page_shows_the_bus_that_is_tested() -> None:
    code = (DOCS.parent / "examples" / "own_bus" / "amqp_bus.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in (DOCS / "write-your-own-bus.md").read_text(encoding="utf-8")


def test_the_table_of_compatibility_has_every_check_and_no_failure() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| (.*) \|$", (DOCS / "compatibility.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [check for check, _ in rows] == list(CHECKS), "run `uv run python -m docs.compatibility`"
    assert {mark for _, marks in rows for mark in marks.split(" | ")} <= {"✓", "-"}
