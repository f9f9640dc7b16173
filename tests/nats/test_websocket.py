"""`ws://` and `wss://`: the same bus over another transport."""

import ssl
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from notification_bus import BusNotReadyError, open_bus
from notification_bus.testing._proxy import FaultProxy
from tests.brokers import LocalServer, Provider, Tls, certificates, free_port, is_process
from tests.brokers._listener import links_to, listening, note, proven
from tests.nats.helpers import QUICK, bus_on, settled, until

pytestmark = [
    pytest.mark.skipif(find_spec("aiohttp") is None, reason="pip install 'notification-bus-nats[aiohttp]'"),
    # It is nats-py that passes it.
    pytest.mark.filterwarnings("ignore:parameter 'timeout' of type:DeprecationWarning"),
]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def ws_server(brokers: Provider, flavour: str, port: int) -> Iterator[LocalServer]:
    text = f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}\nauthorization {{ token: secret }}"
    with brokers.dedicated("nats", flavour, text=text) as server:
        assert is_process(server)
        yield server


async def test_bus_works_over_a_websocket(ws_server: LocalServer, port: int, channel: str) -> None:
    bus = bus_on(f"ws://secret@127.0.0.1:{port}", channel)
    async with bus, listening(bus) as ear:
        for number in range(1000):
            await bus.publish(note(number, "x" * 500))
        await ear.wait_for(note(999, "x" * 500))
        assert ear.numbers == list(range(1000))
    await settled(0.2)


async def test_encrypted_websocket_is_reached_with_the_authority(
    brokers: Provider, flavour: str, port: int, channel: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pem: Tls = certificates(tmp_path_factory.mktemp("pem"))
    tls = f'tls {{ cert_file: "{pem.cert}", key_file: "{pem.key}" }}'
    with brokers.dedicated("nats", flavour, text=f"websocket {{ listen: 127.0.0.1:{port}, {tls} }}"):
        for bus in (
            open_bus(f"wss://127.0.0.1:{port}?channel={channel}&tls_ca_file={pem.ca}"),
            bus_on(f"wss://127.0.0.1:{port}", channel, tls=ssl.create_default_context(cafile=pem.ca)),
        ):
            async with bus, listening(bus) as ear:
                await bus.publish(note(1))
                await ear.wait_for(note(1))
        untrusting = bus_on(f"wss://127.0.0.1:{port}", channel)
        async with untrusting:
            with pytest.raises(BusNotReadyError, match="tls_ca_file"):
                await untrusting.wait_ready(1)
    await settled(0.2)


async def test_restart_behind_a_websocket_is_survived(ws_server: LocalServer, port: int, channel: str) -> None:
    bus = bus_on(f"ws://secret@127.0.0.1:{port}", channel)
    async with bus, listening(bus) as ear:
        for outage in range(1, 3):
            await proven(bus, ear, start=outage * 1_000_000)
            ws_server.kill()
            await until(lambda: "nothing listens there" in (bus.stats().last_error or ""))
            ws_server.restart()
        await proven(bus, ear, start=5_000_000)
        assert ear.gaps >= 2
    await settled(0.2)


@pytest.mark.parametrize("fault", ["blackhole", "cut", "fin"])
async def test_broken_websocket_is_left_within_the_bound_and_closed(
    ws_server: LocalServer, port: int, channel: str, fault: str
) -> None:
    async with FaultProxy("127.0.0.1", port) as proxy:
        bus = bus_on(f"ws://secret@{proxy.host}:{proxy.port}", channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            await getattr(proxy, fault)()
            for number in range(300):
                await bus.publish(note(number, "x" * 4000))
            limit = QUICK["probe_interval"] + QUICK["probe_timeout"] + 2
            await until(lambda: bus.stats().reconnects == 1, limit)
            await proven(bus, ear, start=2_000_000)
            await until(lambda: proxy.connections == 1)
        await settled(0.5)
        await until(lambda: links_to(proxy.port) == 0)
        await until(lambda: proxy.connections == 0)


async def test_wrong_token_over_a_websocket_is_said(ws_server: LocalServer, port: int, channel: str) -> None:
    bus = bus_on(f"ws://Wr0ng@127.0.0.1:{port}", channel)
    async with bus:
        with pytest.raises(BusNotReadyError, match="uthorization") as caught:
            await bus.wait_ready(1)
    assert "Wr0ng" not in str(caught.value)
    await settled(0.2)
