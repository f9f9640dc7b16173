"""Entering is counted, and a bus belongs to one event loop of one process at a time."""

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import anyio
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked

from notification_bus import BusClosedError, BusNotification, MemoryBus, OpenableBus
from notification_bus._lifecycle import ReferenceCounted
from notification_bus._loops import BackgroundTask, backend_name, current_loop, loop_is_over

LIMIT = 10.0
"""Seconds in which whatever must come has come."""

NOTE = BusNotification("test/note")
BACKENDS = ("asyncio", "trio")

_request: ContextVar[str] = ContextVar("request")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Counted(ReferenceCounted):
    """Counts its starts and stops, and stops when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[str] = []
        self.may_stop: anyio.Event | None = None
        self.fails: Exception | None = None

    def _start(self) -> None:
        if self.fails is not None:
            raise self.fails
        self.happened.append("start")

    async def _stop(self) -> None:
        if self.may_stop is not None:
            await self.may_stop.wait()
        self.happened.append("stop")
        if self.fails is not None:
            raise self.fails

    def _forget(self) -> None:
        self.happened.append("forget")

    def check(self) -> None:
        self._check_open()


class TestCounting:
    async def test_the_last_exit_stops_it(self) -> None:
        bus = Counted()
        for _ in range(3):
            assert await bus.__aenter__() is bus
        for _ in range(2):
            await bus.__aexit__(None, None, None)
            bus.check()
        assert bus.happened == ["start"]
        await bus.__aexit__(None, None, None)
        assert bus.happened == ["start", "stop"]
        with pytest.raises(BusClosedError):
            bus.check()

    async def test_it_can_be_entered_again(self) -> None:
        bus = Counted()
        for _ in range(3):
            async with bus, bus:
                bus.check()
        assert bus.happened == ["start", "stop"] * 3

    async def test_it_may_be_entered_and_left_by_different_tasks_in_any_order(self) -> None:
        bus = Counted()
        leave = [anyio.Event() for _ in range(3)]
        left: list[int] = []

        async def hold(number: int) -> None:
            async with bus:
                await leave[number].wait()
            left.append(number)

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(hold, number)
                await wait_all_tasks_blocked()
                for number in (1, 0, 2):
                    bus.check()
                    leave[number].set()
                    await wait_all_tasks_blocked()
        assert left == [1, 0, 2]
        assert bus.happened == ["start", "stop"]

    async def test_closing_stops_it_whatever_the_count_and_the_exits_to_come_do_nothing(self) -> None:
        bus = Counted()
        async with bus, bus:
            await bus.aclose()
            assert bus.happened == ["start", "stop"]
            await bus.aclose()
        assert bus.happened == ["start", "stop"]

    async def test_closing_one_that_was_never_entered_does_nothing(self) -> None:
        bus = Counted()
        await bus.aclose()
        await bus.__aexit__(None, None, None)
        assert bus.happened == []
        async with bus:
            bus.check()
        assert bus.happened == ["start", "stop"]

    async def test_closing_at_once_from_several_tasks_stops_it_once_and_waits_for_it(self) -> None:
        bus = Counted()
        bus.may_stop = anyio.Event()
        await bus.__aenter__()
        done: list[int] = []

        async def close(number: int) -> None:
            await bus.aclose()
            done.append(number)

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(close, number)
                await wait_all_tasks_blocked()
                assert done == []
                bus.may_stop.set()
        assert sorted(done) == [0, 1, 2]
        assert bus.happened == ["start", "stop"]

    async def test_entering_while_it_stops_waits_and_starts_it_anew(self) -> None:
        bus = Counted()
        bus.may_stop = anyio.Event()
        await bus.__aenter__()

        async def enter() -> None:
            await bus.__aenter__()

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.aclose)
                await wait_all_tasks_blocked()
                with pytest.raises(BusClosedError):
                    bus.check()
                tasks.start_soon(enter)
                tasks.start_soon(enter)
                await wait_all_tasks_blocked()
                assert bus.happened == ["start"]
                bus.may_stop.set()
        assert bus.happened == ["start", "stop", "start"]
        await bus.__aexit__(None, None, None)
        bus.check()
        await bus.__aexit__(None, None, None)
        assert bus.happened == ["start", "stop"] * 2

    async def test_a_cancelled_exit_stops_it_all_the_same(self) -> None:
        bus = Counted()
        with anyio.CancelScope() as scope:
            async with bus:
                bus.may_stop = anyio.Event()
                bus.may_stop.set()
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert bus.happened == ["start", "stop"]

    async def test_a_start_that_fails_leaves_it_closed(self) -> None:
        bus = Counted()
        bus.fails = RuntimeError("no such backend")
        with pytest.raises(RuntimeError, match="no such backend"):
            await bus.__aenter__()
        with pytest.raises(BusClosedError):
            bus.check()
        bus.fails = None
        async with bus:
            pass
        assert bus.happened == ["start", "stop"]

    async def test_a_stop_that_fails_leaves_it_closed(self) -> None:
        bus = Counted()
        await bus.__aenter__()
        bus.fails = OSError("broken")
        with pytest.raises(OSError, match="broken"):
            await bus.aclose()
        bus.fails = None
        with pytest.raises(BusClosedError):
            bus.check()
        async with bus:
            bus.check()

    async def test_one_never_entered_says_how_to_enter_it(self) -> None:
        with pytest.raises(BusClosedError, match="this Counted is not open: enter it first, as in `async with bus:`"):
            Counted().check()
        bus = MemoryBus()
        for use in (lambda: bus.publish(NOTE), lambda: bus.subscribe().__aenter__(), bus.wait_ready):
            with pytest.raises(BusClosedError, match="this MemoryBus is not open"):
                await use()


def _run(backend: str, main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main, backend=backend)


def _in_thread(backend: str, main: Callable[[], Awaitable[None]]) -> None:
    """Run a loop of its own in a thread of its own, and raise what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            _run(backend, main)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
    for exc in raised:
        raise exc


