"""`MemoryBus` keeps the contract, on its own and beside copies of itself."""

import pytest

from notification_bus.testing import MemoryHarness, Result, run_stress
from notification_bus.testing.contract import BusContract


class TestMemoryBus(BusContract):
    strict = True
    backends = ("asyncio", "trio", "asyncio+debug")

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_memory_bus_keeps_the_contract_when_several_suites_run_at_once(backend: str) -> None:
    results = run_stress(MemoryHarness(), backend=backend, copies=3)

    assert [result for result in results if result.red(strict=True)] == []
    assert _ids(results, "passed")
    for id_ in _ids(results, "passed"):
        assert sum(result.id == id_ for result in results) == 3


def _ids(results: list[Result], outcome: str) -> set[str]:
    return {result.id for result in results if result.outcome == outcome}
