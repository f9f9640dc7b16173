"""RedisBus on a real server that is killed, frozen and cut off. The ids are those of the catalogue of faults."""

import logging
from typing import Any

import anyio
import pytest
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from notification_bus import GAP, BusNotification
from notification_bus.testing._proxy import FaultProxy
from notification_bus_redis import RedisBus
from tests.brokers import Provider, Server, witness
from tests.redis.support import PATIENCE, channel, eventually, gaps, marker_arrives, next_of, quick_bus, receives


async def pubsub_clients(admin: Any, name: str) -> list[dict[str, str]]:
    listing: list[dict[str, str]] = await admin.client_list()
    return [client for client in listing if int(client["sub"]) > 0 and client["name"] == name]


async def test_both_instances_recover_from_a_restart_with_one_subscription_each(brokers: Provider) -> None:
    """R02."""
    with brokers.dedicated("redis") as server:
        name = channel()
        url = f"{server.url}?client_name=replica"
        async with (
            quick_bus(url, name) as a,
            quick_bus(url, name) as b,
            a.subscribe() as at_a,
            b.subscribe() as at_b,
        ):
            await marker_arrives(a, at_a)
            server.kill()
            await eventually(lambda: not a.stats().connected and not b.stats().connected, "the kill is noticed")
            server.restart()
            assert GAP in await marker_arrives(a, at_a)
            from_b = BusNotification("from-b")
            await b.publish(from_b)
            await receives(at_a, from_b)
            await receives(at_b, from_b)
            async with witness("redis", server.url, channel()) as raw:
                await eventually(lambda: a.stats().connected and b.stats().connected, "both are back")
                assert len(await pubsub_clients(raw.client, "replica")) == 2


async def test_ten_kicks_in_a_row_leave_one_subscription_and_no_duplicates(redis_server: Server) -> None:
    """R02, X07."""
    name = channel()
    async with (
        quick_bus(f"{redis_server.url}?client_name={name}", name) as bus,
        bus.subscribe() as one,
        bus.subscribe() as two,
        witness("redis", redis_server.url, name) as raw,
    ):
        for _ in range(10):
            reconnects = bus.stats().reconnects
            for client in await pubsub_clients(raw.client, name):
                await raw.client.client_kill_filter(_id=client["id"])
            await eventually(lambda before=reconnects: bus.stats().reconnects > before, "the kick is noticed")  # type: ignore[misc]
            await eventually(lambda: bus.stats().connected, "the bus is back")
        numbered = [BusNotification("n", {"number": number}) for number in range(5)]
        for notification in numbered:
            await bus.publish(notification)
        for subscription in (one, two):
            seen = await marker_arrives(bus, subscription)
            assert [n for n in seen if n.method == "n"] == numbered
        assert len(await pubsub_clients(raw.client, name)) == 1


