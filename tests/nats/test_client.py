"""What is changed of nats-py's client, at the places where the rest cannot show it."""

import asyncio
import logging
import ssl
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from notification_bus.testing._proxy import FaultProxy
from notification_bus_nats._client import OneConnection, ping
from tests.brokers import Provider, Server, certificates
from tests.nats.helpers import bus_on, links_to, listening, proven, until


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
        await until(lambda: links_to(proxy.port) == 0)
    reader = cast("asyncio.Task[None]", client._reading_task)
    assert reader.cancelled() or reader.exception() is None


async def test_answer_that_nobody_waits_for_any_more_does_not_end_the_reader(each_server: Server) -> None:
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        client = Client()
        await client.connect(f"nats://{proxy.host}:{proxy.port}", error_cb=quiet)
        await proxy.stall()
        waiting = asyncio.create_task(wait_for(client))
        await until(lambda: cast("list[object]", client._pongs))  # pyright: ignore[reportUnknownMemberType]
        waiting.cancel()
        await asyncio.wait({waiting})
        await proxy.restore()
        async with asyncio.timeout(5):
            await (await ping(client))
        await client.close()


async def wait_for(client: Client) -> None:
    pong = await ping(client)
    await asyncio.wait({pong})


async def test_other_tools_of_the_client_cannot_be_heard_as_notifications(each_server: Server) -> None:
    """There is one subscription, and all that arrives is of it."""
    heard: list[bytes] = []
    client = OneConnection(heard.extend, lambda _: None, secure=False)
    await client.connect(each_server.url, allow_reconnect=False, error_cb=quiet)
    await client.write(b"SUB a.b  1\r\nPUB a.b 2\r\nhi\r\nPUB a.c 2\r\nno\r\n")
    async with asyncio.timeout(5):
        await (await ping(client))
    assert heard == [b"hi"]
    await client.end()
    with pytest.raises(ConnectionError, match="closed"):
        await client.write(b"PING\r\n")


async def test_discovered_server_is_verified_by_the_name_of_the_one_that_told_of_it(
    brokers: Provider, channel: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A cluster tells of bare addresses, which do not stand in its certificate."""
    from tests.brokers import LocalServer, free_port
    from tests.nats.test_cluster import joined_any

    pem = certificates(tmp_path_factory.mktemp("pem"), "localhost")
    ports = [free_port(), free_port()]
    config = "cluster {{ name: c, listen: 127.0.0.1:{}, routes: ['nats://127.0.0.1:{}'] }}\n"
    context = ssl.create_default_context(cafile=pem.ca)
    with (
        brokers.dedicated("nats", tls=pem, text=config.format(ports[0], ports[1])) as first,
        brokers.dedicated("nats", tls=pem, text=config.format(ports[1], ports[0])) as second,
    ):
        assert isinstance(first, LocalServer)
        assert isinstance(second, LocalServer)
        await until(lambda: joined_any(first))
        bus = bus_on(f"tls://localhost:{first.port}", channel, tls=context)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            first.kill()
            await proven(bus, ear, start=2_000_000)


WIRE = b"".join(
    [
        b"MSG a.b 1 2\r\nhi\r\n",
        b"MSG a.b 1 0\r\n\r\n",
        b"PING\r\n",
        b"MSG a.b 1 reply.to 5\r\nreply\r\n",
        b"MSG  a.b  1  6\r\nspaces\r\n",
        b"HMSG a.b 1 18 22\r\nNATS/1.0\r\na: b\r\n\r\nhead\r\n",
        b"+OK\r\n",
        b"-ERR 'permissions violation for publish to \"a.b\"'\r\n",
        b"MSG a.b 1 %d\r\n%b\r\n" % (100_000, b"L" * 100_000),
        b"MSG a.b 1 17\r\nMSG a.b 1 2\r\nno\r\n\r\n",
        b"PONG\r\n",
        b"MSG a.b 1 4\r\nlast\r\n",
    ]
)
BODIES = [b"hi", b"", b"reply", b"spaces", b"head", b"L" * 100_000, b"MSG a.b 1 2\r\nno\r\n", b"last"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 16, 31, 64, 1000, 32_768, 1_000_000])
async def test_messages_are_read_however_they_are_cut(size: int) -> None:
    """Beside every other word of the protocol, and by nats-py's parser where they are of another form."""
    heard: list[bytes] = []
    client = OneConnection(heard.extend, lambda _: None, secure=False)
    client._error_cb = quiet
    client._flush_queue = asyncio.Queue()
    for at in range(0, len(WIRE), size):
        await client._ps.parse(WIRE[at : at + size])
    assert heard == BODIES


@given(st.lists(st.integers(1, 400), max_size=200), st.lists(st.binary(max_size=300), max_size=30))
def test_bodies_are_read_from_any_pieces(cuts: list[int], bodies: list[bytes]) -> None:
    heard: list[bytes] = []

    async def read() -> None:
        client = OneConnection(heard.extend, lambda _: None, secure=False)
        rest = b"".join(b"MSG a.b 1 %d\r\n%b\r\n" % (len(body), body) for body in bodies)
        for cut in cuts:
            await client._ps.parse(rest[:cut])
            rest = rest[cut:]
        await client._ps.parse(rest)

    asyncio.run(read())
    assert heard == bodies


def test_nothing_is_logged_by_importing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    import notification_bus_nats

    assert notification_bus_nats.__all__ == ["NatsBus"]
    assert not caplog.records
