"""A client of the application's own: used, watched, never closed: issue 3, item 1."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client

from notification_bus import GAP, BusNotReadyError
from notification_bus.testing._proxy import FaultProxy
from notification_bus_nats import NatsBus
from tests.brokers import LocalServer, Provider, Server, witness
from tests.nats.helpers import QUICK, listening, note, proven, reload, settled, until
from tests.nats.test_permissions import ALL, as_user, config, deny


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncGenerator[Client]:
    """The application's client, which reconnects quickly."""

    async def quiet(_error: Exception) -> None:
        """Its owner's business."""

    client = Client()
    settings: dict[str, Any] = {"reconnect_time_wait": 0.05, "max_reconnect_attempts": -1, **options}
    await client.connect(url, error_cb=quiet, **settings)
    try:
        yield client
    finally:
        await client.close()


def bus_of(client: Client, channel: str, **options: Any) -> NatsBus:
    return NatsBus(client, channel=channel, **{**QUICK, **options})


async def test_given_client_carries_the_bus_and_stays_open_afterwards(each_server: Server, channel: str) -> None:
    async with connected(each_server.url) as client:
        bus = bus_of(client, channel)
        for number in range(2):
            async with bus, listening(bus) as ear, witness("nats", each_server.url, channel) as seen:
                await bus.publish(note(number))
                await ear.wait_for(note(number))
                await seen.wait_for(1)
        assert client.is_connected
        assert not client._subs
        assert "given client" in repr(bus)


async def test_two_buses_share_a_client(each_server: Server, channel: str) -> None:
    async with connected(each_server.url) as client:
        one, two = bus_of(client, channel), bus_of(client, channel)
        async with one, two, listening(one) as ear, listening(two) as other:
            for number in range(500):
                await one.publish(note(number))
            for heard in (ear, other):
                await heard.wait_for(note(499))
                assert heard.numbers == list(range(500))


