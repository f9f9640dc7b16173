"""The server is killed, frozen, or not there yet. The ids in the docstrings are those of the catalogue of faults."""

import anyio
import pytest

from notification_bus import BusNotReadyError
from tests.brokers import LIMIT, Broker, eventually, listening, note, outage_warnings, proven, settled


async def test_killed_server_is_come_back_to_with_a_gap_and_one_copy_of_each(own_broker: Broker, channel: str) -> None:
    """R02, N02, X05, X07: by two instances, as often as it happens, noticed without a probe."""
    one, two = (own_broker.bus(channel, probe_interval=60.0) for _ in range(2))
    async with one, two, listening(one) as at_one, listening(two) as at_two, listening(two) as sibling:
        for outage in range(3):
            start = 3_000_000 * (outage + 1)
            await proven(one, at_one, start)
            own_broker.own.kill()
            await eventually(lambda: not one.stats().connected and not two.stats().connected, "the loss")
            await one.publish(note(outage))
            own_broker.own.restart()
            await eventually(lambda: one.stats().connected and two.stats().connected, "both are back")
            await proven(one, at_two, start + 1_000_000)
            await proven(two, at_one, start + 2_000_000)
        await one.publish(note(7))
        for listener in (at_one, at_two, sibling):
            await listener.wait_for(note(7))
            assert len(listener.numbers) == len(set(listener.numbers))
            assert listener.gaps >= 3
            assert not listener.ended
        if own_broker.kind != "nats":

            async def one_of_each_half() -> bool:
                return [len(await own_broker.sessions(channel, half)) for half in ("listen", "publish")] == [2, 2]

            await eventually(one_of_each_half, "one session of each half of each bus")


@pytest.mark.parametrize("published", [0, 2000], ids=["idle", "publishing"])
async def test_frozen_server_is_waited_for_without_a_leak(
    own_broker: Broker, channel: str, caplog: pytest.LogCaptureFixture, published: int
) -> None:
    """P01, X03: publishing is prompt and bounded meanwhile; with the thaw all goes on, a gap for each reconnect."""
    async with settled():
        bus = own_broker.bus(channel, outbox=500)
        async with bus, listening(bus) as listener:
            await proven(bus, listener)
            own_broker.own.freeze()
            slowest = 0.0
            began = anyio.current_time()
            for number in range(published):
                before = anyio.current_time()
                await bus.publish(note(number))
                slowest = max(slowest, anyio.current_time() - before)
            assert slowest < 0.5
            assert anyio.current_time() - began < 5
            await eventually(lambda: not bus.stats().connected, "the loss")
            await eventually(lambda: "no answer within" in (bus.stats().last_error or ""), "a failed try to connect")
            if published:
                assert bus.stats().dropped.get("outbox", 0) + bus.stats().in_doubt >= published - 500
            own_broker.own.thaw()
            await proven(bus, listener, start=2_000_000)
            assert not listener.ended
            kept = [number for number in listener.numbers if number < 1_000_000]
            assert kept == sorted(set(kept))
            if not published:
                assert listener.gaps == bus.stats().reconnects
            assert listener.gaps >= 1
            outage_warnings(caplog)
            if own_broker.kind != "nats":

                async def two() -> bool:
                    return len(await own_broker.sessions(channel)) == 2

                await eventually(two, "one session of each half")


async def test_notifications_of_an_outage_wait_in_the_outbox_and_nowhere_else(own_broker: Broker, channel: str) -> None:
    """N08: bounded, the newest are kept in order, one gap for the others, and nothing raises or blocks."""
    bus, peer = own_broker.bus(channel, outbox=500), own_broker.bus(channel)
    async with bus, peer, listening(bus) as listener, listening(peer) as at_peer:
        await proven(bus, listener)
        own_broker.own.kill()
        await eventually(lambda: not bus.stats().connected, "the loss")
        slowest = 0.0
        for number in range(5000):
            before = anyio.current_time()
            await bus.publish(note(number))
            slowest = max(slowest, anyio.current_time() - before)
        assert slowest < 0.5
        assert bus.stats().dropped["outbox"] == 4500
        own_broker.own.restart()
        await listener.wait_for(note(4999))
        assert listener.notes == [note(number) for number in range(4500, 5000)]
        await at_peer.until(lambda seen: seen.gaps > 0, "a gap")


async def test_server_that_is_started_later_is_found(own_broker: Broker, channel: str) -> None:
    """X05: the first connection is tried for ever as well, and what was published before it is sent."""
    own_broker.own.kill()
    bus = own_broker.bus(channel, ready_timeout=0.3)
    async with bus:
        await bus.publish(note(1))
        with pytest.raises(BusNotReadyError, match="nothing listens there"):
            async with bus.subscribe():
                raise AssertionError
        assert "nothing listens there" in (bus.stats().last_error or "")
        own_broker.own.restart()
        await bus.wait_ready(LIMIT)
        async with listening(bus) as listener:
            await proven(bus, listener)
