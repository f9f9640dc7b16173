"""What the kit needs to be imported and run: core's own dependencies, and nothing else."""

import subprocess
import sys
from importlib import import_module

import notification_bus.testing

_WITHOUT_PYTEST = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pytest", "_pytest", "trio", "rich", "mcp", "hypothesis"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
from notification_bus.testing import MemoryHarness, run_suite
results = run_suite(MemoryHarness(), backends=["asyncio"], only=["deliver.*"])
assert {result.outcome for result in results} == {"passed", "not_declared"}, results
assert not {"pytest", "_pytest", "trio"} & set(sys.modules)
"""


def test_the_checks_run_without_pytest_and_without_trio() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", _WITHOUT_PYTEST], check=True, timeout=60)


def test_what_is_public_is_listed_in_order_and_is_there() -> None:
    names = notification_bus.testing.__all__
    assert list(names) == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    for name in names:
        assert getattr(notification_bus.testing, name)


def test_every_module_of_the_kit_lists_what_is_public() -> None:
    for module in ("check", "runner", "harness", "harnesses", "timing", "outcome", "context", "traffic", "report"):
        assert import_module(f"notification_bus.testing.{module}").__all__
