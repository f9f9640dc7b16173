"""A harness with no code to write: a bus that has a `connect` gets every hook of the kit."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Unpack

import anyio
import pytest

from notification_bus import BrokerBus, BrokerConnection, MemoryBus, SendRefusedError
from notification_bus.options import OptionValues
from notification_bus.testing import (
    CHECKS,
    FaultProxy,
    Harness,
    Link,
    examine_harness,
    memory_harness,
    run_check,
)
from notification_bus.testing.harness import DeafLink
from notification_bus.testing.harnesses import ConnectionWire, broker_bus_harness
from notification_bus.testing.specs import SpecError, load_harness
from tests.kit.hub import Hub, HubBus

HUB = Hub(max_body=8192)
HARNESS = memory_harness()
NUMBER = 7
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def make_bus(channel: str, **options: Unpack[OptionValues]) -> HubBus:
    """A bus on a hub with which nothing is ever wrong: every fault is the harness's."""
    return HubBus(HUB, channel, **options)


def make_harness() -> Harness:
    return HARNESS


class OwnHarness(Harness):
    capabilities = HARNESS.capabilities

    def build(self, channel: str, link: Link | None = None) -> MemoryBus:
        return MemoryBus(channel)


def breaks() -> Harness:
    raise RuntimeError("no licence")


# What it is made of


def test_its_capabilities_are_those_of_the_bus_that_it_builds() -> None:
    harness = broker_bus_harness(make_bus)
    capabilities = harness.capabilities
    assert (capabilities.buffer, capabilities.outbox, capabilities.max_body) == (32, 64, 8192)
    assert capabilities.backends == ("asyncio", "trio")
    assert capabilities.drop_logger == "notification_bus.hub"
    assert capabilities.end_to_end
    assert harness.broker == "hub://"


def test_a_function_that_takes_no_options_is_believed_about_its_own() -> None:
    def build(channel: str) -> HubBus:
        return HubBus(HUB, channel, buffer=99)

    assert broker_bus_harness(build).capabilities.buffer == 99


class Small(BrokerConnection):
    max_body = 100


class SmallBus(BrokerBus):
    async def connect(self) -> Small:
        raise ConnectionError


def test_the_limit_is_that_of_the_connection_class_unless_it_is_given() -> None:
    def build(channel: str) -> SmallBus:
        return SmallBus("small://", channel=channel)

    assert broker_bus_harness(build).capabilities.max_body == 100
    assert broker_bus_harness(build, max_body=50).capabilities.max_body == 50


def test_another_process_finds_a_function_of_a_module_and_no_other() -> None:
    assert broker_bus_harness(make_bus).child == f"{__name__}:make_bus"

    def inner(channel: str) -> HubBus:
        return make_bus(channel)

    assert broker_bus_harness(inner).child is None
    assert broker_bus_harness(make_bus, child="mine:harness").child == "mine:harness"


def takes_nothing() -> None:
    """No bus."""


def wants_more(url: str, channel: str) -> None:
    """No bus."""