class TestLoops:
    @pytest.mark.parametrize("first", BACKENDS)
    @pytest.mark.parametrize("second", BACKENDS)
    def test_built_without_a_loop_it_works_on_one_after_the_other(self, first: str, second: str) -> None:
        """Check 52, life.built_without_loop."""
        bus = MemoryBus("loops")

        async def use() -> None:
            async with bus, bus.subscribe() as stream:
                await bus.publish(NOTE)
                with anyio.fail_after(LIMIT):
                    assert await anext(stream) == NOTE

        for backend in (first, second, first):
            _run(backend, use)

    @pytest.mark.parametrize("first", BACKENDS)
    @pytest.mark.parametrize("second", BACKENDS)
    def test_one_left_open_in_a_loop_that_has_ended_can_be_entered_anew(self, first: str, second: str) -> None:
        bus = Counted()

        async def forget_to_leave() -> None:
            await bus.__aenter__()
            await bus.__aenter__()

        async def use() -> None:
            with pytest.raises(BusClosedError, match="not open: enter it first"):
                bus.check()
            async with bus:
                bus.check()
            with pytest.raises(BusClosedError):
                bus.check()

        _run(first, forget_to_leave)
        _run(second, use)
        assert bus.happened == ["start", "forget", "start", "stop"]

    @pytest.mark.parametrize("second", BACKENDS)
    def test_closing_one_whose_loop_has_ended_lets_go_of_it(self, second: str) -> None:
        bus = Counted()

        async def forget_to_leave() -> None:
            await bus.__aenter__()

        async def close() -> None:
            await bus.aclose()
            await bus.aclose()
            with pytest.raises(BusClosedError, match="not open: enter it first"):
                bus.check()

        _run("asyncio", forget_to_leave)
        _run(second, close)
        assert bus.happened == ["start", "forget"]

    def test_readers_that_wait_in_a_loop_that_has_ended_keep_nobody_from_entering_anew(self) -> None:
        bus = MemoryBus("loops")
        loop = asyncio.new_event_loop()

        async def wait_for_ever() -> None:
            await bus.__aenter__()
            stream = await bus.subscribe().__aenter__()
            kept.append(stream)
            await anext(stream)

        kept: list[object] = []
        task = loop.create_task(wait_for_ever())
        for _ in range(5):
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        assert kept

        async def use() -> None:
            async with bus, bus.subscribe() as stream:
                assert bus.stats().subscriptions == 1
                await bus.publish(NOTE)
                with anyio.fail_after(LIMIT):
                    assert await anext(stream) == NOTE

        _run("asyncio", use)
        _run("trio", use)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # this test is what left it pending
        del task, loop
        kept.clear()
        with pytest.warns(ResourceWarning, match="dropped without being left"):
            gc.collect()

    def test_a_loop_that_ended_in_the_middle_of_stopping_keeps_nobody_from_entering_anew(self) -> None:
        bus = Counted()
        loop = asyncio.new_event_loop()

        async def stop_for_ever() -> None:
            bus.may_stop = anyio.Event()
            await bus.__aenter__()
            await bus.aclose()

        task = loop.create_task(stop_for_ever())
        for _ in range(5):
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        assert bus.happened == ["start"]
        bus.may_stop = None

        async def use() -> None:
            with anyio.fail_after(LIMIT):
                await bus.__aenter__()
                bus.may_stop = anyio.Event()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(bus.aclose)
                    await wait_all_tasks_blocked()
                    # The `finally` of the stop cut off before runs late, when its coroutine is thrown away: it must not
                    # end this life's stopping. (anyio complains that the scope in it is not left where it was entered.)
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # this test is what left it pending
                    with pytest.raises(RuntimeError, match="cancel scope"):
                        task.get_coro().close()
                    with anyio.move_on_after(0) as scope:
                        await bus.aclose()
                    assert scope.cancelled_caught, "a second close must wait for the first"
                    bus.may_stop.set()

        _run("asyncio", use)
        assert bus.happened == ["start", "forget", "start", "stop"]

    @pytest.mark.parametrize("other", BACKENDS)
    async def test_another_threads_loop_is_refused_and_changes_nothing(self, other: str) -> None:
        bus = Counted()

        async def use_elsewhere() -> None:
            for use in (bus.__aenter__, bus.aclose, lambda: bus.__aexit__(None, None, None)):
                with pytest.raises(BusClosedError, match="open in another event loop or process: use it there"):
                    await use()
            with pytest.raises(BusClosedError, match=r"anyio\.from_thread\.run"):
                bus.check()

        async with bus:
            async with bus:
                await anyio.to_thread.run_sync(_in_thread, other, use_elsewhere)
            bus.check()
            assert bus.happened == ["start"]
        assert bus.happened == ["start", "stop"]

    async def test_entering_in_another_threads_loop_while_it_stops_is_refused(self) -> None:
        bus = Counted()
        bus.may_stop = anyio.Event()
        await bus.__aenter__()

        async def enter_elsewhere() -> None:
            with anyio.fail_after(LIMIT), pytest.raises(BusClosedError, match="another event loop"):
                await bus.__aenter__()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.aclose)
            await wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(_in_thread, "asyncio", enter_elsewhere)
            bus.may_stop.set()
        async with bus:
            bus.check()


