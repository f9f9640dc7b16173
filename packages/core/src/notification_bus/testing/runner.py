"""Runs checks: one at a time, all of them, or all of them several times at once."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, cast

import anyio

from notification_bus.testing._shape import one_line, shape_faults
from notification_bus.testing._tasks import LoopThread, base_backend, start_loop
from notification_bus.testing._watch import Watch
from notification_bus.testing.check import CLAIMS, Check, Need
from notification_bus.testing.checks import CHECKS, HARNESS_CHECKS
from notification_bus.testing.context import Context, Setup
from notification_bus.testing.harness import Harness
from notification_bus.testing.outcome import HarnessFaultError, KnownFailure, Result, UntestableError
from notification_bus.testing.timing import Timing

__all__ = [
    "Examination",
    "HarnessFault",
    "examine_harness",
    "iter_suite",
    "run_check",
    "run_stress",
    "run_suite",
    "select_checks",
]

_GRACE: Final = 10.0
"""Seconds, beyond the deadline of a check, that its end may take before it is given up with its thread."""

_DEFAULT: Final = Timing()

_FAULTS: Final = frozenset[Need]({"delay", "stall", "cut", "deaf"})
_BROKER: Final = _FAULTS | frozenset[Need]({"wire", "process"})


@dataclass(slots=True)
class _Run:
    """One run of one check, and what came of it."""

    check: Check
    context: Context | None = None
    error: BaseException | None = None
    seconds: float = 0.0
    ended: bool = False
    timed_out: bool = False


@dataclass(slots=True)
class _Execution:
    """The runs of one event loop: several sequences beside each other."""

    sequences: list[list[_Run]]
    watch: Watch
    broken: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class HarnessFault:
    """One way in which a harness cannot be believed."""

    id: str
    """Which check found it: `harness.links`, for instance."""

    text: str
    """What was seen, and what to do about it."""

    def __str__(self) -> str:
        return f"the harness, not the bus: {self.text}"


@dataclass(slots=True, kw_only=True)
class Examination:
    """What the checks of a harness found."""

    faults: list[HarnessFault] = field(default_factory=list[HarnessFault])
    """The ways in which it cannot be believed."""

    obstacle: str | None = None
    """Why no bus could be started or used, if none could: the broker is away, for instance. That is no fault."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def examine_harness(harness: Harness, *, backend: str | None = None, patience: float = 3.0) -> Examination:
    """Run the checks of the harness, up to the first that finds a fault or cannot use the bus.

    Args:
        harness: The harness.
        backend: The async library to do it on; the first that the bus declares by default.
        patience: Seconds to wait for what must come.
    """
    began = time.perf_counter()
    found = Examination(faults=[HarnessFault("harness.shape", text) for text in shape_faults(harness)])
    if not found.faults:
        declared = harness.capabilities.backends
        # On one that the bus does not run on, nothing could be seen.
        name = backend if backend is not None and base_backend(backend) in declared else declared[0]
        timing = Timing(wait=patience, deadline=patience * 8)
        for check in HARNESS_CHECKS:
            if _without_running(check, harness, name) is None and not _examine(
                check, _set_up(harness, name, timing, 1), found
            ):
                break
    found.seconds = time.perf_counter() - began
    return found


def _examine(check: Check, setup: Setup, found: Examination) -> bool:
    """Run one check of a harness; whether the next ones can build on it."""
    run = _Run(check)
    # What the bus logs or leaves behind meanwhile is for the other checks to say.
    execution = _execute([[run]], setup)
    failure = None if run.context is None else run.context.failure
    if isinstance(failure, HarnessFaultError):
        found.faults += [HarnessFault(check.id, text) for text in failure.texts]
        return False
    errors = [] if run.error is None else _errors(run.error)
    if any(isinstance(error, UntestableError) for error in errors):
        return False
    if errors or execution.broken or run.timed_out:
        where = "" if run.context is None else f"{run.context.step}: "
        why = one_line(errors[0]) if errors else "it did not end in time"
        found.obstacle = where + why
    return found.obstacle is None


def select_checks(patterns: Sequence[str] | None) -> tuple[Check, ...]:
    """The checks whose id matches one of the patterns, such as `slow.*`; all of them for `None`.

    Raises:
        ValueError: A pattern matches nothing.
    """
    if patterns is None:
        return tuple(CHECKS.values())
    for pattern in patterns:
        if not any(fnmatchcase(id_, pattern) for id_ in CHECKS):
            raise ValueError(f"no check is called {pattern!r}; they are {', '.join(CHECKS)}")
    return tuple(check for check in CHECKS.values() if any(fnmatchcase(check.id, pattern) for pattern in patterns))