def gives_text(channel: str) -> str:
    return channel


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (takes_nothing, "takes no keyword `channel`"),
        (wants_more, "wants url besides a channel: give a function that knows"),
        (gives_text, "built a str, which is not a BrokerBus: write a harness"),
    ],
)
def test_what_builds_no_bus_is_refused(build: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        broker_bus_harness(build)


# What it does


@BACKENDS
def test_it_does_what_it_says(backend: str) -> None:
    """A child builds the same bus, on a broker of its own here, which is in its memory: so only its start is seen."""
    examination = examine_harness(broker_bus_harness(make_bus), backend=backend)
    assert not examination.faults
    assert examination.obstacle is None


@BACKENDS
@pytest.mark.parametrize(
    "check", [id_ for id_, c in CHECKS.items() if "process" not in c.needs and "backs_off" not in id_]
)
def test_a_bus_that_keeps_the_contract_passes_on_it(backend: str, check: str) -> None:
    result = run_check(check, broker_bus_harness(make_bus), backend=backend)
    assert result.outcome == "passed", result.reason


class Forgetful(HubBus):
    """Receives nothing on any connection but its first, which only an outage shows."""

    connected = 0

    async def connect(self) -> BrokerConnection:
        self.connected += 1
        connection = await super().connect()
        if self.connected > 1:
            connection.receive = self.silence  # type: ignore[method-assign]
        return connection

    async def silence(self) -> AsyncGenerator[Sequence[bytes]]:
        await anyio.sleep_forever()
        yield ()


def test_an_adapter_that_breaks_its_promise_fails_on_it() -> None:
    def build(channel: str, **options: Unpack[OptionValues]) -> Forgetful:
        return Forgetful(HUB, channel, **options)

    result = run_check("reconnect.survives_cut_both_ways", broker_bus_harness(build))
    assert result.outcome == "failed"
    assert "after its connections were cut an instance receives again" in result.reason


def test_its_link_can_be_made_deaf_and_leads_only_its_own() -> None:
    async def main() -> None:
        harness = broker_bus_harness(make_bus)
        first, second = harness.link(), harness.link()
        assert first is not None
        assert second is not None
        async with first as link, second as other:
            assert isinstance(link, DeafLink)
            async with harness.instance("kit-link", link) as bus, bus.subscribe():
                assert (link.attempts, other.attempts) == (1, 0)
            with pytest.raises(TypeError, match="links of its own, and was given a FaultProxy"):
                async with harness.instance("kit-link", FaultProxy("127.0.0.1", 1)):
                    pass

    anyio.run(main)


# Its wire


class Refusing(Small):
    async def send(self, bodies: Sequence[bytes]) -> None:
        raise SendRefusedError("too large")

    async def receive(self) -> AsyncGenerator[Sequence[str]]:
        yield ["a text"]
        await anyio.sleep_forever()

    async def aclose(self) -> None:
        pass


class RefusingBus(BrokerBus):
    async def connect(self) -> Refusing:
        return Refusing()


@BACKENDS
def test_what_the_broker_refuses_cannot_be_injected_and_text_is_bytes(backend: str) -> None:
    async def main() -> None:
        def make(channel: str) -> RefusingBus:
            return RefusingBus("refusing://", channel=channel)

        wire = ConnectionWire(make)
        with pytest.raises(ValueError, match="too large"):
            await wire.inject("kit-wire", b"body")
        async with wire.observe("kit-wire") as observed:
            with anyio.fail_after(5):
                while not observed.bodies:
                    await anyio.sleep(0.001)
        assert observed.bodies == [b"a text"]

    anyio.run(main, backend=backend)


# From its name


@pytest.mark.parametrize(
    ("name", "bus"),
    [("HARNESS", MemoryBus), ("make_harness", MemoryBus), ("make_bus", HubBus), ("OwnHarness", MemoryBus)],
)
def test_a_name_leads_to_a_harness_or_to_what_makes_one(name: str, bus: type) -> None:
    assert isinstance(load_harness(f"{__name__}:{name}").build("kit"), bus)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("harness", "is not of the form package.module:name"),
        ("no_such_module:harness", "there is no module 'no_such_module'"),
        ("notification_bus.no_such_module:harness", "there is no module 'notification_bus.no_such_module'"),
        (f"{__name__}:HARNES", "there is no 'HARNES' in .*; there is HARNESS, make_bus, OwnHarness, SmallBus"),
        (f"{__name__}:HARNESS.nothing", "there is no 'nothing'"),
        (f"{__name__}:NUMBER", "is a int, which is not a `notification_bus.testing.Harness`"),
        (f"{__name__}:breaks", "cannot be made a harness: RuntimeError: no licence"),
        ("notification_bus.memory:MemoryBus", "is not a harness: calling it gave a MemoryBus"),
        ("notification_bus:BrokerBus", "wants address besides a channel"),
    ],
)
def test_a_name_that_leads_nowhere_says_where_it_ended(spec: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        load_harness(spec)


def test_an_error_in_the_module_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("import no_such_library", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match="importing broken_module failed: ModuleNotFoundError: No module named 'no_s"):
        load_harness("broken_module:harness")
