"""The harnesses that are made already."""

import anyio
import pytest

from notification_bus import BusURLError, MemoryBus
from notification_bus.testing import BrokerHarness, Capabilities, FaultProxy, MemoryHarness, describe, url_harness
from notification_bus.testing.harnesses import replace_address
from tests.kit.simulated import SimulatedBroker, SimulatedLink


def test_a_harness_from_a_url_has_small_sizes_and_says_so() -> None:
    harness = url_harness(
        "redis://user:secret@localhost?buffer=7&channel=elsewhere&probe_timeout=2&db=3", max_body=1000
    )
    assert "buffer=7" in harness.url
    assert "outbox=64" in harness.url
    assert "db=3" in harness.url
    assert "channel" not in harness.url
    capabilities = harness.capabilities
    assert (capabilities.buffer, capabilities.outbox, capabilities.max_body) == (7, 64, 1000)
    assert capabilities.liveness == pytest.approx(0.5 + 2 * 2 + 0.2)
    assert harness.child == harness.url


def test_a_harness_for_memory_is_that_of_the_memory_bus() -> None:
    harness = url_harness("memory://")
    assert harness.capabilities == MemoryHarness.capabilities
    assert isinstance(harness.build("kit"), MemoryBus)
    assert harness.link() is None
    assert harness.child is None


def test_every_link_is_a_proxy_of_its_own_and_an_instance_goes_through_it() -> None:
    opened: list[str] = []

    def build(url: str, channel: str) -> MemoryBus:
        opened.append(url)
        return MemoryBus(channel)

    harness = BrokerHarness(
        "redis://user:pa%40ss@broker.invalid/3?x=1", capabilities=Capabilities(buffer=1), build=build
    )

    async def main() -> None:
        first, second = harness.link(), harness.link()
        assert first is not None
        assert second is not None
        async with first as one, second as two:
            assert isinstance(one, FaultProxy)
            assert isinstance(two, FaultProxy)
            assert one.port != two.port
            async with harness.instance("kit", one):
                pass
            async with harness.instance("kit"):
                pass
            assert opened == [f"redis://user:pa%40ss@127.0.0.1:{one.port}/3?x=1", harness.url]
            with pytest.raises(TypeError, match="SimulatedLink"):
                async with harness.instance("kit", SimulatedLink(SimulatedBroker())):
                    pass

    anyio.run(main)


def test_a_url_whose_port_nobody_knows_is_refused() -> None:
    harness = BrokerHarness("other://broker.invalid", capabilities=Capabilities(buffer=1))
    with pytest.raises(ValueError, match="names no port"):
        harness.link()
    with pytest.raises(BusURLError):
        harness.build("kit")


@pytest.mark.parametrize(
    ("url", "replaced"),
    [
        ("redis://localhost", "redis://127.0.0.1:1"),
        (
            "postgresql://me:pa%40ss@[::1]:5432/db?sslmode=disable",
            "postgresql://me:pa%40ss@127.0.0.1:1/db?sslmode=disable",
        ),
    ],
)
def test_replacing_the_address_keeps_everything_else(url: str, replaced: str) -> None:
    assert replace_address(url, "127.0.0.1", 1) == replaced


def test_a_description_names_the_bus_the_broker_and_what_can_be_done_to_them() -> None:
    header = describe(
        BrokerHarness("x://y:1", capabilities=Capabilities(buffer=1), build=lambda _, c: MemoryBus(c), broker="y 2")
    )
    assert header.bus.startswith("notification_bus.memory.MemoryBus 0.")
    assert header.broker == "y 2"
    assert header.faults == "delay, stall, blackhole, cut, refuse"
    assert header.hooks == "link, child, build"
    assert "broker: y 2" in header.lines()
