"""The run: options, a look at the harness, and each check on each async library, through the kit's runner."""

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.util import find_spec
from time import perf_counter
from typing import Final

from notification_bus.cli._command import CommandError, Tell
from notification_bus.cli.check._target import Target, find_target
from notification_bus.testing import (
    CHECKS,
    Check,
    Header,
    KnownFailure,
    Result,
    describe,
    examine_harness,
    run_check,
    run_stress,
)

__all__ = ["Options", "Report", "read_options", "run"]

_LIBRARIES: Final = {"trio": "trio", "asyncio+uvloop": "uvloop"}
"""The backends that need a distribution of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be run, and how."""

    checks: Sequence[Check]
    skipped: Mapping[str, str]
    """Ids that are not to be run, and why."""
    known_failures: Sequence[KnownFailure]
    strict: bool
    backends: Sequence[str] | None
    scale: int
    stress: int | None


def read_options(arguments: argparse.Namespace) -> Options:
    """Read the options of the command line.

    Raises:
        CommandError: One makes no sense. Names it, and what would.
    """
    wanted = {id_ for text in arguments.only or ["*"] for id_ in _ids("--only", text)}
    skipped: dict[str, str] = {}
    for name, reason in (_pair("--skip", text) for text in arguments.skip):
        skipped |= dict.fromkeys(_ids("--skip", name), reason)
    known: list[KnownFailure] = []
    for name, reason in (_pair("--known-failure", text) for text in arguments.known_failure):
        if name not in CHECKS:
            raise CommandError(f"--known-failure: there is no check {name!r}{_suggestion(name, groups=False)}")
        # A link to an issue is part of the reason here; its place tells where the failure was declared.
        known.append(KnownFailure(name, reason, "declared by --known-failure"))
        if name in skipped:
            raise CommandError(f"{name} is both skipped and a known failure: a known failure is run, so choose one")
    for backend in arguments.backend or ():
        if missing := _missing_library(backend):
            raise CommandError(f"--backend {backend}: {missing} is not installed here: pip install {missing}")
    return Options(
        checks=[check for id_, check in CHECKS.items() if id_ in wanted],
        skipped=skipped,
        known_failures=known,
        strict=arguments.strict,
        backends=arguments.backend and list(dict.fromkeys(arguments.backend)),
        scale=arguments.scale,
        stress=arguments.stress,
    )


def _pair(option: str, text: str) -> tuple[str, str]:
    name, _, reason = (part.strip() for part in text.partition("="))
    if not name or not reason:
        raise CommandError(f"{option} {text!r} wants a reason, as in {option} {name or 'ID'}='why it is so'")
    return name, reason


def _group(id_: str) -> str:
    return id_.partition(".")[0]


def _ids(option: str, text: str) -> list[str]:
    """Return the ids that a text stands for: an id, a group, or a pattern such as `slow.*`."""
    found = [id_ for id_ in CHECKS if text == _group(id_) or fnmatchcase(id_, text)]
    if not found:
        raise CommandError(f"{option}: there is no check or group {text!r}{_suggestion(text)}")
    return found


def _suggestion(text: str, *, groups: bool = True) -> str:
    names = [*(dict.fromkeys(map(_group, CHECKS)) if groups else ()), *CHECKS]
    close = get_close_matches(text, names, n=2, cutoff=0.7)
    return (f"; did you mean {' or '.join(close)}?" if close else ";") + " `notification-bus check --list` lists them"


def _missing_library(backend: str) -> str | None:
    """Return the distribution that a backend needs and that is not installed; `None` if nothing is missing."""
    name = _LIBRARIES.get(backend)
    return name if name is not None and find_spec(name) is None else None


@dataclass(slots=True, kw_only=True)
class Report:
    """The results, without any secret."""

    target: Target
    header: Header
    backends: Sequence[str]
    options: Options
    results: list[Result] = field(default_factory=list[Result])
    seconds: float = 0.0

    def is_red(self, result: Result) -> bool:
        """Return True for an error. What was skipped is none, also under `--strict`: it was skipped for a reason."""
        return result.red(strict=self.options.strict and result.id not in self.options.skipped)

    @property
    def red(self) -> list[Result]:
        """The errors."""
        return [result for result in self.results if self.is_red(result)]

    @property
    def counts(self) -> Counter[str]:
        """The number of results of each outcome."""
        return Counter(result.outcome for result in self.results)


