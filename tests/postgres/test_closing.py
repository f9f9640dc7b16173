"""Closing, in every state: within its bound, and nothing stays behind."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from importlib import metadata

import anyio
import pytest

from notification_bus.testing import FaultProxy
from tests.brokers import Provider, Server
from tests.postgres._tools import LIMIT, admin, build, heard, leftovers, number, sessions, until


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


@pytest.mark.usefixtures("nothing_left")
async def test_a_bus_in_use_flushes_and_leaves_no_session(server: Server, channel: str) -> None:
    here, there = build(server.url, channel), build(server.url, channel)
    async with there, heard(there) as theirs:
        async with here, heard(here):
            for n in range(1000):
                await here.publish(number(n))
        await theirs.until(lambda seen: len(seen.numbers) == 1000, "all that was published before the close")
    await gone(server, channel)


@pytest.mark.usefixtures("nothing_left")
async def test_a_bus_that_was_never_used_never_connects(channel: str) -> None:
    async with FaultProxy("127.0.0.1", 1) as proxy:
        build(f"postgresql://{proxy.host}:{proxy.port}/x", channel)
        await anyio.lowlevel.checkpoint()
        assert proxy.accepted == 0


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("fault", ["stalled in sending", "dead", "refused", "swallowed", "cut"])
async def test_a_bus_in_trouble_closes_within_its_bound(server: Server, channel: str, fault: str) -> None:
    async with FaultProxy(server.host, server.port) as proxy:
        bus = build(server.via(proxy.host, proxy.port), channel, probe_timeout=1.0)
        async with bus, heard(bus):
            match fault:
                case "stalled in sending":
                    await proxy.stall()
                    await bus.publish(number(1))
                case "dead":
                    await proxy.blackhole()
                    await bus.publish(number(1))
                case "refused":
                    await proxy.refuse()
                    await until(lambda: not bus.stats().connected, "the loss")
                case "swallowed":
                    await proxy.blackhole(new="accept")
                    tried = proxy.accepted
                    await until(lambda: proxy.accepted > tried, "a try to connect that gets no answer")
                case _:
                    await proxy.cut()
            began = time.perf_counter()
        # The bound is close_timeout, 1 s; the rest is for a busy machine.
        assert time.perf_counter() - began < 1.5


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("moment", ["connecting", "connected"])
async def test_a_bus_on_a_frozen_server_closes_and_its_sessions_end_with_the_thaw(
    brokers: Provider, channel: str, moment: str
) -> None:
    """P01: no leaked backends."""
    with brokers.dedicated("postgres") as server:
        async with FaultProxy(server.host, server.port) as proxy:
            if moment == "connecting":
                server.freeze()
            bus = build(server.via(proxy.host, proxy.port), channel)
            async with bus:
                if moment == "connected":
                    await bus.wait_ready()
                    server.freeze()
                    await bus.publish(number(1))
                await until(lambda: proxy.accepted >= 1, "a connection")
                began = time.perf_counter()
            assert time.perf_counter() - began < 1.5
        server.thaw()
        await gone(server, channel)


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


@pytest.mark.usefixtures("nothing_left")
async def test_a_bus_can_be_entered_again(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    for n in range(3):
        async with bus, heard(bus) as mine:
            await bus.publish(number(n))
            await mine.until(lambda seen, n=n: n in seen.numbers, "it")  # type: ignore[misc]
    await gone(server, channel)


async def test_a_cancelled_subscriber_leaves_in_time_whatever_the_link_does(server: Server, channel: str) -> None:
    """X10."""
    async with FaultProxy(server.host, server.port) as proxy:
        await proxy.blackhole(new="accept")
        bus = build(server.via(proxy.host, proxy.port), channel, ready_timeout=LIMIT)
        async with bus:
            with anyio.move_on_after(0.2) as scope:
                async with bus.subscribe():
                    pass
            assert scope.cancelled_caught
