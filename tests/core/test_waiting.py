"""Ctrl-C ends what the main thread waits for, whichever thread the system hands the signal to."""

import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic, sleep

import anyio
import pytest

from notification_bus.testing._tasks import LoopThread, start_loop
from notification_bus.testing._waiting import wait_for

LIMIT = 30.0

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill") or threading.current_thread() is not threading.main_thread(),
    reason="signals are the main thread's, and not every system can hand one to another",
)


@contextmanager
def interrupted() -> Generator[None]:
    """A thread gets the signal itself, so that the main thread, which waits by then, is not woken by it."""

    def interrupt() -> None:
        while not waiting(threading.main_thread()):
            sleep(0.001)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = monotonic()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # the thread begins before what it interrupts
        thread.start()
        yield
    assert monotonic() - before < LIMIT / 2
    thread.join()


def waiting(thread: threading.Thread) -> bool:
    """Whether a thread is in `wait_for`, and there in the waiting itself."""
    frame = sys._current_frames().get(thread.ident or 0)
    names: list[str] = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return "wait" in names and "wait_for" in names


def test_a_signal_that_another_thread_takes_ends_the_waiting() -> None:
    with interrupted():
        wait_for(threading.Event(), LIMIT)


def test_it_cancels_what_the_kit_runs() -> None:
    cancelled = threading.Event()

    async def main() -> None:
        try:
            await anyio.sleep(LIMIT)
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise

    loop = LoopThread(lambda: start_loop(main, "asyncio"))
    loop.start()
    with interrupted():
        loop.finish(LIMIT, LIMIT)
    assert cancelled.is_set()


def test_what_comes_in_time_or_not_is_told() -> None:
    event = threading.Event()
    assert not wait_for(event, 0)
    assert not wait_for(event, 0.15)
    event.set()
    assert wait_for(event, 0)
    assert wait_for(event, LIMIT)
