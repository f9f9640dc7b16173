"""The link dies, with or without a word, or carries little. The ids are those of the catalogue of faults."""

import asyncio
import tracemalloc
from time import monotonic

import pytest

from notification_bus.testing import FaultProxy
from tests.brokers import (
    QUICK,
    Broker,
    eventually,
    links_to,
    listening,
    note,
    outage_warnings,
    proven,
    witness,
)


@pytest.mark.parametrize("unsent", [0, 1, 300], ids=["idle", "publishing", "with a megabyte unsent"])
async def test_link_that_dies_without_a_word_is_replaced_within_the_bound(
    broker: Broker, proxy: FaultProxy, channel: str, caplog: pytest.LogCaptureFixture, unsent: int
) -> None:
    """R01, N01, P01: no FIN and no RST. Neither half is kept, and no connection more than needed is made."""
    bus = broker.bus(channel, proxy)
    async with bus, listening(bus) as listener, witness(broker.kind, broker.server.url, channel) as raw:
        await proven(bus, listener)
        before = proxy.accepted
        await proxy.blackhole()
        for number in range(unsent):
            await bus.publish(note(number, "x" * 4000))
        limit = QUICK["probe_interval"] + QUICK["probe_timeout"] + 1
        await eventually(lambda: bus.stats().reconnects == 1, "the reconnect", limit)
        await raw.publish(note(1_500_000).encode())
        await listener.wait_for(note(1_500_000))
        await proven(bus, listener, start=2_000_000)
        assert proxy.accepted - before == broker.connections
        assert listener.gaps >= 1
        assert not listener.ended
    assert any("did not come back" in text for text in outage_warnings(caplog))


@pytest.mark.parametrize("fault", ["cut", "fin"])
async def test_broken_link_is_replaced_at_once_ten_times(
    broker: Broker, proxy: FaultProxy, channel: str, fault: str
) -> None:
    """R02, X07: without waiting for a probe to tell, and with no connection left over."""
    bus = broker.bus(channel, proxy, probe_interval=60.0)
    async with bus, listening(bus) as listener, listening(bus) as sibling:
        for number in range(1, 11):
            await proven(bus, listener, start=number * 1_000_000)
            await (proxy.cut() if fault == "cut" else proxy.fin())
            await eventually(lambda number=number: bus.stats().reconnects == number, "the reconnect")  # type: ignore[misc]
            await eventually(lambda: bus.stats().connected and proxy.connections == broker.connections, "one of each")
        await proven(bus, listener, start=20_000_000)
        last = listener.heard[-1]
        await sibling.wait_for(last)
        for heard in (listener, sibling):
            assert heard.gaps >= 10
            assert len(heard.numbers) == len(set(heard.numbers))
            assert not heard.ended


