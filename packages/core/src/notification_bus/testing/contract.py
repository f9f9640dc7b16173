"""The contract kit in pytest: subclass `BusContract`, give it a `harness` fixture, and every check is a test.

    class TestMyBus(BusContract):
        strict = True

        @pytest.fixture
        def harness(self):
            return MyHarness()

The tests are ordinary functions, so no plugin for async tests is needed, and none gets in the way.
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final, cast

import pytest

from notification_bus.testing._tasks import base_backend, is_installed
from notification_bus.testing.checks import CHECKS
from notification_bus.testing.harness import Harness
from notification_bus.testing.outcome import KnownFailure, Result
from notification_bus.testing.report import describe
from notification_bus.testing.runner import Examination, examine_harness, run_check
from notification_bus.testing.timing import Timing

__all__ = ["BusContract"]

_GENERATED: Final = ("pytest_generate_tests", "test_contract", "test_declarations")


class BusContract:
    """Base of a test class for one bus. A subclass gives the fixture `harness`, and may set what is below.

    There is a test for each check and async library, named like `test_contract[deliver.fan_out-asyncio]`. A check that
    the bus does not declare is skipped with the reason, and so is one that the harness cannot have run, which `strict`
    makes an error; a known failure is reported as one that was expected. Nothing of this can be overridden. Before the
    first, the checks of the harness are run (`examine_harness`); one that fails them fails every test.
    """

    strict: ClassVar[bool] = False
    """Whether a check that the harness lacks a hook for is an error."""

    backends: ClassVar[Sequence[str]] = ("asyncio",)
    """The async libraries to run on: those of the harness's capabilities, each by itself or as `asyncio+debug` or
    `asyncio+uvloop`."""

    known_failures: ClassVar[Sequence[KnownFailure]] = ()
    """What this bus is known to fail."""

    timing: ClassVar[Timing] = Timing()
    """How patient to be."""

    scale: ClassVar[int] = 1
    """How much more than usual to publish where the amount matters."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in _GENERATED:
            if name in cls.__dict__:
                raise TypeError(
                    f"{cls.__name__}.{name} overrides a generated test: a check that this bus fails is declared in "
                    "`known_failures`, with the reason"
                )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of each check on each async library."""
        if metafunc.definition.originalname == "test_contract":
            # What is not installed is named in the summary. If nothing is left, every test says that by failing.
            backends = [*filter(is_installed, type(self).backends)] or type(self).backends
            cases = [(check.id, backend) for check in CHECKS.values() for backend in backends]
            ids = [f"{id_}-{backend}" for id_, backend in cases]
            metafunc.parametrize(("contract_check", "contract_backend"), cases, ids=ids)

    def test_contract(
        self, harness: Harness, contract_check: str, contract_backend: str, request: pytest.FixtureRequest
    ) -> None:
        """One check."""
        cls = type(self)
        summary = _summary(request.config)
        summary.expect_honest(request, harness, contract_backend)
        summary.begin(cls, harness)
        result = run_check(
            contract_check,
            harness,
            backend=contract_backend,
            timing=cls.timing,
            scale=cls.scale,
            known_failures=cls.known_failures,
        )
        summary.add(cls, result)
        if result.red(strict=cls.strict):
            pytest.fail(_report(result), pytrace=False)
        if result.outcome == "known_failure":
            pytest.xfail(result.reason)
        if result.outcome != "passed":
            pytest.skip(f"{result.outcome.replace('_', ' ')}: {result.reason}")

    def test_declarations(self, harness: Harness, request: pytest.FixtureRequest) -> None:
        """What the class declares fits the kit and the harness, which does what it says."""
        cls = type(self)
        _summary(request.config).expect_honest(request, harness, next(filter(is_installed, cls.backends), "asyncio"))
        stale = [failure.id for failure in cls.known_failures if failure.id not in CHECKS]
        if stale:
            pytest.fail(f"known failures are declared for checks that do not exist: {', '.join(stale)}", pytrace=False)
        declared = set(filter(is_installed, harness.capabilities.backends))
        run = {base_backend(backend) for backend in cls.backends}
        if declared - run:
            pytest.fail(
                f"the bus declares that it runs on {', '.join(sorted(declared - run))}, and `{cls.__name__}.backends` "
                "leaves that out",
                pytrace=False,
            )


def _report(result: Result) -> str:
    check = CHECKS[result.id]
    lines = [f"{check.id} on {result.backend} ({check.level}, rule {check.rule!r}): {check.behaviour}", result.reason]
    if result.detail:
        lines += ["", result.detail]
    return "\n".join(lines)


class _Summary:
    """What the terminal shows at the end: once a class, what was checked and what came of it."""

    def __init__(self) -> None:
        self._headers: dict[str, list[str]] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self._examined: dict[object, Examination] = {}

    def expect_honest(self, request: pytest.FixtureRequest, harness: Harness, backend: str) -> None:
        """Fail where the harness cannot be believed: looked at once a class, and once for each of its parameters."""
        places: dict[str, int] = getattr(getattr(request.node, "callspec", None), "indices", {})
        parameters = sorted(place for place in places.items() if not place[0].startswith("contract_"))
        key: object = (cast("object", request.cls), type(harness), tuple(parameters))
        if key not in self._examined:
            self._examined[key] = examine_harness(harness, backend=backend)
        if self._examined[key].faults:
            pytest.fail(f"the check was not run:\n{self._examined[key]}", pytrace=False)

    def begin(self, cls: type[BusContract], harness: Harness) -> None:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name not in self._headers:
            header = describe(harness, backend=next(filter(is_installed, cls.backends)), scale=cls.scale)
            absent = [backend for backend in cls.backends if not is_installed(backend)]
            self._headers[name] = [
                *header.lines(),
                f"strict: {cls.strict}",
                *(f"not run, since it is not installed: {backend}" for backend in absent),
            ]
            self._outcomes[name] = Counter()

    def add(self, cls: type[BusContract], result: Result) -> None:
        self._outcomes[f"{cls.__module__}.{cls.__qualname__}"][result.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, lines in self._headers.items():
            terminalreporter.section(f"contract of a notification bus: {name}")
            for line in lines:
                terminalreporter.line(line)
            counts = ", ".join(
                f"{count} {outcome.replace('_', ' ')}" for outcome, count in self._outcomes[name].items()
            )
            terminalreporter.line(f"outcomes: {counts}")


_SUMMARY = pytest.StashKey[_Summary]()


def _summary(config: pytest.Config) -> _Summary:
    if _SUMMARY not in config.stash:
        summary = config.stash[_SUMMARY] = _Summary()
        config.pluginmanager.register(summary, "notification_bus_contract")
    return config.stash[_SUMMARY]
