"""The harnesses that are made already."""

from functools import partial

import anyio
import pytest

from notification_bus import BusURLError, MemoryBus
from notification_bus.testing import (
    Capabilities,
    FaultProxy,
    FaultyLink,
    Harness,
    describe,
    memory_harness,
    url_harness,
)
from notification_bus.testing.harness import DeafLink
from notification_bus.testing.harnesses import ConnectionWire, replace_address
from notification_bus_redis import RedisBus


class Addressed(MemoryBus):
    """A bus that notes by which URL it was opened."""

    def __init__(self, opened: list[str], url: str) -> None:
        opened.append(url)
        super().__init__("kit")


def test_a_harness_from_a_url_has_small_sizes_and_says_so() -> None:
    harness = url_harness(
        "redis://user:secret@localhost?buffer=7&channel=elsewhere&probe_timeout=2&db=3", max_body=1000
    )
    assert harness.child is not None
    assert "buffer=7" in harness.child
    assert "outbox=64" in harness.child
    assert "db=3" in harness.child
    assert "channel" not in harness.child
    capabilities = harness.capabilities
    assert (capabilities.buffer, capabilities.outbox, capabilities.max_body) == (7, 64, 1000)
    assert capabilities.liveness == pytest.approx(0.5 + 2 * 2 + 0.2)
    assert harness.broker == "redis://localhost"


def test_a_harness_for_memory_is_that_of_the_memory_bus() -> None:
    harness = url_harness("memory://")
    assert harness.capabilities == memory_harness().capabilities
    assert isinstance(harness.build("kit"), MemoryBus)
    assert harness.link() is None
    assert harness.child is None


def test_every_link_is_a_proxy_of_its_own_and_an_instance_goes_through_it() -> None:
    opened: list[str] = []
    harness = url_harness(
        "redis://user:pa%40ss@broker.invalid/3?x=1",
        opener=partial(Addressed, opened),
        capabilities=Capabilities(buffer=1),
    )
    opened.clear()

    async def main() -> None:
        first, second = harness.link(), harness.link()
        assert first is not None
        assert second is not None
        async with first as one, second as two:
            assert isinstance(one, FaultProxy)
            assert isinstance(two, FaultProxy)
            assert not isinstance(one, DeafLink)
            assert one.port != two.port
            async with harness.instance("kit", one):
                pass
            async with harness.instance("kit"):
                pass
            for url, address in zip(opened, [f"127.0.0.1:{one.port}", "broker.invalid"], strict=True):
                assert url.startswith(f"redis://user:pa%40ss@{address}/3?")
                assert url.endswith("x=1&channel=kit")
            with pytest.raises(TypeError, match="FaultyLink"):
                async with harness.instance("kit", FaultyLink()):
                    pass

    anyio.run(main)


def test_another_process_opens_the_url_unless_only_a_function_of_this_one_can() -> None:
    capabilities = Capabilities(buffer=1)
    assert url_harness("other://broker.invalid:1", capabilities=capabilities).child == "other://broker.invalid:1"
    own = url_harness("other://broker.invalid:1", opener=partial(Addressed, []), capabilities=capabilities)
    assert own.child is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("other://broker.invalid", "names no port"),
        ("redis://one:1,two:2", "names several hosts"),
        ("unix:///run/redis.sock", "names no host and port"),
    ],
)
def test_a_url_to_which_no_proxy_can_lead_has_no_link(url: str, says: str) -> None:
    harness = url_harness(url, opener=partial(Addressed, []), capabilities=Capabilities(buffer=1))
    with pytest.raises(ValueError, match=says):
        harness.link()


def test_a_url_that_no_bus_is_known_for_is_refused() -> None:
    with pytest.raises(BusURLError, match="no bus is known for other://"):
        url_harness("other://broker.invalid")
    with pytest.raises(BusURLError, match="no bus is known for other://"):
        url_harness("other://broker.invalid", capabilities=Capabilities(buffer=1)).build("kit")


def test_a_bus_that_declares_nothing_is_taken_to_keep_what_every_bus_must() -> None:
    harness = url_harness("mine://broker.invalid:1", opener=partial(Addressed, []))
    assert harness.capabilities == Capabilities(buffer=1024, max_body=1_048_576, fifo=False, gaps=False, probes=False)
    assert harness.wire is None


def test_a_broker_bus_has_a_wire_of_its_own_connections_and_links_that_can_be_made_deaf() -> None:
    harness = url_harness("redis://localhost")
    assert isinstance(harness.wire, ConnectionWire)
    assert isinstance(harness.link(), DeafLink)
    own = ConnectionWire(lambda _: RedisBus("redis://localhost", channel="kit"))
    assert url_harness("redis://localhost", wire=own).wire is own
    assert url_harness("memory://").wire is None


# A harness that is constructed or subclassed


def test_a_harness_builds_starts_and_says_what_it_has() -> None:
    harness = Harness(MemoryBus, Capabilities(buffer=1024, has_broker=False))
    assert harness.hooks == ["build"]
    assert (harness.link(), harness.wire, harness.child, harness.broker) == (None, None, None, None)

    async def main() -> None:
        async with harness.instance("kit") as bus:
            assert isinstance(bus, MemoryBus)
            assert bus.channel == "kit"
            async with bus.subscribe():
                pass

    anyio.run(main)


def test_a_subclass_may_give_every_member_itself() -> None:
    class Own(Harness):
        capabilities = Capabilities(buffer=1)
        child = "mine:harness"
        broker = "mine 1"

        def build(self, channel: str, link: object = None) -> MemoryBus:
            return MemoryBus(channel)

    assert Own().hooks == ["child", "build"]
    assert Own().broker == "mine 1"
    assert Own(child="other:harness").child == "other:harness"


def test_a_bus_that_is_not_entered_is_yielded_as_it_is() -> None:
    class Bare:
        publish = subscribe = None

    bus = Bare()
    harness = Harness(lambda _: bus, Capabilities(buffer=1))  # type: ignore[arg-type, return-value]

    async def main() -> None:
        async with harness.instance("kit") as yielded:
            assert yielded is bus  # type: ignore[comparison-overlap]

    anyio.run(main)


def test_a_harness_without_build_says_so() -> None:
    with pytest.raises(TypeError, match="was given no `build`"):
        Harness(capabilities=Capabilities(buffer=1)).build("kit")


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
    def build(url: str) -> MemoryBus:
        return MemoryBus("kit")

    header = describe(
        url_harness("x://y:1", opener=build, capabilities=Capabilities(buffer=1), broker="y 2", child="x://y:1")
    )
    assert header.bus.startswith("notification_bus.memory.MemoryBus 0.")
    assert header.broker == "y 2"
    assert header.faults == "delay, stall, blackhole, cut, refuse"
    assert header.hooks == "link, child, build"
    assert "broker: y 2" in header.lines()