async def test_outage_of_hundreds_of_attempts_is_survived_and_said_once(
    broker: Broker, proxy: FaultProxy, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N02: a client library may give up after so many attempts; nothing here can be used up."""
    bus = broker.bus(channel, proxy, backoff_cap=0.02)
    async with bus, listening(bus) as listener:
        await proven(bus, listener)
        await proxy.refuse()
        await eventually(lambda: proxy.attempts > 200, "200 attempts")
        assert outage_warnings(caplog)
        await proxy.restore()
        await proven(bus, listener, start=2_000_000)
        assert not listener.ended


async def test_fifth_outage_is_recovered_from_as_quickly_as_the_first(
    broker: Broker, proxy: FaultProxy, channel: str
) -> None:
    """X05: the back-off is reset by success."""
    bus = broker.bus(channel, proxy)
    async with bus, listening(bus) as listener:
        for outage in range(1, 6):
            await proxy.refuse()
            await eventually(lambda: not bus.stats().connected, "the loss")
            attempts = proxy.attempts
            await eventually(lambda before=attempts: proxy.attempts > before + 1, "two tries")  # type: ignore[misc]
            await proxy.restore()
            await proven(bus, listener, start=outage * 1_000_000)


async def test_connections_that_came_to_nothing_leave_nothing_behind(
    broker: Broker, proxy: FaultProxy, channel: str
) -> None:
    """In every state of an outage: silent, refused, and back again."""
    bus = broker.bus(channel, proxy, probe_timeout=0.5)
    async with bus, listening(bus) as listener:
        await proven(bus, listener)
        await proxy.blackhole(new="accept")
        await eventually(lambda: "no answer within" in (bus.stats().last_error or ""), "an attempt without answer")
        await proxy.refuse()
        refused = proxy.attempts + 2
        await eventually(
            lambda: proxy.attempts > refused and "no answer within" not in (bus.stats().last_error or ""),
            "refused attempts",
        )
        await proxy.restore()
        await proven(bus, listener, start=2_000_000)
        await eventually(lambda: proxy.connections == broker.connections, "no connection too many")
    await eventually(lambda: links_to(proxy.port) == 0, "no connection of this process")
    await eventually(lambda: proxy.connections == 0, "no connection of the proxy")


async def test_idle_channel_stays_on_its_connections(broker: Broker, proxy: FaultProxy, channel: str) -> None:
    """R03: where only probes come in, silence is no failure."""
    bus = broker.bus(channel, proxy, probe_interval=0.1)
    async with bus, listening(bus) as listener, witness(broker.kind, broker.server.url, channel) as raw:
        await raw.wait_for(20)  # only probes
        await bus.publish(note(1))
        await listener.wait_for(note(1))
        assert (proxy.accepted, bus.stats().reconnects, listener.gaps) == (broker.connections, 0, 0)


@pytest.mark.parametrize("fault", ["stall", "throttle"])
async def test_publishing_never_waits_for_a_link_that_carries_little_or_nothing(
    broker: Broker, proxy: FaultProxy, channel: str, fault: str
) -> None:
    """X03: ten tasks publish 20,000, the event loop goes on, the outbox is bounded and drops with a count."""
    loop = asyncio.get_running_loop()
    late = 0.0

    async def tick() -> None:
        nonlocal late
        while True:
            due = loop.time() + 0.01
            await asyncio.sleep(0.01)
            late = max(late, loop.time() - due)

    bus = broker.bus(channel, proxy, outbox=1000)

    async def publish(task: int) -> None:
        for n in range(2000):
            await bus.publish(note(task * 2000 + n, "x" * 500))

    async with bus, listening(bus) as listener:
        await (proxy.stall() if fault == "stall" else proxy.throttle(1000))
        ticking = asyncio.create_task(tick())
        async with asyncio.timeout(20):
            await asyncio.gather(*(publish(task) for task in range(10)))
        ticking.cancel()
        # Generous for a machine that runs other things: blocked by a broker it would be seconds.
        assert late < 1
        await eventually(lambda: bus.stats().dropped.get("outbox", 0) >= 10_000, "drops with a count")
        await proxy.restore()
        await proven(bus, listener, start=1_000_000)
        assert listener.gaps >= 1


async def test_slow_link_holds_back_the_outbox_and_not_the_publisher(
    broker: Broker, proxy: FaultProxy, channel: str
) -> None:
    """X03: a narrow link is not filled without limit, and what the outbox keeps arrives."""
    bus = broker.bus(channel, proxy, probe_timeout=8.0, outbox=2000)
    async with bus, listening(bus) as listener:
        await proven(bus, listener)
        await proxy.throttle(100_000)
        before = monotonic()
        tracemalloc.start()
        try:
            for number in range(20_000):
                await bus.publish(note(number, "x" * 500))
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 20_000_000
        # All but what the outbox holds, what the buffers on the way hold, and what the link has carried meanwhile.
        carried = 100_000 * (monotonic() - before) / 500
        assert bus.stats().dropped["outbox"] > 20_000 - 2000 - 10_000 - carried
        await proxy.restore()
        await listener.wait_for(note(19_999, "x" * 500))
