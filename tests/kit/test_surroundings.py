"""What every check is watched for, whatever it is about: each thing is shown to be noticed."""

import asyncio
import gc
import logging
import threading
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from notification_bus import MemoryBus
from notification_bus._loops import BackgroundTask
from notification_bus.testing import Context, Link, MemoryHarness, Result, Timing, run_check, run_stress, runner
from notification_bus.testing import _watch as watch
from notification_bus.testing.checks import CHECKS

CHECK: Final = "deliver.echo"

Run = Callable[[Callable[[Context], Awaitable[None]], str], Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a function in the place of a check, with a short grace for what it leaves."""
    monkeypatch.setattr(watch, "_GRACE", 0.05)

    def run_in_place(function: Callable[[Context], Awaitable[None]], backend: str = "asyncio") -> Result:
        monkeypatch.setitem(CHECKS, CHECK, replace(CHECKS[CHECK], function=function))
        return run_check(CHECK, MemoryHarness(), backend=backend, timing=Timing(wait=0.2, deadline=1.0))

    return run_in_place


both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@both
def test_a_check_that_does_nothing_leaves_nothing(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        pass

    assert run(check, backend).outcome == "passed"


@both
def test_a_task_left_running_is_noticed(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        BackgroundTask(anyio.sleep_forever, "the task that stays")

    result = run(check, backend)
    assert result.outcome == "failed"
    assert "1 tasks were left running: the task that stays" in result.reason


@both
def test_a_task_that_ends_by_itself_in_a_moment_is_not_held_against_anybody(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        BackgroundTask(lambda: anyio.sleep(0.01), "a task that ends")

    assert run(check, backend).outcome == "passed"


@both
def test_a_thread_left_running_is_noticed(run: Run, backend: str) -> None:
    over = threading.Event()

    async def check(kit: Context) -> None:
        threading.Thread(target=over.wait, name="the thread that stays", daemon=True).start()

    result = run(check, backend)
    over.set()
    assert "threads were left running: the thread that stays" in result.reason


@both
def test_threads_that_the_async_library_keeps_are_its_own(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        await anyio.to_thread.run_sync(time.sleep, 0)

    assert run(check, backend).outcome == "passed"


@both
def test_a_thread_that_ends_with_an_error_is_noticed(run: Run, backend: str) -> None:
    def fail() -> None:
        raise ValueError("in a thread")

    async def check(kit: Context) -> None:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()

    assert "a thread ended with ValueError('in a thread')" in run(check, backend).reason


@both
@pytest.mark.parametrize("name", ["notification_bus.memory", "somebody.else", "root"])
def test_a_log_record_above_warning_is_noticed_whosever_it_is(run: Run, backend: str, name: str) -> None:
    async def check(kit: Context) -> None:
        logging.getLogger(None if name == "root" else name).error("it went %s", "wrong")

    assert f"a log record of level ERROR on {name!r}: it went wrong" in run(check, backend).reason


@both
def test_a_warning_in_the_log_is_not_held_against_anybody(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        logging.getLogger("notification_bus.memory").warning("the broker is away")

    assert run(check, backend).outcome == "passed"


def test_an_error_that_nobody_retrieves_is_noticed(run: Run) -> None:
    async def fail() -> None:
        raise ValueError("unseen")

    async def check(kit: Context) -> None:
        task = asyncio.get_running_loop().create_task(fail())
        while not task.done():
            await checkpoint()

    result = run(check, "asyncio")
    assert "the event loop's exception handler was called" in result.reason
    assert "unseen" in result.reason


def test_a_call_of_the_exception_handler_is_noticed(run: Run) -> None:
    def fail() -> None:
        raise ValueError("in a callback")

    async def check(kit: Context) -> None:
        asyncio.get_running_loop().call_soon(fail)
        await anyio.sleep(0.01)

    assert "in a callback" in run(check, "asyncio").reason


@both
def test_a_call_of_the_exception_handler_of_a_loop_of_its_own_is_noticed(run: Run, backend: str) -> None:
    async def fail() -> None:
        raise ValueError("elsewhere")

    async def check(kit: Context) -> None:
        await kit.in_new_loop(fail)

    assert "ValueError: elsewhere" in run(check, backend).reason


@both
def test_a_coroutine_that_nobody_awaits_is_noticed(run: Run, backend: str) -> None:
    async def forgotten() -> None:
        pass

    async def check(kit: Context) -> None:
        forgotten()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]  # the fault

    assert "forgotten' was never awaited" in run(check, backend).reason


@both
def test_a_resource_left_to_the_collector_is_noticed_also_in_a_cycle(run: Run, backend: str) -> None:
    class Resource:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            warnings.warn("left open", ResourceWarning, source=self, stacklevel=1)

    async def check(kit: Context) -> None:
        Resource()

    assert "ResourceWarning: left open" in run(check, backend).reason


@both
def test_an_error_in_a_finalizer_is_noticed(run: Run, backend: str) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("in a finalizer")

    async def check(kit: Context) -> None:
        Broken()

    assert "in a finalizer" in run(check, backend).reason


@both
def test_what_was_garbage_before_the_check_is_not_held_against_it(run: Run, backend: str) -> None:
    class Resource:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            warnings.warn("left open by somebody else", ResourceWarning, source=self, stacklevel=1)

    async def check(kit: Context) -> None:
        pass

    gc.collect()
    Resource()
    result = run(check, backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    assert result.outcome == "passed"


@both
def test_other_warnings_pass_through(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        warnings.warn("to be changed", DeprecationWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(check, backend)
    assert result.outcome == "passed"
    assert [str(warning.message) for warning in caught] == ["to be changed"]


class _FailsToStop(MemoryHarness):
    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[MemoryBus]:
        async with super().instance(channel, link) as bus:
            try:
                yield bus
            finally:
                raise OSError("while tearing down")


@both
def test_the_first_failure_is_not_replaced_by_that_of_tearing_down(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    async def check(kit: Context) -> None:
        async with kit.instance():
            kit.fail("that it works", "that it does not")

    monkeypatch.setitem(CHECKS, CHECK, replace(CHECKS[CHECK], function=check))
    result = run_check(CHECK, _FailsToStop(), backend=backend)
    assert result.reason == "promised: that it works\n    seen: that it does not"
    assert "while tearing down" in result.detail


@both
def test_an_error_of_the_bus_comes_before_that_of_tearing_down(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    async def check(kit: Context) -> None:
        async with kit.instance():
            raise ValueError("the first")

    monkeypatch.setitem(CHECKS, CHECK, replace(CHECKS[CHECK], function=check))
    reason = run_check(CHECK, _FailsToStop(), backend=backend).reason
    assert reason.startswith("while using an instance on channel")
    assert reason.endswith("ValueError: the first\nand then: OSError: while tearing down")


@both
def test_an_error_of_tearing_down_alone_is_a_failure(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    async def check(kit: Context) -> None:
        async with kit.instance():
            pass

    monkeypatch.setitem(CHECKS, CHECK, replace(CHECKS[CHECK], function=check))
    reason = run_check(CHECK, _FailsToStop(), backend=backend).reason
    assert reason.startswith("while stopping an instance")
    assert reason.endswith("OSError: while tearing down")


@both
def test_a_failure_in_a_task_of_the_check_is_reported_as_it_is(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        async def fail() -> None:
            kit.fail("that it works", "that it does not")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    assert run(check, backend).reason == "promised: that it works\n    seen: that it does not"


@both
def test_a_check_that_does_not_end_is_ended_at_its_deadline(run: Run, backend: str) -> None:
    async def check(kit: Context) -> None:
        async with kit.instance("somewhere"):
            await anyio.sleep_forever()

    result = run(check, backend)
    assert result.reason == "it did not end in time; at last it was using an instance on channel 'somewhere'"
    assert result.seconds < 5


@both
def test_a_check_that_resists_its_end_is_given_up_and_where_it_is_is_told(
    run: Run, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_GRACE", 0.2)
    over = threading.Event()

    async def check(kit: Context) -> None:
        with anyio.CancelScope(shield=True):
            while not over.is_set():
                await anyio.sleep(0.01)

    result = run(check, backend)
    over.set()
    assert "it could not be ended" in result.reason
    assert result.red()


@both
def test_a_check_that_blocks_its_event_loop_is_given_up_and_where_it_is_is_told(
    run: Run, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_GRACE", 0.2)
    over = threading.Event()

    async def check(kit: Context) -> None:
        kit.failure = None
        over.wait(10)  # the fault

    result = run(check, backend)
    over.set()
    assert "it could not be ended" in result.reason
    assert "over.wait(10)" in result.reason


def test_a_cancellation_that_a_bus_lets_escape_is_a_failure(run: Run) -> None:
    async def check(kit: Context) -> None:
        raise asyncio.CancelledError

    assert "CancelledError" in run(check, "asyncio").reason


def test_under_stress_what_cannot_be_told_apart_is_reported_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(kit: Context) -> None:
        logging.getLogger("somebody").error("it went wrong")

    monkeypatch.setitem(CHECKS, CHECK, replace(CHECKS[CHECK], function=check))
    results = run_stress(MemoryHarness(), copies=2, only=[CHECK])
    assert [(result.id, result.outcome) for result in results] == [
        (CHECK, "passed"),
        (CHECK, "passed"),
        ("stress", "failed"),
    ]