def run_check(
    check: Check | str,
    harness: Harness,
    *,
    backend: str = "asyncio",
    timing: Timing = _DEFAULT,
    scale: int = 1,
    known_failures: Iterable[KnownFailure] = (),
) -> Result:
    """Run one check of one bus on one async library, in an event loop and a thread of its own.

    Args:
        check: The check, or its id.
        harness: The bus.
        backend: `asyncio`, `asyncio+debug`, `asyncio+uvloop` or `trio`.
        timing: How patient to be.
        scale: How much more than usual to publish where the amount matters.
        known_failures: What this bus is known to fail.
    """
    entry = CHECKS[check] if isinstance(check, str) else check
    result = _without_running(entry, harness, backend)
    if result is None:
        run = _Run(entry)
        execution = _execute([[run]], _set_up(harness, backend, timing, scale))
        result = _judge(run, execution, backend)
    return _consider_known(result, known_failures)


def iter_suite(
    harness: Harness,
    *,
    backends: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    timing: Timing = _DEFAULT,
    scale: int = 1,
    known_failures: Sequence[KnownFailure] = (),
) -> Iterator[Result]:
    """Run the checks one after the other, and yield each result as it comes. See `run_check`.

    Args:
        harness: The bus.
        backends: The async libraries; those that the bus declares where it is not given.
        only: Patterns of ids; everything where it is not given.
        timing: How patient to be.
        scale: How much more than usual to publish where the amount matters.
        known_failures: What this bus is known to fail. One that names no check is yielded as a failure of that name.
    """
    checks = select_checks(only)
    for known in known_failures:
        if known.id not in CHECKS:
            reason = f"a known failure is declared for {known.id!r}, and there is no such check: remove it"
            yield Result(id=known.id, backend="", outcome="failed", reason=reason)
    for backend in backends or harness.capabilities.backends:
        for check in checks:
            yield run_check(check, harness, backend=backend, timing=timing, scale=scale, known_failures=known_failures)


