"""The faults of `FAULTS.md` that concern NATS, on real servers of each version."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from notification_bus import BusNotReadyError
from notification_bus.testing._proxy import FaultProxy
from notification_bus_nats import NatsBus
from tests.brokers import Provider, Server, is_process, witness
from tests.brokers._listener import LIMIT, listening, note, proven
from tests.nats.helpers import bus_on, settled, until


@pytest.fixture
async def proxy(each_server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        yield proxy


def through(proxy: FaultProxy, channel: str, **options: object) -> NatsBus:
    return bus_on(f"nats://{proxy.host}:{proxy.port}", channel, **options)


async def test_link_that_breaks_while_the_confirmation_is_outstanding_ends_in_a_subscription(channel: str) -> None:
    """N09: the server takes the subscription, is silent, and goes; entering neither hangs nor lies."""
    seen: list[bytes] = []
    answering = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b'INFO {"server_id":"x","version":"2.9.0","max_payload":1048576,"proto":1,"headers":true}\r\n')
            subscribed = False
            while line := await reader.readline():
                verb, *words = line.split()
                seen.append(verb)
                if verb == b"SUB":
                    subscribed = True
                elif verb == b"PING" and not (subscribed and not answering.is_set()):
                    writer.write(b"PONG\r\n")
                elif verb == b"PING":
                    return
                elif verb == b"PUB":
                    body = await reader.readexactly(int(words[-1]) + 2)
                    writer.write(b"MSG %b 1 %d\r\n%b" % (words[0], len(body) - 2, body))
        finally:
            writer.close()

    fake = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with fake:
        port = fake.sockets[0].getsockname()[1]
        bus = bus_on(f"nats://127.0.0.1:{port}", channel)
        async with bus:
            with pytest.raises(BusNotReadyError):
                await bus.wait_ready(0.5)
            assert seen.count(b"SUB") >= 2
            answering.set()
            async with listening(bus) as ear:
                await proven(bus, ear)
    await settled()


async def test_reader_that_cannot_follow_is_cut_off_with_a_gap_and_bounded_memory(
    each_server: Server, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X02: nats-py makes no server wait for a slow reader, so what has arrived unread is bounded here."""
    monkeypatch.setattr("notification_bus_nats._connection._UNREAD", 200_000)
    bus = bus_on(each_server, channel)
    async with bus, listening(bus) as ear, witness("nats", each_server.url, channel) as seen:
        flood = [note(number, "y" * 3000).encode() for number in range(2000)]
        for body in flood:
            await seen._client.publish(channel, body)  # many at once, which the witness's own word would not be
        await until(lambda: bus.stats().reconnects >= 1)
        await proven(bus, ear)
        assert ear.gaps >= 1
        assert "arrived unread" in (bus.stats().last_error or "")


_FLOOD = """
import asyncio, sys, nats

async def main(url, subject):
    client = await nats.connect(url)
    for _ in range(220):
        await client.publish(subject, b" " * 60_000)
        if client.pending_data_size > 1_000_000:
            await asyncio.sleep(0.001)
    while client.pending_data_size:
        await asyncio.sleep(0.001)
    await client.flush()
    await client.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_server_that_sheds_a_slow_consumer_is_come_back_to_with_a_gap(
    brokers: Provider, flavour: str, channel: str
) -> None:
    """The server closes the connection of a client that does not read; here the whole event loop stands still."""
    with brokers.dedicated("nats", flavour, text="max_payload: 64KB, max_pending: 100KB") as server:
        assert is_process(server)
        bus = bus_on(server, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            subprocess.run([sys.executable, "-c", _FLOOD, server.url, channel], check=True, timeout=LIMIT)  # noqa: ASYNC221
            assert "Slow Consumer" in server.log.read_text("utf-8")
            await until(lambda: bus.stats().reconnects == 1)
            await proven(bus, ear, start=2_000_000)
            assert ear.gaps >= 1
            assert "did not come back" not in (bus.stats().last_error or "")


async def test_message_with_headers_is_read(each_server: Server, channel: str) -> None:
    """X04: headers can stand beside any body."""
    bus = bus_on(each_server, channel)
    async with bus, listening(bus) as ear, witness("nats", each_server.url, channel) as seen:
        await seen._client.publish(channel, note(1).encode(), headers={"a": "b"})
        await seen.publish(note(2).encode())
        await ear.wait_for(note(1), note(2))
        assert ear.numbers == [1, 2]
        assert bus.stats().reconnects == 0


async def test_attempt_that_is_cut_off_begins_with_another_server_next_time(
    each_server: Server, proxy: FaultProxy, channel: str
) -> None:
    """Where the first of the servers swallows all the time that an attempt has."""
    await proxy.blackhole(new="accept")
    urls = [f"nats://{proxy.host}:{proxy.port}", each_server.url]
    bus = bus_on(urls, channel, connect_timeout=60.0, dont_randomize=True)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
