"""The run: the harness looked at, then each check on each async library."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TypeAlias

from notification_bus.cli._command import CommandError
from notification_bus.cli.check._options import Options, missing_library
from notification_bus.cli.check._quiet import quiet
from notification_bus.cli.check._target import Target, find_target
from notification_bus.testing import Check, Header, Result, describe, run_check, run_stress
from notification_bus.testing.selfcheck import examine_harness

__all__ = ["Report", "run"]

Tell: TypeAlias = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of it, ready to be shown: nothing in it is secret."""

    target: str
    header: Header
    notes: Sequence[str]
    backends: Sequence[str]
    options: Options
    results: list[Result] = field(default_factory=list[Result])
    seconds: float = 0.0

    def is_red(self, result: Result) -> bool:
        """Whether this one is an error. What was skipped was so on purpose and with a reason, also under `--strict`."""
        return result.red(strict=self.options.strict and result.id not in self.options.skipped)

    @property
    def red(self) -> list[Result]:
        """The errors."""
        return [result for result in self.results if self.is_red(result)]

    @property
    def counts(self) -> Counter[str]:
        """How often each outcome came."""
        return Counter(result.outcome for result in self.results)


def run(text: str, options: Options, tell: Tell) -> Report:
    """Run the checks.

    Args:
        text: TARGET.
        options: How.
        tell: Takes what is being done.

    Raises:
        CommandError: They cannot be run. Says why, and what to do.
    """
    with quiet():
        return _run(text, options, tell)


def _run(text: str, options: Options, tell: Tell) -> Report:
    began = perf_counter()
    tell("looking for the bus")
    target = find_target(text)
    backends, absent = _backends(target, options)
    tell("looking whether the harness does what it says")
    _expect_honest(target, backends[0] if backends else None)
    try:
        header = describe(target.harness, backend=next(iter(backends), None), scale=options.scale)
    except Exception as exc:
        raise CommandError(target.redact(f"the harness cannot be described: {type(exc).__name__}: {exc}")) from exc
    report = Report(
        target=target.shown,
        header=header,
        notes=target.notes,
        backends=[*backends, *absent],
        options=options,
    )
    for result in [*_results(target, options, backends, tell), *_absent(options, absent)]:
        report.results.append(replace(result, reason=target.redact(result.reason), detail=target.redact(result.detail)))
    report.seconds = perf_counter() - began
    return report


def _backends(target: Target, options: Options) -> tuple[list[str], list[str]]:
    """The async libraries to run on, and those that the bus declares and that are not here."""
    declared: Sequence[str] = getattr(getattr(target.harness, "capabilities", None), "backends", ())
    if isinstance(declared, str) or not declared:
        return [], []  # a fault of the harness, which is about to be found
    if options.backends is None:
        return [b for b in declared if missing_library(b) is None], [b for b in declared if missing_library(b)]
    for backend in options.backends:
        if backend.partition("+")[0] not in declared:
            raise CommandError(
                f"--backend {backend}: this bus runs on {' and '.join(declared)} only, so nothing would be checked"
            )
    return list(options.backends), []


def _expect_honest(target: Target, backend: str | None) -> None:
    """Look at the harness.

    Raises:
        CommandError: It cannot be believed, or no bus can be started.
    """
    found = examine_harness(target.harness, backend=backend)
    if found.faults and all(fault.member == "link" for fault in found.faults):
        # The bus found its way around our proxy, to another server of a cluster for instance.
        why = "the bus does not depend on the proxy that was put before its broker: " + found.faults[0].text
        if target.without_links(target.redact(why)):
            found = examine_harness(target.harness, backend=backend)
    if found.faults:
        faults = "\n  ".join(str(fault).replace("\n", "\n  ") for fault in found.faults)
        raise CommandError(target.redact(f"nothing was checked, since the harness cannot be believed\n  {faults}"))
    if found.obstacle is not None:
        raise CommandError(
            target.redact(f"nothing was checked, since no bus of {target.shown} can be used: {found.obstacle}")
        )


def _results(target: Target, options: Options, backends: Sequence[str], tell: Tell) -> Iterator[Result]:
    checks = [check for check in options.checks if check.id not in options.skipped]
    if options.stress is None:
        yield from _one_by_one(target, options, backends, tell)
        return
    for backend in backends:
        yield from _skipped(options, backend)
        if checks:
            yield from _at_once(target, options, backend, checks, tell)


def _one_by_one(target: Target, options: Options, backends: Sequence[str], tell: Tell) -> Iterator[Result]:
    total = len(backends) * len(options.checks)
    number = failed = 0
    for backend in backends:
        for check in options.checks:
            number += 1
            tell(f"{number}/{total} {check.id} on {backend}" + (f", {failed} failed" if failed else ""))
            if check.id in options.skipped:
                yield _skip(check, options, backend)
                continue
            result = run_check(
                check, target.harness, backend=backend, scale=options.scale, known_failures=options.known_failures
            )
            failed += result.outcome == "failed"
            yield result


def _at_once(target: Target, options: Options, backend: str, checks: Sequence[Check], tell: Tell) -> Iterator[Result]:
    copies = options.stress or 1
    ended = 0

    def count(id_: str) -> None:
        nonlocal ended
        ended += 1
        if ended % copies == 0:
            tell(f"{ended} runs of {len(checks)} checks, {copies} at once, on {backend}; at last {id_}")

    tell(f"{len(checks)} checks, {copies} at once, on {backend}")
    yield from run_stress(
        target.harness,
        backend=backend,
        copies=copies,
        only=[check.id for check in checks],
        scale=options.scale,
        known_failures=options.known_failures,
        on_run=count,
    )


def _skip(check: Check, options: Options, backend: str) -> Result:
    return Result(
        id=check.id,
        backend=backend,
        outcome="untestable",
        reason=f"skipped: {options.skipped[check.id]}",
        level=check.level,
    )


def _skipped(options: Options, backend: str) -> list[Result]:
    return [_skip(check, options, backend) for check in options.checks if check.id in options.skipped]


def _absent(options: Options, backends: Sequence[str]) -> Iterator[Result]:
    """What a bus declares and this machine lacks is not run, and not passed over in silence either."""
    for backend in backends:
        reason = f"{backend} is not installed here: pip install {missing_library(backend)}"
        for check in options.checks:
            if check.id in options.skipped:
                yield _skip(check, options, backend)
            else:
                yield Result(id=check.id, backend=backend, outcome="untestable", reason=reason, level=check.level)