def run(text: str, options: Options, tell: Tell) -> Report:
    """Run the checks on TARGET.

    Raises:
        CommandError: They cannot be run. Says why, and what to do.
    """
    # Python would print the warnings that a bus under test logs, which are for the checks to look at.
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        return _run(text, options, tell)
    finally:
        logging.getLogger().removeHandler(silent)


def _run(text: str, options: Options, tell: Tell) -> Report:
    began = perf_counter()
    tell("looking for the bus")
    target = find_target(text)
    backends, absent = _backends(target, options)
    backend = next(iter(backends), None)
    tell("looking whether the harness does what it says")
    _examine(target, backend)
    try:
        header = describe(target.harness, backend=backend, scale=options.scale)
    except Exception as exc:
        raise CommandError(target.redact(f"the harness cannot be described: {type(exc).__name__}: {exc}")) from exc
    report = Report(target=target, header=header, backends=[*backends, *absent], options=options)
    for result in _results(target, options, report.backends, absent, tell):
        report.results.append(replace(result, reason=target.redact(result.reason), detail=target.redact(result.detail)))
    report.seconds = perf_counter() - began
    return report


def _backends(target: Target, options: Options) -> tuple[Sequence[str], Sequence[str]]:
    """Return the async libraries to run on, and those that the bus declares and that are not installed."""
    declared: Sequence[str] = getattr(getattr(target.harness, "capabilities", None), "backends", ())
    if isinstance(declared, str) or not declared:
        return [], []  # a fault of the harness, which its examination reports
    if options.backends is None:
        absent = [backend for backend in declared if _missing_library(backend)]
        return [backend for backend in declared if backend not in absent], absent
    for backend in options.backends:
        if backend.partition("+")[0] not in declared:
            raise CommandError(
                f"--backend {backend}: this bus runs on {' and '.join(declared)} only, so nothing would be checked"
            )
    return options.backends, []


def _examine(target: Target, backend: str | None) -> None:
    """Look at the harness.

    Raises:
        CommandError: It does not do what it says, or no bus can be started.
    """
    found = examine_harness(target.harness, backend=backend)
    if found.faults and all(fault.id == "harness.links" for fault in found.faults):
        # The bus bypassed our proxy, to another server of a cluster for instance.
        why = "the bus does not depend on the proxy that was put before its broker: " + found.faults[0].text
        if target.drop_links(target.redact(why)):
            found = examine_harness(target.harness, backend=backend)
    if found.faults:
        faults = "\n  ".join(str(fault).replace("\n", "\n  ") for fault in found.faults)
        raise CommandError(target.redact(f"nothing was checked, since the harness cannot be believed\n  {faults}"))
    if found.obstacle is not None:
        raise CommandError(
            target.redact(f"nothing was checked, since no bus of {target.shown} can be used: {found.obstacle}")
        )


def _results(
    target: Target, options: Options, backends: Sequence[str], absent: Sequence[str], tell: Tell
) -> Iterator[Result]:
    total = len(options.checks) * (len(backends) - len(absent))
    number = failed = 0
    for backend in backends:
        at_once: list[str] = []
        for check in options.checks:
            number += 1
            reason = ""
            if check.id in options.skipped:
                reason = f"skipped: {options.skipped[check.id]}"
            elif backend in absent:
                reason = f"{backend} is not installed here: pip install {_missing_library(backend)}"
            if reason:
                yield Result(id=check.id, backend=backend, outcome="untestable", reason=reason, level=check.level)
            elif options.stress is not None:
                at_once.append(check.id)
            else:
                tell(f"{number}/{total} {check.id} on {backend}" + (f", {failed} failed" if failed else ""))
                result = run_check(
                    check, target.harness, backend=backend, scale=options.scale, known_failures=options.known_failures
                )
                failed += result.outcome == "failed"
                yield result
        if at_once:
            yield from _run_at_once(target, options, backend, at_once, tell)


def _run_at_once(target: Target, options: Options, backend: str, ids: Sequence[str], tell: Tell) -> Iterator[Result]:
    copies = options.stress or 1
    ended = 0

    def count(id_: str) -> None:
        nonlocal ended
        ended += 1
        if ended % copies == 0:
            tell(f"{ended} runs of {len(ids)} checks, {copies} at once, on {backend}; at last {id_}")

    tell(f"{len(ids)} checks, {copies} at once, on {backend}")
    yield from run_stress(
        target.harness,
        backend=backend,
        copies=copies,
        only=ids,
        scale=options.scale,
        known_failures=options.known_failures,
        on_run=count,
    )
