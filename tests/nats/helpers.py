"""Buses, listeners and conditions for the tests of NATS."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from notification_bus import GAP, BusNotification
from notification_bus.bus import NotificationBus
from notification_bus_nats import NatsBus
from tests.brokers import LocalServer, Server

__all__ = ["LIMIT", "QUICK", "Ear", "bus_on", "links_to", "listening", "note", "proven", "reload", "settled", "until"]

LIMIT = 15.0
"""Seconds in which whatever must come has come."""

QUICK: dict[str, Any] = {"probe_interval": 1.0, "probe_timeout": 1.0, "backoff_cap": 0.2, "close_timeout": 2.0}
"""Options under which faults are found and mended within seconds."""


def note(number: int = 0, name: str = "test/note") -> BusNotification:
    return BusNotification(name, {"n": number})


def bus_on(server: Server | str | list[str], channel: str, **options: Any) -> NatsBus:
    servers = server.url if isinstance(server, Server) else server
    return NatsBus(servers, channel=channel, **{**QUICK, **options})


async def until(condition: Callable[[], object], limit: float = LIMIT, what: str = "") -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: It does not hold after `limit` seconds.
    """
    with anyio.move_on_after(limit):
        while not condition():
            await anyio.sleep(0.01)
        return
    raise TimeoutError(what or "the condition does not hold")


class Ear:
    """All that a subscription has yielded."""

    def __init__(self) -> None:
        self.heard: list[BusNotification] = []
        self.ended = False
        self.news = anyio.Event()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the notes among it."""
        return [n for heard in self.heard if heard.params and isinstance(n := heard.params.get("n"), int)]

    @property
    def gaps(self) -> int:
        return self.heard.count(GAP)

    async def wait_for(self, *notifications: BusNotification, limit: float = LIMIT) -> None:
        """Wait until all of them were heard."""

        def lacking() -> list[BusNotification]:
            return [notification for notification in notifications if notification not in self.heard]

        await until(lambda: not lacking(), limit, f"heard {self.heard[-3:]} of {len(self.heard)}")


@asynccontextmanager
async def listening(bus: NotificationBus) -> AsyncGenerator[Ear]:
    """A subscription that is read at once, all the time."""
    ear = Ear()

    async def read() -> None:
        async for notification in stream:
            ear.heard.append(notification)
            ear.news.set()
            ear.news = anyio.Event()
        ear.ended = True

    async with bus.subscribe() as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield ear
        tasks.cancel_scope.cancel()


async def proven(bus: NotificationBus, ear: Ear, limit: float = LIMIT, start: int = 1_000_000) -> int:
    """Publish a fresh numbered marker each 50 ms until one of them is heard; its number."""
    with anyio.fail_after(limit):
        for number in range(start, start + 10_000):
            await bus.publish(note(number, "test/marker"))
            with anyio.move_on_after(0.05):
                while not any(n >= start for n in ear.numbers[-100:]):
                    await ear.news.wait()
                return number
    raise AssertionError


def reload(server: LocalServer, text: str) -> None:
    """Give the server another configuration, without a restart."""
    (server.log.parent / "nats.conf").write_text(text, "utf-8")
    os.kill(server.pid, signal.SIGHUP)


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


async def settled(limit: float = 2.0) -> None:
    """Wait until this task, and what the test framework runs, are the only ones; say which others there are."""
    this = asyncio.current_task()

    def others() -> list[str]:
        return [
            f"{task.get_name()}: {task.get_coro()}"
            for task in asyncio.all_tasks()
            if task is not this and "nats" in f"{task.get_name()} {task.get_coro()!r}".lower()
        ]

    try:
        await until(lambda: not others(), limit)
    except TimeoutError:
        raise AssertionError(f"tasks are left: {others()}") from None
