"""Runs checks: one at a time, all of them, or all of them several times at once."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import anyio

from notification_bus.testing._hooks import Hooks
from notification_bus.testing._tasks import LoopThread, base_backend, start_loop
from notification_bus.testing._watch import Watch
from notification_bus.testing.checks import FUNCTIONS
from notification_bus.testing.context import Context
from notification_bus.testing.harness import Harness
from notification_bus.testing.manifest import CLAIMS, MANIFEST, Check, find_check
from notification_bus.testing.outcome import CheckFailedError, KnownFailure, Result, UntestableError
from notification_bus.testing.timing import Timing

__all__ = ["iter_suite", "run_check", "run_stress", "run_suite", "select_checks"]

_GRACE: Final = 10.0
"""Seconds, beyond the deadline of a check, that its end may take before it is given up with its thread."""

_DEFAULT: Final = Timing()


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
    thread: LoopThread | None = None
    broken: list[str] = field(default_factory=list[str])


def select_checks(patterns: Sequence[str] | None) -> tuple[Check, ...]:
    """The checks whose id matches one of the patterns, such as `slow.*`; all of them for `None`.

    Raises:
        ValueError: A pattern matches nothing.
    """
    if patterns is None:
        return MANIFEST
    for pattern in patterns:
        if not any(fnmatchcase(check.id, pattern) for check in MANIFEST):
            raise ValueError(f"no check is called {pattern!r}; they are {', '.join(check.id for check in MANIFEST)}")
    return tuple(check for check in MANIFEST if any(fnmatchcase(check.id, pattern) for pattern in patterns))


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
    entry = find_check(check) if isinstance(check, str) else check
    hooks = Hooks(harness)
    result = _without_running(entry, hooks, backend)
    if result is None:
        run = _Run(entry)
        execution = _execute([[run]], hooks, backend, timing, scale)
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
        if all(known.id != check.id for check in MANIFEST):
            reason = f"a known failure is declared for {known.id!r}, and there is no such check: remove it"
            yield Result(id=known.id, backend="", outcome="failed", reason=reason)
    for backend in backends or harness.capabilities.backends:
        for check in checks:
            yield run_check(
                check, harness, backend=backend, timing=timing, scale=scale, known_failures=known_failures
            )


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
) -> list[Result]:
    """Run the whole suite several times at once, each run of a check on a channel of its own, in one event loop.

    Every copy begins at another place of the suite, so that unlike checks meet. Budgets of time grow with the number of
    copies. What cannot be told apart (a task, a thread or a log record too many) is reported under the id `stress`.
    """
    hooks = Hooks(harness)
    results: list[Result] = []
    runnable: list[Check] = []
    for check in select_checks(only):
        result = _without_running(check, hooks, backend)
        if result is None:
            runnable.append(check)
        else:
            results.append(result)
    sequences: list[list[_Run]] = []
    for copy in range(copies):
        start = copy * len(runnable) // copies
        sequences.append([_Run(check) for check in runnable[start:] + runnable[:start]])
    execution = _execute(sequences, hooks, backend, timing, scale)
    troubles, execution.watch.troubles = execution.watch.troubles, []
    for run in (run for sequence in sequences for run in sequence):
        results.append(_consider_known(_judge(run, execution, backend), known_failures))
    if troubles:
        results.append(Result(id="stress", backend=backend, outcome="failed", reason=_listed(troubles)))
    return results


def _without_running(check: Check, hooks: Hooks, backend: str) -> Result | None:
    """The outcome of a check that is not to be run; `None` for one that is."""
    capabilities = hooks.capabilities
    name = base_backend(backend)
    reason = ""
    if name not in capabilities.backends:
        reason = f"the bus runs on {' and '.join(capabilities.backends)} only"
    elif check.claim is not None and not CLAIMS[check.claim][0](capabilities):
        reason = CLAIMS[check.claim][1]
    elif hooks.brokerless(check) and not check.brokerless:
        reason = "the bus has no broker, so there is no link, no wire and no other process to reach"
    if reason:
        return Result(id=check.id, backend=backend, outcome="not_declared", reason=reason, level=check.level)
    lacking = None if hooks.brokerless(check) else hooks.lacking(check)
    if lacking is not None:
        return Result(id=check.id, backend=backend, outcome="untestable", reason=lacking, level=check.level)
    return None


def _execute(sequences: list[list[_Run]], hooks: Hooks, backend: str, timing: Timing, scale: int) -> _Execution:
    """Run the sequences in one event loop, in a thread: what blocks or resists its cancellation is left behind."""
    watch = Watch(hooks.capabilities.drop_logger)
    execution = _Execution(sequences, watch)
    copies = len(sequences)

    async def sequence(runs: list[_Run]) -> None:
        for run in runs:
            await _run_one(run, hooks, backend, timing, scale, copies, watch)

    async def main() -> None:
        watch.enter_loop()
        async with anyio.create_task_group() as tasks:
            for runs in sequences:
                tasks.start_soon(sequence, runs)
        await watch.leave_loop()

    deadline = (timing.deadline * copies + _GRACE) * max(map(len, sequences), default=0)
    with watch.around():
        thread = execution.thread = LoopThread(lambda: start_loop(main, backend))
        thread.start()
        thread.join(deadline)
        if thread.is_alive():
            execution.broken.append(
                f"it could not be ended, {_GRACE:g} s after its deadline of {timing.deadline:g} s; it is at\n{thread.stack()}"
            )
        elif thread.error is not None:
            execution.broken.append(f"the event loop itself ended with {_chain(thread.error)}")
    return execution


async def _run_one(
    run: _Run, hooks: Hooks, backend: str, timing: Timing, scale: int, copies: int, watch: Watch
) -> None:
    began = time.perf_counter()
    function = FUNCTIONS[run.check.id]
    async with anyio.create_task_group() as tasks:
        run.context = kit = Context(
            run.check,
            hooks,
            backend,
            timing,
            scale=scale,
            copies=copies,
            tasks=tasks,
            logs=watch.logs,
            reports=watch.reports,
        )
        try:
            with anyio.move_on_after(timing.deadline * copies) as scope:
                await function(kit)
            run.timed_out = scope.cancelled_caught
        except BaseException as exc:
            # A cancellation is as good an error as any here: nobody cancels this task.
            run.error = exc
        run.seconds = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    run.ended = True


def _judge(run: _Run, execution: _Execution, backend: str) -> Result:
    kit, error = run.context, run.error
    found = [leaf for leaf in _leaves(error)] if error is not None else []
    failure: BaseException | None = kit.failure if kit is not None else None
    untestable = next((leaf for leaf in found if isinstance(leaf, UntestableError)), None)
    reasons: list[str] = []
    if failure is not None:
        reasons.append(str(failure))
    elif untestable is not None and not execution.watch.troubles and not execution.broken:
        return Result(
            id=run.check.id,
            backend=backend,
            outcome="untestable",
            reason=str(untestable),
            seconds=run.seconds,
            level=run.check.level,
        )
    elif found:
        failure = found[0]
        doing = kit.step if kit is not None else "starting"
        reasons.append(f"while {doing}: {type(failure).__name__}: {failure}")
    if run.timed_out and kit is not None:
        reasons.append(f"it did not end in time, at last it was {kit.step}")
    if not run.ended:
        reasons += execution.broken or ["it was never begun"]
    elif execution.broken:
        reasons += execution.broken
    reasons += execution.watch.troubles
    detail = "".join(traceback.format_exception(error)) if error is not None else ""
    return Result(
        id=run.check.id,
        backend=backend,
        outcome="failed" if reasons else "passed",
        reason=_listed(reasons),
        seconds=run.seconds,
        level=run.check.level,
        detail=detail,
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that groups hold, what came first first: tearing down after an error can put another in its place."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        if error.__context__ is not None and error.__cause__ is None and not error.__suppress_context__:
            yield from _leaves(error.__context__)
        yield error


def _chain(error: BaseException) -> str:
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in _leaves(error))


def _listed(reasons: Sequence[str]) -> str:
    return "\n".join(reasons)


def _consider_known(result: Result, known_failures: Iterable[KnownFailure]) -> Result:
    known = next((known for known in known_failures if known.id == result.id), None)
    if known is None or result.outcome not in ("passed", "failed"):
        return result
    if result.outcome == "passed":
        outcome, reason = "failed", f"it passes, and is declared as a known failure: remove that ({known.link})"
    else:
        outcome, reason = "known_failure", f"{known.reason} ({known.link})\n{result.reason}"
    return Result(
        id=result.id,
        backend=result.backend,
        outcome=outcome,  # type: ignore[arg-type]
        reason=reason,
        seconds=result.seconds,
        level=result.level,
        detail=result.detail,
    )


_ = CheckFailedError
