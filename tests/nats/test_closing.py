"""Closing: within its bound in every state, once and for all, and nothing left: the rule of bounded closing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

import anyio
import pytest
from anyio.lowlevel import checkpoint

from notification_bus.testing._proxy import FaultProxy
from tests.brokers import Provider, Server, Tls, certificates, witness
from tests.nats.helpers import QUICK, bus_on, links_to, listening, note, proven, settled, until

BOUND = QUICK["close_timeout"] + 0.5


@pytest.fixture
async def proxy(each_server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        yield proxy


async def nothing(_proxy: FaultProxy) -> None:
    await checkpoint()


async def dead(proxy: FaultProxy) -> None:
    await proxy.blackhole(new="accept")


async def stalled(proxy: FaultProxy) -> None:
    await proxy.stall()


async def refused(proxy: FaultProxy) -> None:
    await proxy.refuse()


FAULTS: dict[str, Callable[[FaultProxy], Awaitable[None]]] = {
    "healthy": nothing,
    "dead link": dead,
    "stalled link": stalled,
    "refused": refused,
}


@pytest.mark.parametrize("unsent", [0, 2000], ids=["idle", "with megabytes unsent"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_closing_is_bounded_and_leaves_nothing(proxy: FaultProxy, channel: str, fault: str, unsent: int) -> None:
    bus = bus_on(f"nats://{proxy.host}:{proxy.port}", channel)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        await FAULTS[fault](proxy)
        for number in range(unsent):
            await bus.publish(note(number, "x" * 4000))
        began = monotonic()
    assert monotonic() - began < BOUND
    await settled(0.2)
    await until(lambda: links_to(proxy.port) == 0)
    await proxy.restore()
    await until(lambda: proxy.connections == 0)


@pytest.mark.parametrize("fault", ["dead link", "stalled link", "refused"])
async def test_closing_in_the_middle_of_connecting_leaves_nothing(proxy: FaultProxy, channel: str, fault: str) -> None:
    bus = bus_on(f"nats://{proxy.host}:{proxy.port}", channel, probe_timeout=3.0)
    await FAULTS[fault](proxy)
    async with bus:
        await until(lambda: proxy.attempts >= 1)
        began = monotonic()
    assert monotonic() - began < BOUND
    await settled(0.2)
    await until(lambda: links_to(proxy.port) == 0)
    await proxy.restore()
    await until(lambda: proxy.connections == 0)


async def test_what_was_published_before_closing_is_sent(each_server: Server, channel: str) -> None:
    """Also what stands in the transport's buffer, and is no longer this library's to count."""
    for size in (10, 10_000):
        async with witness("nats", each_server.url, channel) as seen:
            async with bus_on(each_server, channel, close_timeout=10.0) as bus:
                await bus.wait_ready()
                for number in range(200):
                    await bus.publish(note(number, "x" * size))
            await until(lambda seen=seen: sum(b"bus/probe" not in body for body in seen.bodies) == 200)  # type: ignore[misc]


async def test_burst_on_a_slow_link_is_not_lost_by_closing(
    proxy: FaultProxy, each_server: Server, channel: str
) -> None:
    """A socket that is closed while its own echo still comes in is reset, and takes with it what it had sent."""
    count = 1500
    async with witness("nats", each_server.url, channel) as seen:
        async with bus_on(f"nats://{proxy.host}:{proxy.port}", channel, close_timeout=30.0, probe_timeout=30.0) as bus:
            await bus.wait_ready()
            await proxy.throttle(1_000_000)
            for number in range(count):
                await bus.publish(note(number, "x" * 1000))
        await until(lambda: sum(b"bus/probe" not in body for body in seen.bodies) == count)


async def test_bus_can_be_closed_twice_and_opened_again(each_server: Server, channel: str) -> None:
    bus = bus_on(each_server, channel)
    for number in range(3):
        async with bus, listening(bus) as ear:
            await bus.publish(note(number))
            await ear.wait_for(note(number))
            await bus.aclose()
            await bus.aclose()
    await settled(0.2)


def test_bus_is_used_in_one_event_loop_after_another(each_server: Server, channel: str) -> None:
    bus = bus_on(each_server, channel)

    async def use(number: int) -> None:
        async with bus, listening(bus) as ear:
            await bus.publish(note(number))
            await ear.wait_for(note(number))

    for number in range(3):
        asyncio.run(use(number), debug=True)


async def test_bus_that_is_never_entered_never_connects(proxy: FaultProxy, channel: str) -> None:
    bus = bus_on(f"nats://{proxy.host}:{proxy.port}", channel)
    await until(lambda: True)
    assert proxy.attempts == 0
    assert bus.stats().since is None


@pytest.mark.parametrize("state", ["idle", "in a burst", "connecting"])
async def test_cancelled_reader_ends_alone(proxy: FaultProxy, channel: str, state: str) -> None:
    """X10: promptly, and nobody else notices."""
    bus = bus_on(f"nats://{proxy.host}:{proxy.port}", channel)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        entered = anyio.Event()

        async def read() -> None:
            async with bus.subscribe() as stream:
                entered.set()
                async for _ in stream:
                    pass

        reader = asyncio.create_task(read())
        await entered.wait()
        if state == "in a burst":
            for number in range(500):
                await bus.publish(note(number))
        elif state == "connecting":
            await proxy.blackhole(new="accept")
            await until(lambda: not bus.stats().connected)
        began = monotonic()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert monotonic() - began < 1
        await proxy.restore()
        await proven(bus, ear, start=2_000_000)
        assert bus.stats().subscriptions == 1


async def test_cancelled_publisher_ends_alone(each_server: Server, channel: str) -> None:
    bus = bus_on(each_server, channel)
    async with bus, listening(bus) as ear:
        for number in range(50):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await bus.publish(note(number))
        await ear.wait_for(note(49))
        assert ear.numbers == list(range(50))


async def test_closing_over_tls_does_not_wait_for_the_peers_farewell(
    brokers: Provider, channel: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import ssl

    pem: Tls = certificates(tmp_path_factory.mktemp("pem"))
    with brokers.dedicated("nats", tls=pem) as server:
        bus = bus_on(server, channel, tls=ssl.create_default_context(cafile=pem.ca))
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.freeze()
            began = monotonic()
        assert monotonic() - began < BOUND
        assert links_to(server.port) == 0
        server.thaw()
        await settled(0.2)
