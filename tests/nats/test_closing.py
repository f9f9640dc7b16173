"""Closing: within its bound in every state, once and for all, and nothing left: the rule of bounded closing."""

from collections.abc import AsyncIterator
from time import monotonic

import pytest

from notification_bus.testing._proxy import FaultProxy
from tests.brokers import Provider, Server, Tls, certificates, witness
from tests.brokers._listener import links_to, listening, note, proven
from tests.nats.helpers import QUICK, bus_on, settled, until

BOUND = QUICK["close_timeout"] + 0.5


@pytest.fixture
async def proxy(each_server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(each_server.host, each_server.port) as proxy:
        yield proxy


async def test_burst_on_a_slow_link_is_not_lost_by_closing(
    proxy: FaultProxy, each_server: Server, channel: str
) -> None:
    """A socket that is closed while its own echo still comes in is reset, and takes with it what it had sent."""
    count = 1500
    async with witness("nats", each_server.url, channel) as seen:
        async with bus_on(f"nats://{proxy.host}:{proxy.port}", channel, close_timeout=30.0, probe_timeout=30.0) as bus:
            await bus.wait_ready()
            await proxy.throttle(1_000_000)
            for number in range(count):
                await bus.publish(note(number, "x" * 1000))
        await until(lambda: sum(b"bus/probe" not in body for body in seen.bodies) == count)


async def test_closing_over_tls_does_not_wait_for_the_peers_farewell(
    brokers: Provider, channel: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import ssl

    pem: Tls = certificates(tmp_path_factory.mktemp("pem"))
    with brokers.dedicated("nats", tls=pem) as server:
        bus = bus_on(server, channel, tls=ssl.create_default_context(cafile=pem.ca))
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.freeze()
            began = monotonic()
        assert monotonic() - began < BOUND
        assert links_to(server.port) == 0
        server.thaw()
        await settled(0.2)