@pytest.mark.parametrize("traffic", ["idle", "publishing"])
async def test_a_link_that_dies_without_a_word_is_replaced(
    redis_server: Server, caplog: pytest.LogCaptureFixture, traffic: str
) -> None:
    """R01."""
    name = channel()
    async with (
        FaultProxy(redis_server.host, redis_server.port) as proxy,
        quick_bus(f"redis://{proxy.host}:{proxy.port}", name) as bus,
        bus.subscribe() as subscription,
        witness("redis", redis_server.url, name) as raw,
    ):
        await marker_arrives(bus, subscription)
        await proxy.blackhole(new="pass")
        if traffic == "publishing":
            await bus.publish(BusNotification("into-the-hole"))
        assert await next_of(subscription) == GAP
        await raw.publish(b'{"method":"marker"}')
        await receives(subscription, BusNotification("marker"))
    assert any("did not come back" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("when", ["in use", "at a send", "at the greeting"])
async def test_a_connection_that_was_reset_leaves_asyncio_nothing_to_report(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The reason lies in a future of the streams, which says at its end, whenever that is, that nobody has taken it."""
    # Held here, since a protocol that is collected before its future takes the reason, and a later one does not.
    protocols: list[Any] = []
    greet = AbstractConnection.on_connect

    async with FaultProxy(redis_server.host, redis_server.port) as proxy:

        async def greeting(connection: Any) -> None:
            protocols.append(connection._writer.transport.get_protocol())
            if when == "at the greeting":
                await proxy.cut()
            await greet(connection)

        monkeypatch.setattr(AbstractConnection, "on_connect", greeting)
        bus = quick_bus(f"redis://{proxy.host}:{proxy.port}")
        if when == "at the greeting":
            with pytest.raises(RedisConnectionError):
                await bus.connect()
        else:
            connection = await bus.connect()
            await proxy.cut()
            await eventually(lambda: all(protocol._closed.done() for protocol in protocols), "both are lost")
            assert all(protocol._closed._log_traceback for protocol in protocols)
            if when == "at a send":
                # Writing to a closed transport is the latter in the first releases of Python 3.12.
                with pytest.raises((RedisConnectionError, AttributeError)):
                    await connection.send([b"{}"])
            await connection.aclose()
        assert protocols
        assert not any(protocol._closed._log_traceback for protocol in protocols)


async def test_silence_is_no_failure_whatever_the_read_timeout(
    redis_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """R03."""
    name = channel()
    # Probes far apart, so that the silence is real and several times the time-out that the client was given.
    bus = RedisBus(f"{redis_server.url}?socket_timeout=0.1&health_check_interval=1", channel=name, probe_interval=60.0)
    async with bus, bus.subscribe() as subscription, witness("redis", redis_server.url, name) as raw:
        for number in range(4):
            await anyio.sleep(0.3)  # the silence itself
            await raw.publish(b'{"method":"n","params":{"number":%d}}' % number)
            assert await next_of(subscription) == BusNotification("n", {"number": number})
        assert bus.stats().reconnects == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_publishing_is_prompt_and_bounded_while_the_server_is_frozen(brokers: Provider) -> None:
    """X03."""
    with brokers.dedicated("redis") as server:
        bus = quick_bus(server.url, outbox=100)
        async with bus, bus.subscribe() as subscription:
            await marker_arrives(bus, subscription)
            server.freeze()
            began = anyio.current_time()
            for number in range(2000):
                await bus.publish(BusNotification("n", {"number": number}))
            assert anyio.current_time() - began < 5
            await eventually(lambda: not bus.stats().connected, "the freeze is noticed")
            dropped = bus.stats().dropped["outbox"] + bus.stats().in_doubt
            assert dropped >= 1900
            server.thaw()
            seen = await marker_arrives(bus, subscription)
            numbers = [n.params["number"] for n in seen if n.method == "n" and n.params is not None]
            assert numbers == sorted(numbers, key=lambda number: int(str(number)))
            assert gaps(seen) >= 1


async def test_a_server_that_starts_later_is_found(brokers: Provider) -> None:
    """X05 (a)."""
    with brokers.dedicated("redis") as server:
        server.kill()
        bus = quick_bus(server.url)
        async with bus:
            await bus.publish(BusNotification("early"))
            await eventually(lambda: bus.stats().last_error is not None, "the refusal is seen")
            server.restart()
            async with bus.subscribe() as subscription:
                await marker_arrives(bus, subscription)


async def test_the_fifth_outage_is_recovered_from_as_quickly_as_the_first(redis_server: Server) -> None:
    """X05 (c): the back-off is reset by success."""
    async with (
        FaultProxy(redis_server.host, redis_server.port) as proxy,
        quick_bus(f"redis://{proxy.host}:{proxy.port}") as bus,
        bus.subscribe() as subscription,
    ):
        for _ in range(5):
            await proxy.refuse()
            await eventually(lambda: not bus.stats().connected, "the outage is noticed")
            attempts = proxy.accepted
            await eventually(lambda before=attempts: proxy.accepted > before + 1, "it tries again")  # type: ignore[misc]
            await proxy.restore()
            await marker_arrives(bus, subscription)


async def test_poison_on_the_channel_is_skipped(redis_server: Server) -> None:
    """X04."""
    name = channel()
    poison = [
        *(
            b"",
            b"hello",
            b"\xff\xfe\x00",
            b'{"method":',
            b"[]",
            b"null",
            b'{"method":1}',
            b'{"method":"x","params":"str"}',
        ),
        *(b'{"method":"x","method":"y"}', b"[" * 1_000_000, b'{"method":"x","params":{"n":NaN}}'),
        b'\xef\xbb\xbf{"method":"x"}',
    ]
    async with (
        quick_bus(redis_server.url, name) as bus,
        bus.subscribe() as subscription,
        witness("redis", redis_server.url, name) as raw,
    ):
        for body in poison:
            await raw.publish(body)
        await raw.publish(b'{"jsonrpc":"2.0","method":"good","extra":1}')
        assert await next_of(subscription) == BusNotification("good")
        assert bus.stats().malformed == len(poison)
        assert bus.stats().reconnects == 0


async def test_everything_published_the_instant_a_subscription_is_entered_arrives(redis_server: Server) -> None:
    """N09: two hundred rounds, each on a bus of its own."""
    async with witness("redis", redis_server.url, name := channel()) as raw:
        for number in range(200):
            bus = RedisBus(redis_server.url, channel=name)
            async with bus, bus.subscribe() as subscription:
                await raw.publish(b'{"method":"n","params":{"number":%d}}' % number)
                assert await next_of(subscription) == BusNotification("n", {"number": number})


async def test_many_tasks_publish_while_subscriptions_come_and_go(redis_server: Server) -> None:
    """P11."""
    async with quick_bus(redis_server.url, buffer=5000) as bus, bus.subscribe() as standing:

        async def publish(task: int) -> None:
            for number in range(10):
                await bus.publish(BusNotification("n", {"task": task, "number": number}))

        async def come_and_go() -> None:
            for _ in range(5):
                async with bus.subscribe():
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for task in range(20):
                tasks.start_soon(publish, task)
                tasks.start_soon(come_and_go)
        seen = [n.params for n in await marker_arrives(bus, standing) if n.method == "n" and n.params is not None]
        assert len(seen) == 200
        for task in range(20):
            assert [params["number"] for params in seen if params["task"] == task] == list(range(10))


@pytest.mark.parametrize("state", ["healthy", "stalled", "black", "refused", "mid-connect"])
async def test_closing_is_bounded_and_leaves_no_connection(redis_server: Server, state: str) -> None:
    async with FaultProxy(redis_server.host, redis_server.port) as proxy:
        bus = quick_bus(f"redis://{proxy.host}:{proxy.port}", close_timeout=1.0, probe_timeout=PATIENCE)
        if state == "mid-connect":
            await proxy.stall()
        await bus.__aenter__()
        if state == "mid-connect":
            await eventually(lambda: proxy.connections > 0, "it is connecting")
        else:
            await bus.wait_ready(PATIENCE)
        match state:
            case "stalled":
                await proxy.stall()
            case "black":
                await proxy.blackhole(new="accept")
            case "refused":
                await proxy.refuse()
            case _:
                pass
        for number in range(500):
            await bus.publish(BusNotification("n", {"number": number, "text": "x" * 10_000}))
        began = anyio.current_time()
        await bus.aclose()
        assert anyio.current_time() - began < 1.0 + 0.5
        await proxy.restore()
        await eventually(lambda: proxy.connections == 0, "no connection is left")
