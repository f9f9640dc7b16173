"""What is owed to a subscription on a healthy link, whatever else is on the channel and whoever comes and goes."""

import asyncio

from anyio.lowlevel import checkpoint

from tests.brokers import Broker, listening, note, witness

STRANGE = [
    *(b"", b"hello", b"\xff\xfe\x00", b'{"method":', b"[]", b"null", b'{"method":1}', b"[" * 1_000_000),
    *(b'{"method":"x","params":"str"}', b'{"method":"x","method":"y"}', b'{"method":"x","params":{"n":NaN}}'),
    b'\xef\xbb\xbf{"method":"x"}',
]
"""Bodies that are no notifications, and that any stranger can put on the channel."""


def carried_by(broker: Broker) -> list[bytes]:
    """Those that the broker carries: NOTIFY takes text without NUL, of at most 7,999 bytes."""
    if broker.kind != "postgres":
        return STRANGE
    fitting = [body[:7999] for body in STRANGE if b"\0" not in body]
    return [body for body in fitting if body.decode("utf-8", "replace").encode() == body]


async def test_strange_bodies_are_skipped_and_counted(broker: Broker, channel: str) -> None:
    """X04."""
    bus = broker.bus(channel)
    bodies = carried_by(broker)
    async with bus, listening(bus) as listener, witness(broker.kind, broker.server.url, channel) as raw:
        for body in bodies:
            await raw.publish(body)
        await raw.publish(b'{"jsonrpc":"2.0","method":"test/note","params":{"n":1},"extra":1}')
        await listener.wait_for(note(1))
        assert listener.heard == [note(1)]
        assert bus.stats().malformed == len(bodies)
        assert bus.stats().reconnects == 0


async def test_entered_subscription_hears_what_is_published_at_once(broker: Broker, channel: str) -> None:
    """N09: two hundred times out of two hundred, each on a bus of its own, by another connection."""
    async with witness(broker.kind, broker.server.url, channel) as raw:
        for number in range(200):
            bus = broker.bus(channel)
            async with bus, listening(bus) as listener:
                await raw.publish(note(number).encode())
                await listener.wait_for(note(number), limit=2)


async def test_many_tasks_publish_while_subscriptions_come_and_go(broker: Broker, channel: str) -> None:
    """P11: no "operation in progress", nothing lost, what each task has published in order."""
    bus = broker.bus(channel)

    async def publish(task: int) -> None:
        for number in range(10):
            await bus.publish(note(task * 100 + number))

    async def come_and_go() -> None:
        for _ in range(20):
            async with bus.subscribe():
                await checkpoint()

    async with bus, listening(bus) as listener:
        await asyncio.gather(*(publish(task) for task in range(20)), *(come_and_go() for _ in range(20)))
        await listener.until(lambda seen: len(seen.numbers) == 200, "all of them")
        for task in range(20):
            assert [n for n in listener.numbers if n // 100 == task] == list(range(task * 100, task * 100 + 10))
