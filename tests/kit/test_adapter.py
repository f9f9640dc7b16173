"""The kit in pytest: which tests there are, and how each outcome is reported."""

import pytest

from notification_bus.testing import contract

pytest_plugins = ["pytester"]

_MEMORY = """
import pytest
from notification_bus.testing import Harness, KnownFailure, Timing, memory_harness
from notification_bus.testing.contract import BusContract

class TestMemory(BusContract):
    {attributes}

    @pytest.fixture
    def harness(self):
        return {harness}
"""

_DEAF = """
from contextlib import asynccontextmanager
from notification_bus import MemoryBus
from notification_bus.testing import Capabilities, Harness

class Deaf(Harness):
    capabilities = Capabilities(buffer=16)

    @asynccontextmanager
    async def instance(self, channel, link=None):
        async with MemoryBus(channel) as speaking, MemoryBus(channel + "-elsewhere") as hearing:
            speaking.subscribe = hearing.subscribe
            yield speaking
"""

# Only what a user has who installs core and pytest: no plugin for async tests, nothing of this project's settings.
_BARE = ("-p", "no:anyio", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error")


def _write(
    pytester: pytest.Pytester, attributes: str = "pass", harness: str = "memory_harness()", more: str = ""
) -> None:
    pytester.makepyfile(test_bus=more + _MEMORY.format(attributes=attributes.replace("\n", "\n    "), harness=harness))


def test_there_is_a_test_for_each_check_and_library_with_a_readable_name(pytester: pytest.Pytester) -> None:
    _write(pytester, 'backends = ("asyncio", "trio")')
    result = pytester.runpytest_inprocess(*_BARE, "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::TestMemory::test_contract[[]deliver.fan_out-asyncio[]]"])
    result.stdout.fnmatch_lines(["*::TestMemory::test_contract[[]life.built_without_loop-trio[]]"])
    result.stdout.fnmatch_lines(["*::TestMemory::test_declarations"])
    # The base class itself is no test.
    assert sum("::test_contract[" in line for line in result.outlines) == 2 * 54


def test_a_bus_that_keeps_the_contract_passes_and_what_it_cannot_have_is_skipped_with_the_reason(
    pytester: pytest.Pytester,
) -> None:
    _write(pytester, 'strict = True\nbackends = ("asyncio", "trio")')
    result = pytester.runpytest_inprocess(*_BARE, "-rs", "-k", "deliver. or declarations")
    result.assert_outcomes(passed=15, skipped=2, deselected=92)
    result.stdout.fnmatch_lines(["SKIPPED*not declared: the bus has no broker, so there is no link*"])


def test_the_end_of_the_report_says_what_was_checked_with_what(pytester: pytest.Pytester) -> None:
    _write(pytester, "scale = 2\nstrict = True", more="")
    result = pytester.runpytest_inprocess(*_BARE, "-k", "echo or wire.")
    result.stdout.fnmatch_lines(
        [
            "*contract of a notification bus: *TestMemory*",
            "bus: notification_bus.memory.MemoryBus 0.*",
            "broker: none",
            "capabilities: buffer=16,*has_broker=False*",
            "faults: none",
            "hooks: build",
            "scale: 2",
            "strict: True",
            "outcomes: 1 passed, 3 not declared",
        ]
    )


def test_a_failure_says_what_was_promised_and_what_was_seen(pytester: pytest.Pytester) -> None:
    _write(pytester, "timing = Timing(wait=0.2)", "Deaf()", more=_DEAF)
    result = pytester.runpytest_inprocess(*_BARE, "-k", "echo")
    result.assert_outcomes(failed=1, deselected=54)
    result.stdout.fnmatch_lines(
        [
            "deliver.echo on asyncio (MUST, rule 'echo'): An instance's subscription yields *",
            "promised: a subscription yields what its own instance publishes",
            "    seen: after 0.2 s: subscription 1 received 0 numbered notifications, without 1, 2, 3",
        ]
    )


