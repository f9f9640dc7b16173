"""RedisBus on a real server that is killed, frozen and cut off. The ids are those of the catalogue of faults."""

import logging
from typing import Any

import anyio
import pytest
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from notification_bus import BusNotification
from notification_bus.testing._proxy import FaultProxy
from notification_bus_redis import RedisBus
from tests.brokers import Server, witness
from tests.redis.support import channel, eventually, next_of, quick_bus


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
