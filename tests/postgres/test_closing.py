"""Closing, in every state: within its bound, and nothing stays behind."""

import asyncio
import gc
from collections.abc import AsyncIterator
from importlib import metadata

import anyio
import pytest

from notification_bus.testing import FaultProxy
from tests.brokers import Server
from tests.brokers._listener import leftovers
from tests.postgres._tools import admin, build, sessions, until


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """After the test there are no more sockets and tasks than before."""
    gc.collect()
    before = leftovers()
    yield
    await until(lambda: leftovers() <= before, f"no more sockets and tasks than the {before} before, not {leftovers()}")


async def gone(server: Server, channel: str) -> None:
    """Wait until the server has no session of the bus."""
    async with admin(server.url) as connection:

        async def none() -> bool:
            return not await sessions(connection, channel)

        await until(none, "the end of the sessions")


# asyncpg before 0.32 fails by itself, into the event loop, where the answer about TLS meets a cancellation.
WAYS = ["?sslmode=disable", *([""] if metadata.version("asyncpg") >= "0.32" else [])]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("query", WAYS)
async def test_a_bus_closed_at_any_moment_of_connecting_leaves_nothing(
    server: Server, channel: str, query: str
) -> None:
    """The server's answers come late, and the closing a little later each time."""
    async with FaultProxy(server.host, server.port) as proxy:
        await proxy.delay(0.01)
        for step in range(12):
            bus = build(f"{server.via(proxy.host, proxy.port)}{query}", channel)
            async with bus:
                # No wait for anything: the moment of the closing is what is varied.
                await anyio.sleep(step * 0.025)
        await proxy.restore()
    await gone(server, channel)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("query", WAYS)
async def test_connecting_is_cancelled_quietly_in_any_turn_of_the_event_loop(server: Server, query: str) -> None:
    """X10. asyncpg by itself leaves a future there whose error is "never retrieved"."""
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    bus = build(f"{server.url}{query}", "any")
    for turns in range(150):
        task = asyncio.ensure_future(bus.connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            await task.result().aclose()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert told == []
