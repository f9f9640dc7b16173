"""What the tests of PostgresBus share: short time limits, subscribers that record, looks at the server's sessions."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import anyio
import asyncpg

from notification_bus import GAP, BusNotification
from notification_bus_postgres import PostgresBus

if TYPE_CHECKING:
    from typing import TypeAlias

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

__all__ = [
    "LIMIT",
    "Heard",
    "admin",
    "build",
    "heard",
    "number",
    "sessions",
    "until",
    "with_database",
    "with_options",
]

LIMIT: Final = 20.0
"""Seconds that anything may take that must happen, on a busy machine."""


def number(n: int) -> BusNotification:
    """A notification that can be told from others."""
    return BusNotification("notifications/test", {"n": n})


def with_options(dsn: str, **options: str) -> str:
    """A DSN with more options."""
    return f"{dsn}{'&' if '?' in dsn else '?'}{urlencode(options)}"


def with_database(dsn: str, name: str) -> str:
    """The DSN of another database of the same server."""
    return f"{dsn.removesuffix('/postgres')}/{name}"


def build(
    dsn: str,
    channel: str,
    *,
    listen_dsn: str | None = None,
    probe_interval: float = 0.5,
    probe_timeout: float = 2.0,
    ready_timeout: float = 10.0,
    outbox: int = 10_000,
    frames: bool = False,
) -> PostgresBus:
    """A bus that notices faults quickly, and whose sessions bear the channel's name."""
    return PostgresBus(
        with_options(dsn, application_name=channel),
        channel=channel,
        listen_dsn=None if listen_dsn is None else with_options(listen_dsn, application_name=channel),
        probe_interval=probe_interval,
        probe_timeout=probe_timeout,
        ready_timeout=ready_timeout,
        outbox=outbox,
        frames=frames,
        backoff_cap=0.2,
        close_timeout=1.0,
        buffer=30_000,
    )


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, limit: float = LIMIT) -> None:
    """Wait for a condition."""
    with anyio.move_on_after(limit):
        while True:
            outcome = condition()
            if outcome if isinstance(outcome, bool) else await outcome:
                return
            await anyio.sleep(0.01)
    raise AssertionError(f"waited {limit:g} s in vain for {what}")


class Heard:
    """What a subscription has yielded."""

    def __init__(self) -> None:
        self.all: list[BusNotification] = []
        self.ended = False

    @property
    def numbers(self) -> list[int]:
        found = [(notification.params or {}).get("n") for notification in self.all]
        return [n for n in found if isinstance(n, int)]

    @property
    def gaps(self) -> int:
        return sum(notification == GAP for notification in self.all)

    async def until(self, condition: Callable[["Heard"], bool], what: str, limit: float = LIMIT) -> None:
        await until(lambda: condition(self), f"{what}; heard {self.all[-5:]} of {len(self.all)}", limit)

    async def until_recovered(self, bus: PostgresBus, start: int, limit: float = LIMIT) -> None:
        """Publish numbers from `start` on, one at a time, until one is heard."""
        with anyio.move_on_after(limit):
            n = start
            while not any(seen >= start for seen in self.numbers):
                await bus.publish(number(n))
                n += 1
                await anyio.sleep(0.05)
            return
        raise AssertionError(f"nothing is heard after {limit:g} s: {bus.stats()}")


@asynccontextmanager
async def heard(bus: PostgresBus) -> AsyncGenerator[Heard]:
    """Subscribe, and read in the background."""
    record = Heard()

    async def read() -> None:
        async for notification in stream:
            record.all.append(notification)
        record.ended = True

    async with bus.subscribe() as stream:
        reading = asyncio.ensure_future(read())
        try:
            yield record
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.result()


@asynccontextmanager
async def admin(dsn: str) -> AsyncGenerator["Connection"]:
    """A connection to look at the server with, and to change it."""
    connection = await asyncpg.connect(dsn, timeout=LIMIT)
    try:
        yield connection
    finally:
        connection.terminate()


async def sessions(connection: "Connection", channel: str, half: str = "") -> list[dict[str, Any]]:
    """The bus's sessions on the server, or those of a half."""
    rows = await connection.fetch(
        "SELECT pid, application_name, state, query, xact_start, backend_start FROM pg_stat_activity "
        "WHERE starts_with(application_name, $1) ORDER BY backend_start",
        f"{channel}:{half}",
    )
    return [dict(row) for row in rows]
