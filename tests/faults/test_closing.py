"""Closing: within its bound in every state, once and for all, and nothing is left: the rule of bounded closing."""

import asyncio
from time import monotonic

import anyio
import pytest
from anyio.lowlevel import checkpoint

from notification_bus.testing import FaultProxy
from tests.brokers import (
    LIMIT,
    QUICK,
    Broker,
    eventually,
    links_to,
    listening,
    note,
    proven,
    settled,
    witness,
)

BOUND = QUICK["close_timeout"] + 0.5
"""The stated bound; the rest is for a busy machine."""

FAULTS = ["healthy", "dead link", "stalled link", "refused", "cut"]


async def strike(proxy: FaultProxy, fault: str) -> None:
    match fault:
        case "dead link":
            await proxy.blackhole(new="accept")
        case "stalled link":
            await proxy.stall()
        case "refused":
            await proxy.refuse()
        case "cut":
            await proxy.cut()
        case _:
            await checkpoint()


async def nothing_on(proxy: FaultProxy) -> None:
    await eventually(lambda: links_to(proxy.port) == 0, "no connection of this process")
    await proxy.restore()
    await eventually(lambda: proxy.connections == 0, "no connection of the proxy")


async def no_sessions(broker: Broker, channel: str) -> None:
    if broker.kind != "nats":

        async def none() -> bool:
            return not await broker.sessions(channel)

        await eventually(none, "the end of the sessions")


@pytest.mark.parametrize("unsent", [0, 1, 2000], ids=["idle", "sending", "with megabytes unsent"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_closing_is_bounded_and_leaves_nothing(
    broker: Broker, proxy: FaultProxy, channel: str, fault: str, unsent: int
) -> None:
    bus = broker.bus(channel, proxy)
    async with bus, listening(bus) as listener:
        await proven(bus, listener)
        await strike(proxy, fault)
        for number in range(unsent):
            await bus.publish(note(number, "x" * 4000))
        began = monotonic()
    assert monotonic() - began < BOUND
    await nothing_on(proxy)
    # Over a dead link the server is told nothing.
    if fault != "dead link":
        await no_sessions(broker, channel)


@pytest.mark.parametrize("fault", ["dead link", "refused"])
async def test_closing_in_an_outage_that_was_noticed_is_bounded(
    broker: Broker, proxy: FaultProxy, channel: str, fault: str
) -> None:
    bus = broker.bus(channel, proxy)
    async with bus, listening(bus):
        tried = proxy.attempts
        await strike(proxy, fault)
        await eventually(lambda: not bus.stats().connected, "the loss")
        await eventually(lambda: proxy.attempts > tried, "a try to connect")
        began = monotonic()
    assert monotonic() - began < BOUND
    await nothing_on(proxy)


@pytest.mark.parametrize("unsent", [0, 500], ids=["idle", "with megabytes unsent"])
@pytest.mark.parametrize("fault", ["dead link", "stalled link", "refused"])
async def test_closing_in_the_middle_of_connecting_leaves_nothing(
    broker: Broker, proxy: FaultProxy, channel: str, fault: str, unsent: int
) -> None:
    bus = broker.bus(channel, proxy, probe_timeout=3.0)
    await strike(proxy, fault)
    async with bus:
        await eventually(lambda: proxy.attempts >= 1, "an attempt")
        for number in range(unsent):
            await bus.publish(note(number, "x" * 4000))
        began = monotonic()
    assert monotonic() - began < BOUND
    await nothing_on(proxy)


@pytest.mark.parametrize("moment", ["connecting", "connected"])
async def test_bus_on_a_frozen_server_closes_and_its_sessions_end_with_the_thaw(
    own_broker: Broker, channel: str, moment: str
) -> None:
    """P01: nothing is left on the server either."""
    server = own_broker.own
    async with settled(), FaultProxy(server.host, server.port) as proxy:
        if moment == "connecting":
            server.freeze()
        bus = own_broker.bus(channel, proxy)
        async with bus:
            if moment == "connected":
                await bus.wait_ready()
                server.freeze()
                await bus.publish(note(1))
            await eventually(lambda: proxy.accepted >= 1, "a connection")
            began = monotonic()
        assert monotonic() - began < BOUND
    server.thaw()
    await no_sessions(own_broker, channel)


@pytest.mark.parametrize("size", [10, 5000])
async def test_what_was_published_before_closing_is_sent(broker: Broker, channel: str, size: int) -> None:
    """Also what stands in the transport's buffer, and is no longer the bus's to count."""
    async with witness(broker.kind, broker.server.url, channel) as raw, settled():
        bus = broker.bus(channel, close_timeout=10.0)
        async with bus, listening(bus):
            for number in range(1000):
                await bus.publish(note(number, "x" * size))
        await eventually(lambda: sum(b"test/note" in body for body in raw.bodies) == 1000, "all of them")
    await no_sessions(broker, channel)


async def test_bus_can_be_closed_twice_and_opened_again(broker: Broker, channel: str, nothing_left: None) -> None:
    bus = broker.bus(channel)
    for number in range(3):
        async with bus, listening(bus) as listener:
            await bus.publish(note(number))
            await listener.wait_for(note(number))
            await bus.aclose()
            await bus.aclose()
    await no_sessions(broker, channel)


def test_bus_is_used_in_one_event_loop_after_another(broker: Broker, channel: str) -> None:
    bus = broker.bus(channel)

    async def use(number: int) -> None:
        async with bus, listening(bus) as listener:
            await bus.publish(note(number))
            await listener.wait_for(note(number))

    for number in range(3):
        asyncio.run(use(number), debug=True)


async def test_bus_that_is_never_entered_never_connects(broker: Broker, proxy: FaultProxy, channel: str) -> None:
    bus = broker.bus(channel, proxy)
    await checkpoint()
    assert proxy.attempts == 0
    assert bus.stats().since is None


@pytest.mark.parametrize("state", ["idle", "in a burst", "connecting"])
async def test_cancelled_reader_ends_alone(broker: Broker, proxy: FaultProxy, channel: str, state: str) -> None:
    """X10: promptly, and nobody else notices."""
    bus = broker.bus(channel, proxy)
    async with bus, listening(bus) as listener:
        await proven(bus, listener)
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
            await eventually(lambda: not bus.stats().connected, "the loss")
        began = monotonic()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert monotonic() - began < 1
        await proxy.restore()
        await proven(bus, listener, start=2_000_000)
        assert bus.stats().subscriptions == 1


async def test_cancelled_subscriber_leaves_in_time_whatever_the_link_does(
    broker: Broker, proxy: FaultProxy, channel: str
) -> None:
    """X10."""
    await proxy.blackhole(new="accept")
    bus = broker.bus(channel, proxy, ready_timeout=LIMIT)
    async with bus:
        with anyio.move_on_after(0.2) as scope:
            async with bus.subscribe():
                pass
        assert scope.cancelled_caught


async def test_cancelled_publisher_ends_alone(broker: Broker, channel: str) -> None:
    bus = broker.bus(channel)
    async with bus, listening(bus) as listener:
        for number in range(50):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await bus.publish(note(number))
        await listener.wait_for(note(49))
        assert listener.numbers == list(range(50))
