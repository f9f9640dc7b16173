"""What the tests of the brokers' buses share: quick options, numbered notifications, subscribers that record."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from notification_bus import GAP, BusNotification
from notification_bus.bus import NotificationBus

__all__ = [
    "LIMIT",
    "QUICK",
    "Listener",
    "eventually",
    "leftovers",
    "links_to",
    "listening",
    "note",
    "outage_warnings",
    "proven",
    "settled",
]

LIMIT: Final = 20.0
"""Seconds in which what must happen has happened, on a busy machine."""

QUICK: Final[dict[str, Any]] = {
    "probe_interval": 0.5,
    "probe_timeout": 1.0,
    "backoff_cap": 0.2,
    "close_timeout": 1.0,
}
"""Options under which a fault is found and recovered from within seconds."""


def note(number: int = 0, text: str | None = None) -> BusNotification:
    """A notification that can be told from others."""
    return BusNotification("test/note", {"n": number} if text is None else {"n": number, "text": text})


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], what: str = "the condition", limit: float = LIMIT
) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: It does not hold within `limit` seconds; names `what` was waited for.
    """
    with anyio.move_on_after(limit):
        while True:
            outcome = condition()
            if outcome if isinstance(outcome, bool) else await outcome:
                return
            await anyio.sleep(0.01)
    raise TimeoutError(f"waited {limit:g} s in vain for {what}")


class Listener:
    """Everything that a subscription has yielded."""

    def __init__(self) -> None:
        self.heard: list[BusNotification] = []
        self.ended = False
        self.news = anyio.Event()

    @property
    def notes(self) -> list[BusNotification]:
        return [heard for heard in self.heard if heard.method == "test/note"]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all notes and markers, in the order of arrival."""
        return [n for heard in self.heard if heard.params and isinstance(n := heard.params.get("n"), int)]

    @property
    def gaps(self) -> int:
        return self.heard.count(GAP)

    async def until(self, condition: Callable[["Listener"], bool], what: str, limit: float = LIMIT) -> None:
        """Wait for a condition on what was heard."""
        with anyio.move_on_after(limit):
            while not condition(self):
                await self.news.wait()
            return
        raise TimeoutError(f"waited {limit:g} s in vain for {what}; heard {self.heard[-3:]} of {len(self.heard)}")

    async def wait_for(self, *notifications: BusNotification, limit: float = LIMIT) -> None:
        """Wait until all of them were heard."""
        await self.until(lambda seen: all(each in seen.heard for each in notifications), f"{notifications}", limit)


@asynccontextmanager
async def listening(bus: NotificationBus) -> AsyncGenerator[Listener]:
    """A subscription that is read at once, in the background."""
    listener = Listener()

    async def read() -> None:
        async for notification in stream:
            listener.heard.append(notification)
            listener.news.set()
            listener.news = anyio.Event()
        listener.ended = True

    async with bus.subscribe() as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield listener
        tasks.cancel_scope.cancel()


async def proven(bus: NotificationBus, listener: Listener, start: int = 1_000_000, limit: float = LIMIT) -> int:
    """Publish markers with fresh numbers until one of them is heard; return the number of the last one published."""
    with anyio.move_on_after(limit):
        for number in range(start, start + 10_000):
            await bus.publish(BusNotification("test/marker", {"n": number}))
            with anyio.move_on_after(0.05):
                while not any(n >= start for n in listener.numbers[-100:]):
                    await listener.news.wait()
                return number
    raise TimeoutError(f"no marker from {start} on came back within {limit:g} s: {bus!r}")


def outage_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings so far. Each cause must have been logged once in its outage, however often it was met."""
    warnings: list[str] = []
    outage: dict[str, set[str]] = {}
    for record in caplog.records:
        text = record.getMessage()
        if text.endswith(" works again"):
            outage.pop(text.removesuffix(" works again"), None)
        elif record.levelno >= logging.WARNING:
            warnings.append(text)
            name = text.partition(">")[0] + ">"
            assert text not in outage.setdefault(name, set()), f"logged twice in one outage: {text}"
            outage[name].add(text)
    return warnings


def links_to(port: int) -> int:
    """How many sockets of this process are connected to that port, read from the kernel."""
    mine: set[str] = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            mine.add(str(descriptor.readlink()))
    count = 0
    for line in Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if int(words[2].rpartition(":")[2], 16) == port and f"socket:[{words[9]}]" in mine:
            count += 1
    return count


def leftovers() -> tuple[int, int]:
    """How many sockets this process has open, and how many tasks run beside this one."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        # The descriptor that reads the folder is closed by then.
        with suppress(OSError):
            count += str(descriptor.readlink()).startswith("socket:")
    return count, len(asyncio.all_tasks()) - 1


@asynccontextmanager
async def settled(limit: float = LIMIT) -> AsyncGenerator[None]:
    """Afterwards there are no more sockets and tasks than before."""
    gc.collect()
    sockets, tasks = leftovers()
    before = asyncio.all_tasks()
    yield

    def fewer() -> bool:
        now = leftovers()
        return now[0] <= sockets and now[1] <= tasks

    try:
        await eventually(fewer, limit=limit)
    except TimeoutError:
        others = [f"{task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks() - before]
        raise AssertionError(f"{leftovers()} sockets and tasks, {(sockets, tasks)} before; new: {others}") from None
