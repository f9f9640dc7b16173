"""What is changed of nats-py's client, at the places where the rest cannot show it."""

import asyncio
import logging
import ssl
from typing import cast

import pytest

from notification_bus.testing._proxy import FaultProxy
from notification_bus_nats._client import OneConnection
from tests.brokers import Provider, Server, certificates, is_process
from tests.brokers._listener import links_to, listening, proven
from tests.nats.helpers import bus_on, until


async def quiet(_error: Exception) -> None:
    """What nats-py reports is not looked at here."""


async def test_end_of_a_connection_is_told_and_complete_with_something_pending(each_server: Server) -> None:
    """nats-py's own closing fails where it cannot write out what is pending: an open socket, and no callback."""
    ends: list[Exception | None] = []
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        client = OneConnection(lambda _: None, ends.append, secure=False)
        await client.connect(f"nats://{proxy.host}:{proxy.port}", allow_reconnect=False, error_cb=quiet)
        client._pending_data_size = 6
        await proxy.cut()
        await until(lambda: ends)
        await client.end()
        await client.end()
        assert links_to(proxy.port) == 0
    reader = cast("asyncio.Task[None]", client._reading_task)
    assert reader.cancelled() or reader.exception() is None


async def test_answer_that_nobody_waits_for_any_more_does_not_end_the_reader(each_server: Server) -> None:
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        client = OneConnection(lambda _: None, lambda _: None, secure=False)
        await client.connect(f"nats://{proxy.host}:{proxy.port}", error_cb=quiet)
        await proxy.stall()
        waiting = asyncio.create_task(wait_for(client))
        await until(lambda: cast("list[object]", client._pongs))  # pyright: ignore[reportUnknownMemberType]
        waiting.cancel()
        await asyncio.wait({waiting})
        await proxy.restore()
        async with asyncio.timeout(5):
            await (await client.ping())
        await client.close()


async def wait_for(client: OneConnection) -> None:
    pong = await client.ping()
    await asyncio.wait({pong})


async def test_other_tools_of_the_client_cannot_be_heard_as_notifications(each_server: Server) -> None:
    """There is one subscription, and all that arrives is of it."""
    heard: list[bytes] = []
    client = OneConnection(heard.append, lambda _: None, secure=False)
    await client.connect(each_server.url, allow_reconnect=False, error_cb=quiet)
    await client.write(b"SUB a.b  1\r\nPUB a.b 2\r\nhi\r\nPUB a.c 2\r\nno\r\n")
    async with asyncio.timeout(5):
        await (await client.ping())
    assert heard == [b"hi"]
    await client.end()
    with pytest.raises(ConnectionError, match="closed"):
        await client.write(b"PING\r\n")


async def test_discovered_server_is_verified_by_the_name_of_the_one_that_told_of_it(
    brokers: Provider, channel: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A cluster tells of bare addresses, which do not stand in its certificate."""
    from tests.brokers import free_port
    from tests.nats.test_cluster import joined_any

    pem = certificates(tmp_path_factory.mktemp("pem"), "localhost")
    ports = [free_port(), free_port()]
    config = "cluster {{ name: c, listen: 127.0.0.1:{}, routes: ['nats://127.0.0.1:{}'] }}\n"
    context = ssl.create_default_context(cafile=pem.ca)
    with (
        brokers.dedicated("nats", tls=pem, text=config.format(ports[0], ports[1])) as first,
        brokers.dedicated("nats", tls=pem, text=config.format(ports[1], ports[0])) as second,
    ):
        assert is_process(first)
        assert is_process(second)
        await until(lambda: joined_any(first))
        bus = bus_on(f"tls://localhost:{first.port}", channel, tls=context)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            first.kill()
            await proven(bus, ear, start=2_000_000)


def test_nothing_is_logged_by_importing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    import notification_bus_nats

    assert notification_bus_nats.__all__ == ["NatsBus", "NatsOptions"]
    assert not caplog.records