def _in_child(work: Callable[[], str]) -> str:
    """What `work` says in a child forked here."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on, forking beside threads of other tests warns; this child takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            said = work()
        except BaseException as exc:
            said = f"{type(exc).__name__}: {exc}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
class TestForks:
    async def test_a_child_that_goes_on_in_the_copied_loop_is_told_that_the_bus_is_not_its_own(self) -> None:
        bus = MemoryBus("forks")

        def work() -> str:
            bus.publish(NOTE).send(None)
            return "published"

        async with bus:
            said = _in_child(work)
        assert said.startswith("BusClosedError: this MemoryBus is open in another event loop or process")

    async def test_a_child_with_a_loop_of_its_own_is_told_so_and_can_enter_the_bus_anew(
        self, anyio_backend_name: str
    ) -> None:
        bus = MemoryBus("forks")
        said: list[str] = []

        async def use() -> None:
            try:
                await bus.publish(NOTE)
            except BusClosedError as exc:
                said.append(str(exc))
            async with bus, bus.subscribe() as stream:
                await bus.publish(NOTE)
                said.append((await anext(stream)).method)
                said.append(str(bus.stats().subscriptions))

        def work() -> str:
            _in_thread(anyio_backend_name, use)
            return "|".join(said)

        async with bus, bus.subscribe() as stream:
            refusal, got, open_streams = _in_child(work).split("|")
            assert "another event loop or process" in refusal
            assert "after the fork" in refusal
            assert got == NOTE.method
            assert open_streams == "1"
            await bus.publish(NOTE)
            with anyio.fail_after(LIMIT):
                assert await anext(stream) == NOTE

    async def test_a_child_that_leaves_or_closes_the_parents_bus_stops_nothing(self) -> None:
        bus = Counted()

        def work() -> str:
            for close in (bus.aclose(), bus.__aexit__(None, None, None)):
                with pytest.raises(StopIteration):
                    close.send(None)
            return " ".join(bus.happened)

        async with bus:
            assert _in_child(work) == "start forget"

    async def test_a_child_forked_while_the_bus_stops_can_enter_it(self, anyio_backend_name: str) -> None:
        bus = Counted()
        may_stop = bus.may_stop = anyio.Event()
        await bus.__aenter__()

        async def use() -> None:
            bus.may_stop = None
            with anyio.fail_after(LIMIT):
                async with bus:
                    bus.check()

        def work() -> str:
            _in_thread(anyio_backend_name, use)
            return " ".join(bus.happened)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.aclose)
            await wait_all_tasks_blocked()
            assert _in_child(work) == "start forget start stop"
            may_stop.set()


class TestBackend:
    async def test_the_running_loop_is_the_same_object_in_every_task(self, anyio_backend_name: str) -> None:
        seen: list[object] = []

        async def look() -> None:
            seen.append(current_loop())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            tasks.start_soon(look)
        assert seen[0] is seen[1] is current_loop()
        assert backend_name(seen[0]) == anyio_backend_name
        assert not loop_is_over(seen[0])

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_loop_that_has_ended_is_over(self, backend: str) -> None:
        seen: list[object] = []

        async def look() -> None:
            seen.append(current_loop())

        _run(backend, look)
        assert loop_is_over(seen[0])

    def test_without_a_loop_there_is_none(self) -> None:
        with pytest.raises(RuntimeError):
            current_loop()

    async def test_a_background_task_outlives_the_task_that_started_it_and_ends_when_cancelled(self) -> None:
        ended = False
        kept: list[BackgroundTask] = []

        async def work() -> None:
            nonlocal ended
            try:
                await anyio.sleep_forever()
            finally:
                ended = True

        async def start() -> None:
            kept.append(BackgroundTask(work, "test"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
        await wait_all_tasks_blocked()
        (task,) = kept
        assert not task.done
        task.cancel()
        with anyio.fail_after(LIMIT):
            await task.wait()
        assert task.done
        assert ended

    async def test_a_background_task_sees_none_of_its_starters_context(self) -> None:
        seen: list[str] = []

        async def work() -> None:
            seen.append(_request.get("none"))

        _request.set("a request")
        task = BackgroundTask(work, "test")
        with anyio.fail_after(LIMIT):
            await task.wait()
        assert seen == ["none"]

    async def test_a_background_task_cancelled_before_its_first_step_ends(self) -> None:
        async def work() -> None:
            await anyio.sleep_forever()

        task = BackgroundTask(work, "test")
        task.cancel()
        with anyio.fail_after(LIMIT):
            await task.wait()
        assert task.done


def test_the_memory_bus_is_an_openable_bus() -> None:
    assert isinstance(MemoryBus(), OpenableBus)
