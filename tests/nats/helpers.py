"""Buses and conditions for the tests of NATS."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import anyio

from notification_bus_nats import NatsBus
from tests.brokers import LocalServer, Server
from tests.brokers._listener import LIMIT

__all__ = ["QUICK", "bus_on", "reload", "settled", "until"]

QUICK: dict[str, Any] = {"probe_interval": 1.0, "probe_timeout": 1.0, "backoff_cap": 0.2, "close_timeout": 2.0}
"""Options under which faults are found and recovered from within seconds."""


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


def reload(server: LocalServer, text: str) -> None:
    """Give the server another configuration, without a restart."""
    (server.log.parent / "nats.conf").write_text(text, "utf-8")
    os.kill(server.pid, signal.SIGHUP)


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