def test_a_known_failure_is_expected_and_is_an_error_when_it_passes(pytester: pytest.Pytester) -> None:
    known = 'timing = Timing(wait=0.2)\nknown_failures = [KnownFailure("deliver.echo", "it is deaf", "https://example.invalid/1")]'
    _write(pytester, known, "Deaf()", more=_DEAF)
    result = pytester.runpytest_inprocess(*_BARE, "-rx", "-k", "echo")
    result.assert_outcomes(xfailed=1, deselected=54)
    result.stdout.fnmatch_lines(["XFAIL*it is deaf (https://example.invalid/1)*"])

    _write(pytester, known)
    result = pytester.runpytest_inprocess(*_BARE, "-k", "echo")
    result.assert_outcomes(failed=1, deselected=54)
    result.stdout.fnmatch_lines(
        ["it passes, and is declared as a known failure: remove that (https://example.invalid/1)"]
    )


def test_a_known_failure_of_a_check_that_does_not_exist_is_an_error(pytester: pytest.Pytester) -> None:
    _write(pytester, 'known_failures = [KnownFailure("deliver.ehco", "a slip", "https://example.invalid/1")]')
    result = pytester.runpytest_inprocess(*_BARE, "-k", "declarations")
    result.assert_outcomes(failed=1, deselected=54)
    result.stdout.fnmatch_lines(["*known failures are declared for checks that do not exist: deliver.ehco"])


def test_an_async_library_that_the_bus_declares_and_the_class_leaves_out_is_an_error(
    pytester: pytest.Pytester,
) -> None:
    _write(pytester, 'backends = ("asyncio+debug",)')
    result = pytester.runpytest_inprocess(*_BARE, "-k", "declarations")
    result.assert_outcomes(failed=1, deselected=54)
    result.stdout.fnmatch_lines(["*it runs on trio, and `TestMemory.backends` leaves that out"])


def test_an_async_library_that_is_not_installed_is_left_out_and_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_trio(backend: str) -> bool:
        return backend != "trio"

    monkeypatch.setattr(contract, "is_installed", without_trio)
    _write(pytester, 'backends = ("asyncio", "trio")')
    result = pytester.runpytest_inprocess(*_BARE, "-k", "echo or declarations")
    result.assert_outcomes(passed=2, deselected=53)
    result.stdout.fnmatch_lines(["not run, since it is not installed: trio"])

    _write(pytester, 'backends = ("asyncio",)')
    pytester.runpytest_inprocess(*_BARE, "-k", "declarations").assert_outcomes(passed=1, deselected=54)


@pytest.mark.parametrize(("strict", "outcome"), [("False", "skipped"), ("True", "failed")])
def test_a_check_that_cannot_be_run_is_skipped_or_under_strict_an_error(
    pytester: pytest.Pytester, strict: str, outcome: str
) -> None:
    _write(pytester, f"strict = {strict}", "Deaf()", more=_DEAF)
    result = pytester.runpytest_inprocess(*_BARE, "-rs", "-k", "body_is_exact")
    assert result.parseoutcomes() == {outcome: 1, "deselected": 54}
    result.stdout.fnmatch_lines(["*the harness has no `wire`"])


@pytest.mark.parametrize("name", ["test_contract", "test_declarations", "pytest_generate_tests"])
def test_overriding_a_generated_test_is_an_error(pytester: pytest.Pytester, name: str) -> None:
    _write(pytester, f"def {name}(self): pass")
    result = pytester.runpytest_inprocess(*_BARE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*TypeError: TestMemory.{name} overrides a generated test*"])


def test_a_class_of_its_own_beside_the_generated_tests_and_a_parametrized_harness_work(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_bus="""
        import pytest
        from notification_bus.testing import memory_harness
        from notification_bus.testing.contract import BusContract

        class TestMemory(BusContract):
            backends = ("asyncio", "trio")

            @pytest.fixture(params=["small", "large"])
            def harness(self, request):
                return memory_harness()

            def test_of_its_own(self, harness):
                pass

        class TestMore(TestMemory):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*_BARE, "-k", "echo or of_its_own")
    result.assert_outcomes(passed=12, deselected=2 * 2 * (2 * 53 + 1))


def test_an_ini_file_that_is_strict_about_everything_accepts_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nstrict = true\nfilterwarnings = error\n")
    _write(pytester, 'backends = ("asyncio", "trio")')
    pytester.runpytest_subprocess(*_BARE, "-k", "echo or declarations").assert_outcomes(passed=3, deselected=106)
