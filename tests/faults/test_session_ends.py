"""The server ends the bus's sessions. Not for NATS, whose server does so for its system account only."""

import pytest

from tests.brokers import Broker, Kind, eventually, listening, note, proven

BROKERS: tuple[Kind, ...] = ("redis", "postgres")


@pytest.mark.parametrize("half", ["listen", "publish", ""], ids=["listening", "publishing", "both"])
async def test_session_that_the_server_ends_is_made_anew_with_a_gap_ten_times(
    broker: Broker, channel: str, half: str
) -> None:
    """R02, P01, X07: noticed without a probe, in order, one copy each, and never more than one session of each half."""
    bus = broker.bus(channel, probe_interval=60.0)
    async with bus, listening(bus) as listener, listening(bus) as sibling:
        for outage in range(1, 11):
            await broker.end_sessions(channel, half)
            if broker.kind == "redis" and half == "publish":
                await bus.publish(note(outage))  # redis-py reads nothing in between: the next send finds the end
            await eventually(lambda outage=outage: bus.stats().reconnects == outage, "the reconnect")  # type: ignore[misc]
            await proven(bus, listener, start=outage * 1000)

        async def one_each() -> bool:
            return [len(await broker.sessions(channel, each)) for each in ("listen", "publish", "")] == [1, 1, 2]

        await eventually(one_each, "one session of each half")
        for number in range(20_000, 20_005):
            await bus.publish(note(number))
        for heard in (listener, sibling):
            await heard.wait_for(note(20_004))
            assert [n for n in heard.numbers if n >= 20_000] == list(range(20_000, 20_005))
            assert heard.gaps >= 10
            assert len(heard.numbers) == len(set(heard.numbers))
            assert not heard.ended