def run_suite(
    harness: Harness,
    *,
    backends: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    timing: Timing = _DEFAULT,
    scale: int = 1,
    known_failures: Sequence[KnownFailure] = (),
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Run the checks one after the other. See `iter_suite`."""
    results: list[Result] = []
    for result in iter_suite(
        harness, backends=backends, only=only, timing=timing, scale=scale, known_failures=known_failures
    ):
        results.append(result)
        if on_result is not None:
            on_result(result)
    return results


def run_stress(
    harness: Harness,
    *,
    backend: str = "asyncio",
    copies: int = 4,
    only: Sequence[str] | None = None,
    timing: Timing = _DEFAULT,
    scale: int = 1,
    known_failures: Sequence[KnownFailure] = (),
    on_run: Callable[[str], None] | None = None,
) -> list[Result]:
    """Run the whole suite several times at once, each run of a check on a channel of its own, in one event loop.

    Every copy begins at another place of the suite, so that unlike checks meet. Budgets of time grow with the number of
    copies. What cannot be told apart (a task, a thread or a log record too many) is reported under the id `stress`.
    See `run_check`, and `on_run` is called, in another thread, with the id of each check whose run has ended.
    """
    results: list[Result] = []
    runnable: list[Check] = []
    for check in select_checks(only):
        result = _without_running(check, harness, backend)
        if result is None:
            runnable.append(check)
        else:
            results.append(result)
    sequences: list[list[_Run]] = []
    for copy in range(copies):
        start = copy * len(runnable) // copies
        sequences.append([_Run(check) for check in runnable[start:] + runnable[:start]])
    execution = _execute(sequences, _set_up(harness, backend, timing, scale, copies), on_run)
    troubles, execution.watch.troubles = execution.watch.troubles, []
    results += [
        _consider_known(_judge(run, execution, backend), known_failures) for sequence in sequences for run in sequence
    ]
    if troubles:
        results.append(Result(id="stress", backend=backend, outcome="failed", reason="\n".join(troubles)))
    return results


def _set_up(harness: Harness, backend: str, timing: Timing, scale: int, copies: int = 1) -> Setup:
    watch = Watch(harness.capabilities.drop_logger)
    return Setup(harness=harness, backend=backend, timing=timing, scale=scale, copies=copies, watch=watch)


def _without_running(check: Check, harness: Harness, backend: str) -> Result | None:
    """The outcome of a check that is not to be run; `None` for one that is."""
    capabilities = harness.capabilities
    is_brokerless = not capabilities.has_broker and bool(check.needs & _BROKER)
    name = base_backend(backend)
    reason = ""
    if name not in capabilities.backends:
        reason = f"the bus runs on {' and '.join(capabilities.backends)} only"
    elif check.claim is not None and not CLAIMS[check.claim][0](capabilities):
        reason = CLAIMS[check.claim][1]
    elif is_brokerless and not check.brokerless:
        reason = "the bus has no broker, so there is no link, no wire and no other process to reach"
    if reason:
        return Result(id=check.id, backend=backend, outcome="not_declared", reason=reason, level=check.level)
    lacking = None if is_brokerless else _lacking(check, harness)
    if lacking is not None:
        return Result(id=check.id, backend=backend, outcome="untestable", reason=lacking, level=check.level)
    return None


def _lacking(check: Check, harness: Harness) -> str | None:
    """Which hook the check needs and the harness lacks, in words."""
    hooks, faults = harness.hooks, check.needs & _FAULTS
    if faults and "link" not in hooks:
        listed = " and ".join(f"`{need}`" for need in sorted(faults))
        return f"the harness has no `link`, and the check needs {listed}"
    if "wire" in check.needs and "wire" not in hooks:
        return "the harness has no `wire`"
    if "process" in check.needs and "child" not in hooks:
        return "the harness has no `child`, so no other process can be started"
    if "build" in check.needs and "build" not in hooks:
        return "the harness has no `build`, so there is no bus that was not started"
    return None


def _execute(sequences: list[list[_Run]], setup: Setup, on_run: Callable[[str], None] | None = None) -> _Execution:
    """Run the sequences in one event loop, in a thread: what blocks or resists its cancellation is left behind."""
    execution = _Execution(sequences, setup.watch)
    watch, timing = setup.watch, setup.timing

    async def run_in_turn(runs: list[_Run]) -> None:
        for run in runs:
            await _run_one(run, setup)
            if on_run is not None:
                on_run(run.check.id)

    async def main() -> None:
        watch.enter_loop()
        async with anyio.create_task_group() as tasks:
            for runs in sequences:
                tasks.start_soon(run_in_turn, runs)
        await watch.leave_loop()

    limit = (timing.deadline * setup.copies + _GRACE) * max(map(len, sequences), default=0)
    with watch.around():
        thread = LoopThread(lambda: start_loop(main, setup.backend))
        thread.start()
        if not thread.finish(limit, _GRACE):
            execution.broken.append(
                f"it could not be ended, {_GRACE:g} s after its deadline of {timing.deadline:g} s; "
                f"it is at\n{thread.stack()}"
            )
        elif thread.error is not None:
            execution.broken.append(f"the event loop itself ended with {_text(thread.error)}")
    return execution


async def _run_one(run: _Run, setup: Setup) -> None:
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        run.context = Context(run.check, setup, tasks)
        try:
            with anyio.move_on_after(setup.timing.deadline * setup.copies) as scope:
                await run.check.function(run.context)
            run.timed_out = scope.cancelled_caught
        except BaseException as exc:
            # A cancellation is as good an error as any here: nobody cancels this task.
            run.error = exc
        run.seconds = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    run.ended = True


def _judge(run: _Run, execution: _Execution, backend: str) -> Result:
    kit, error = run.context, run.error
    result = Result(id=run.check.id, backend=backend, outcome="passed", seconds=run.seconds, level=run.check.level)
    around = [*execution.broken, *execution.watch.troubles]
    found = [] if error is None else _errors(error)
    untestable = next((str(leaf) for leaf in found if isinstance(leaf, UntestableError)), None)
    reasons: list[str] = []
    if kit is not None and kit.failure is not None:
        reasons.append(str(kit.failure))
    elif untestable is not None and not around:
        return replace(result, outcome="untestable", reason=untestable)
    elif found:
        doing = "" if kit is None else f"while {kit.step}: "
        # What came first is what it is about; tearing down after an error can fail in turn.
        reasons.append(doing + _text(error))
    if run.timed_out and kit is not None:
        reasons.append(f"it did not end in time; at last it was {kit.step}")
    elif not run.ended and not around:
        reasons.append("it did not end, or was never begun")
    reasons += around
    if not reasons:
        return result
    detail = "" if error is None else "".join(traceback.format_exception(error))
    return replace(result, outcome="failed", reason="\n".join(reasons), detail=detail)


def _text(error: BaseException | None) -> str:
    found = [] if error is None else _errors(error)
    return "\nand then: ".join(f"{type(leaf).__name__}: {leaf}" for leaf in found)


def _errors(error: BaseException) -> list[BaseException]:
    """The errors in it, what came first first; a cancellation only where there is nothing else."""
    leaves = list(_leaves(error))
    return [leaf for leaf in leaves if isinstance(leaf, Exception)] or leaves[:1]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
        return
    if error.__context__ is not None and not error.__suppress_context__:
        yield from _leaves(error.__context__)
    yield error


def _consider_known(result: Result, known_failures: Iterable[KnownFailure]) -> Result:
    known = next((known for known in known_failures if known.id == result.id), None)
    if known is None or result.outcome not in ("passed", "failed"):
        return result
    if result.outcome == "passed":
        reason = f"it passes, and is declared as a known failure: remove that ({known.link})"
        return replace(result, outcome="failed", reason=reason)
    return replace(result, outcome="known_failure", reason=f"{known.reason} ({known.link})\n{result.reason}")
