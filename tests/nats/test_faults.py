"""The faults of `FAULTS.md` that concern NATS, on real servers of each version."""

import asyncio
import gc
import logging
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from notification_bus import BusNotReadyError
from notification_bus.testing._proxy import FaultProxy
from notification_bus_nats import NatsBus
from tests.brokers import LocalServer, Provider, Server, witness
from tests.nats.helpers import LIMIT, QUICK, bus_on, links_to, listening, note, proven, settled, until


@pytest.fixture
async def proxy(each_server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        yield proxy


def through(proxy: FaultProxy, channel: str, **options: object) -> NatsBus:
    return bus_on(f"nats://{proxy.host}:{proxy.port}", channel, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("unsent", [0, 300], ids=["idle", "with a megabyte unsent"])
async def test_half_open_link_is_left_within_the_bound(
    proxy: FaultProxy, channel: str, caplog: pytest.LogCaptureFixture, unsent: int
) -> None:
    """N01: no FIN, no RST, and nats-py's closing would wait for the transport for a quarter of an hour."""
    bus = through(proxy, channel)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        await proxy.blackhole()
        for number in range(unsent):
            await bus.publish(note(number, "x" * 4000))
        await until(lambda: bus.stats().reconnects == 1, QUICK["probe_interval"] + QUICK["probe_timeout"] + 1)
        await proven(bus, ear, start=2_000_000)
        assert ear.gaps >= 1
        assert any("did not come back" in said for said in warnings(caplog))
    await settled()


async def test_frozen_server_is_waited_for_without_a_leak(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = bus_on(server, channel)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        server.freeze()
        await until(lambda: not bus.stats().connected)
        await until(lambda: "no answer within" in (bus.stats().last_error or ""))
        server.thaw()
        await proven(bus, ear, start=2_000_000)
        assert ear.gaps == 1
        assert not ear.ended
        assert len(warnings(caplog)) <= 4
    await settled()


async def test_killed_server_is_come_back_to_with_one_gap_and_without_duplicates(server: Server, channel: str) -> None:
    """N02, X07: as often as it happens."""
    one, two = bus_on(server, channel, probe_interval=60.0), bus_on(server, channel, probe_interval=60.0)
    async with one, two, listening(one) as ear, listening(two) as other, listening(two) as sibling:
        for outage in range(3):
            await proven(one, ear, start=(3 * outage + 1) * 1_000_000)
            server.kill()
            await until(lambda: not one.stats().connected and not two.stats().connected)
            server.restart()
            await proven(one, other, start=(3 * outage + 2) * 1_000_000)
            await proven(two, ear, start=(3 * outage + 3) * 1_000_000)
        await one.publish(note(7))
        for heard in (ear, other, sibling):
            await heard.wait_for(note(7))
            assert len(heard.numbers) == len(set(heard.numbers))
            assert heard.gaps >= 3


async def test_outage_far_beyond_the_clients_own_patience_is_survived(
    proxy: FaultProxy, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N02: nats-py gives up for good after 60 attempts; here there is nothing that could be used up."""
    bus = through(proxy, channel, backoff_cap=0.02)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        await proxy.refuse()
        await until(lambda: proxy.attempts > 200)
        assert len(warnings(caplog)) <= 4
        await proxy.restore()
        await proven(bus, ear, start=2_000_000)
        assert not ear.ended


async def test_notifications_of_an_outage_wait_in_the_outbox_and_nowhere_else(server: Server, channel: str) -> None:
    """N08: bounded, the newest are kept in order, one warning with a count, and nothing raises or blocks."""
    bus, peer = bus_on(server, channel, outbox=500), bus_on(server, channel)
    async with bus, peer, listening(bus) as ear, listening(peer) as other:
        await proven(bus, ear)
        server.kill()
        await until(lambda: not bus.stats().connected)
        slowest = 0.0
        for number in range(5000):
            began = asyncio.get_running_loop().time()
            await bus.publish(note(number))
            slowest = max(slowest, asyncio.get_running_loop().time() - began)
        assert slowest < 0.5
        assert bus.stats().dropped["outbox"] == 4500
        before = len(ear.heard)
        server.restart()
        await ear.wait_for(note(4999))
        kept = [heard for heard in ear.heard[before:] if heard.method == "test/note"]
        assert kept == [note(number) for number in range(4500, 5000)]
        await until(lambda: other.gaps)


async def test_server_that_is_started_later_is_found(brokers: Provider, flavour: str, channel: str) -> None:
    """X05: the first connection is tried for ever as well."""
    with brokers.dedicated("nats", flavour) as server:
        server.kill()
        bus = bus_on(server, channel, ready_timeout=0.3)
        async with bus:
            with pytest.raises(BusNotReadyError, match="nothing listens there"):
                async with bus.subscribe():
                    raise AssertionError
            server.restart()
            await bus.wait_ready(LIMIT)
            async with listening(bus) as ear:
                await proven(bus, ear)


async def test_entered_subscription_hears_what_is_published_at_once(each_server: Server, channel: str) -> None:
    """N09: two hundred times out of two hundred, by another connection."""
    async with witness("nats", each_server.url, channel) as seen:
        for number in range(200):
            bus = bus_on(each_server, channel)
            async with bus, listening(bus) as ear:
                await seen.publish(note(number).encode())
                await ear.wait_for(note(number), limit=2)


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


@pytest.mark.parametrize("fault", ["cut", "fin"])
async def test_broken_link_is_replaced_at_once_ten_times(proxy: FaultProxy, channel: str, fault: str) -> None:
    """Without waiting for a probe to tell."""
    bus = through(proxy, channel, probe_interval=60.0)
    async with bus, listening(bus) as ear:
        for number in range(1, 11):
            await proven(bus, ear, start=number * 1_000_000)
            await getattr(proxy, fault)()
            await until(lambda number=number: bus.stats().reconnects == number)  # type: ignore[misc]
            await until(lambda: bus.stats().connected and proxy.connections == 1)
        await proven(bus, ear, start=20_000_000)
        assert ear.gaps >= 10
        assert len(ear.numbers) == len(set(ear.numbers))


async def test_idle_channel_stays_on_one_connection(proxy: FaultProxy, each_server: Server, channel: str) -> None:
    bus = through(proxy, channel, probe_interval=0.1)
    async with bus, listening(bus) as ear, witness("nats", each_server.url, channel) as seen:
        await seen.wait_for(20)  # only probes
        await bus.publish(note(1))
        await ear.wait_for(note(1))
        assert (proxy.accepted, ear.gaps) == (1, 0)


async def test_slow_link_holds_back_the_outbox_and_not_the_publisher(proxy: FaultProxy, channel: str) -> None:
    """X03: a narrow link is not filled without limit, and publishing stays quick."""
    bus = through(proxy, channel, probe_timeout=8.0, outbox=2000)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
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
        await ear.wait_for(note(19_999, "x" * 500))


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
        assert isinstance(server, LocalServer)
        bus = bus_on(server, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            subprocess.run([sys.executable, "-c", _FLOOD, server.url, channel], check=True, timeout=LIMIT)  # noqa: ASYNC221
            assert "Slow Consumer" in server.log.read_text("utf-8")
            await until(lambda: bus.stats().reconnects == 1)
            await proven(bus, ear, start=2_000_000)
            assert ear.gaps >= 1
            assert "did not come back" not in (bus.stats().last_error or "")


async def test_strange_bodies_are_skipped(each_server: Server, channel: str) -> None:
    """X04: on NATS any bytes can stand on the channel, and headers beside them."""
    bad = [b"", b"hello", b"\xff\xfe\x00", b'{"method":', b"[]", b"null", b'{"method":1}', b"[" * 100_000]
    bus = bus_on(each_server, channel)
    async with bus, listening(bus) as ear, witness("nats", each_server.url, channel) as seen:
        for body in bad:
            await seen.publish(body)
        await seen._client.publish(channel, note(1).encode(), headers={"a": "b"})
        await seen.publish(note(2).encode())
        await ear.wait_for(note(1), note(2))
        assert ear.numbers == [1, 2]
        assert bus.stats().malformed >= len(bad) - 1
        assert bus.stats().reconnects == 0


async def test_connections_that_came_to_nothing_leave_nothing_behind(proxy: FaultProxy, channel: str) -> None:
    """In every state of an outage: refused, silent, cut in the handshake."""
    gc.collect()
    bus = through(proxy, channel, connect_timeout=0.2)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        await proxy.blackhole(new="accept")
        await until(lambda: "no answer within" in (bus.stats().last_error or ""))
        await proxy.refuse()
        await until(lambda: "closed" in (bus.stats().last_error or "") or "reset" in (bus.stats().last_error or ""))
        await proxy.restore()
        await proven(bus, ear, start=2_000_000)
        await until(lambda: proxy.connections == 1)
    await settled()
    await until(lambda: links_to(proxy.port) == 0)
    await until(lambda: proxy.connections == 0)


async def test_attempt_that_is_cut_off_begins_with_another_server_next_time(
    each_server: Server, proxy: FaultProxy, channel: str
) -> None:
    """Where the first of the servers swallows all the time that an attempt has."""
    await proxy.blackhole(new="accept")
    urls = [f"nats://{proxy.host}:{proxy.port}", each_server.url]
    bus = bus_on(urls, channel, connect_timeout=60.0, dont_randomize=True)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