async def test_connection_that_the_client_makes_anew_begins_with_a_gap(server: Server, channel: str) -> None:
    """Its own reconnecting would go unnoticed: the messages simply come again."""
    async with connected(server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            for outage in range(1, 4):
                await proven(bus, ear, start=2 * outage * 1_000_000)
                before = len(ear.heard)
                server.restart()
                await proven(bus, ear, start=(2 * outage + 1) * 1_000_000)
                assert ear.gaps == outage
                assert ear.heard[before].method.endswith("gap")
            assert len(ear.numbers) == len(set(ear.numbers))
            assert len(client._subs) == 1
            assert bus.stats().reconnects == 3


async def test_reconnecting_too_quick_to_be_seen_is_announced_before_what_follows(
    each_server: Server, channel: str
) -> None:
    """No message of the new connection is yielded before the gap."""
    async with (
        FaultProxy(each_server.host, each_server.port) as proxy,
        connected(f"nats://{proxy.host}:{proxy.port}", reconnect_time_wait=0) as client,
        witness("nats", each_server.url, channel) as seen,
    ):
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            await proxy.cut()
            number = 0
            while not ear.gaps:
                number += 1
                await seen.publish(note(number).encode())
            before = ear.heard[: ear.heard.index(GAP)]
            assert [heard for heard in before if heard.method == "test/note"] == []
            await proven(bus, ear, start=2_000_000)


async def test_outage_of_the_client_is_waited_for(server: Server, channel: str) -> None:
    """The bus hoards nothing in the client meanwhile, and delivers what its own outbox has kept."""
    async with connected(server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.kill()
            await until(lambda: not bus.stats().connected)
            for number in range(100):
                await bus.publish(note(number))
            assert client.pending_data_size < 10_000
            assert "given" in (bus.stats().last_error or "")
            server.restart()
            await ear.wait_for(note(99))
            assert [n for n in ear.numbers if n < 1000] == list(range(100))


async def test_closed_client_is_said_to_be_closed(nats_server: Server, channel: str) -> None:
    async with connected(nats_server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            await client.close()
            await until(lambda: "give another one" in (bus.stats().last_error or ""))
            with pytest.raises(BusNotReadyError, match="closed, and does not come back"):
                await bus.wait_ready(0.1)
    await settled()


async def test_client_that_was_never_connected_is_said_to_be(channel: str) -> None:
    bus = bus_of(Client(), channel)
    async with bus:
        with pytest.raises(BusNotReadyError, match="not connected"):
            await bus.wait_ready(0.3)


async def test_client_that_hears_nothing_of_its_own_is_refused(nats_server: Server, channel: str) -> None:
    async with connected(nats_server.url, no_echo=True) as client:
        bus = bus_of(client, channel)
        async with bus:
            with pytest.raises(BusNotReadyError, match="without no_echo"):
                await bus.wait_ready(0.3)


async def test_dead_link_of_the_client_is_noticed_and_closing_is_bounded(each_server: Server, channel: str) -> None:
    """Mending it is the client's: its pings find it after `ping_interval`, here a second."""
    async with (
        FaultProxy(each_server.host, each_server.port) as proxy,
        connected(f"nats://{proxy.host}:{proxy.port}", ping_interval=1, max_outstanding_pings=1) as client,
    ):
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            await proxy.blackhole()
            await until(lambda: not bus.stats().connected)
            await proven(bus, ear, start=2_000_000)
            assert ear.gaps >= 1
            await proxy.blackhole(new="accept")
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < QUICK["close_timeout"] + 0.5
        assert not client.is_closed


async def test_waiting_for_an_answer_that_comes_late_leaves_the_clients_reader_alive(
    each_server: Server, channel: str
) -> None:
    """A `flush` of nats-py's that is given up ends the client's reader when the PONG comes."""
    async with (
        FaultProxy(each_server.host, each_server.port) as proxy,
        connected(f"nats://{proxy.host}:{proxy.port}") as client,
    ):
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            await proxy.stall()
            await until(lambda: "no answer within" in (bus.stats().last_error or ""))
            await proxy.restore()
            await proven(bus, ear, start=2_000_000)
            assert client.stats["reconnects"] == 0


@pytest.mark.parametrize("denied", ["publish", "subscribe"])
async def test_what_the_client_is_not_allowed_is_said(
    brokers: Provider, flavour: str, channel: str, denied: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Although the errors of the connection go to the client's owner."""
    with brokers.dedicated("nats", flavour, text=config(deny(denied, subject=channel))) as server:
        assert isinstance(server, LocalServer)
        async with connected(as_user(server, "bus")) as client:
            bus = bus_of(client, channel)
            async with bus:
                await bus.publish(note(1))
                await until(lambda: f"not allowed to {denied}" in caplog.text, 5)
                reload(server, config(ALL))
                async with listening(bus) as ear:
                    await proven(bus, ear)


async def test_bodies_larger_than_the_clients_buffer_pass(each_server: Server, channel: str) -> None:
    async with connected(each_server.url) as client:
        bus = bus_of(client, channel, probe_timeout=10.0)
        async with bus, listening(bus) as ear:
            for number in range(20):
                await bus.publish(note(number, "x" * 900_000))
            await until(lambda: len(ear.heard) == 20)
            assert ear.numbers == list(range(20))


async def test_client_that_is_not_connected_is_given_nothing_to_keep(server: Server, channel: str) -> None:
    """N08: it would send it when it is late."""
    async with connected(server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.kill()
            await until(lambda: not client.is_connected)
            for number in range(100):
                await bus.publish(note(number))
            await until(lambda: not bus.stats().connected)
            await bus.publish(note(100))
            assert client.pending_data_size < 100
            server.restart()
            await ear.wait_for(note(100))
            # What the bus was about to send when it noticed is in doubt, and told of as such.
            assert ear.gaps >= 1


async def test_client_whose_buffer_is_full_is_given_no_more(server: Server, channel: str) -> None:
    """Beyond its own limit nats-py's `publish` would wait by itself, deaf to cancellation."""
    async with connected(server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.freeze()
            while client.pending_data_size < 1_200_000:
                await client.publish("other", bytes(100_000))
                await asyncio.sleep(0)
            held = client.pending_data_size
            await bus.publish(note(1, "x" * 1000))
            await until(lambda: not bus.stats().connected)
            assert client.pending_data_size < held + 1000
            server.thaw()
            await proven(bus, ear, start=2_000_000)


async def test_stuck_client_is_given_one_batch_at_most(server: Server, channel: str) -> None:
    """What it holds it sends when the link is well again, long after the gap that stands for it."""
    async with connected(server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.freeze()
            while client.pending_data_size < 200_000:
                await client.publish("other", bytes(100_000))
                await asyncio.sleep(0)
            held = client.pending_data_size
            for number in range(3000):
                await bus.publish(note(number, "x" * 100))
            await until(lambda: not bus.stats().connected)
            assert client.pending_data_size < held + 200 * 250
            server.thaw()
            await proven(bus, ear, start=2_000_000)


async def test_busy_client_carries_the_bus_beside_its_other_work(each_server: Server, channel: str) -> None:
    async with connected(each_server.url) as client:
        bus = bus_of(client, channel)
        async with bus, listening(bus) as ear:

            async def work() -> None:
                while True:
                    await client.publish("other", b"work")
                    await asyncio.sleep(0)

            working = asyncio.create_task(work())
            for number in range(1000):
                await bus.publish(note(number))
            await ear.wait_for(note(999))
            working.cancel()
            await asyncio.wait({working})
            assert bus.stats().reconnects == 0
