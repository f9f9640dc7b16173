"""What the simulated broker can do and no check of the kit asks for, with the two correct buses that run on it."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from notification_bus import GAP, BusNotification, BusNotReadyError, OpenableBus
from notification_bus.testing import FaultProxy
from tests.kit import simulated_bus
from tests.kit.gallery import MUTANTS, ReferenceBus, find_bus, gallery_harness
from tests.kit.gallery import child as gallery_child
from tests.kit.gallery.mutant import broken
from tests.kit.simulated import SimulatedBroker, SimulatedHarness
from tests.kit.simulated.bridge import listen

BOUND = 10.0
HARNESSES: dict[str, Callable[[], SimulatedHarness]] = {
    "reference": gallery_harness,
    "broker bus": simulated_bus.harness,
}


@pytest.fixture(params=HARNESSES)
def harness(request: pytest.FixtureRequest) -> SimulatedHarness:
    return HARNESSES[request.param]()


async def read_until(stream: AsyncIterator[BusNotification], wanted: BusNotification) -> list[BusNotification]:
    """Everything up to that one."""
    found: list[BusNotification] = []
    with anyio.fail_after(BOUND):
        async for notification in stream:
            found.append(notification)
            if notification == wanted:
                break
    return found


async def test_what_the_broker_refuses_is_warned_of_and_followed_by_a_gap(
    harness: SimulatedHarness, caplog: pytest.LogCaptureFixture
) -> None:
    refused, later = BusNotification("refused"), BusNotification("later")
    async with (
        harness.link() as link,
        harness.instance("c", link) as bus,
        harness.instance("c") as peer,
        peer.subscribe() as stream,
        bus.subscribe(),
    ):
        await link.deny()
        await bus.publish(refused)
        with anyio.fail_after(BOUND):
            while not any(getattr(r, "notification_bus_event", "") == "dropped:refused" for r in caplog.records):
                await checkpoint()
        await link.restore()
        await bus.publish(later)
        found = await read_until(stream, later)
        assert refused not in found
        assert GAP in found[:-1]
    assert harness.simulated.connections == 0


async def test_what_cannot_be_made_ready_raises_with_the_cause(harness: SimulatedHarness) -> None:
    async with harness.link() as link:
        await link.refuse()
        async with harness.instance("c", link) as bus:
            with pytest.raises(BusNotReadyError, match="refuses connections"):
                await cast("OpenableBus", bus).wait_ready(0.2)
    assert harness.simulated.connections == 0


async def test_a_warning_is_logged_once_for_an_outage(
    harness: SimulatedHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.link() as link, harness.instance("c", link) as bus, bus.subscribe():
        with caplog.at_level(logging.WARNING):
            tried = link.attempts
            await link.refuse()
            with anyio.fail_after(BOUND):
                while link.attempts < tried + 5:
                    await checkpoint()
            # One that the connection was lost, and one that it cannot be made.
            assert 1 <= len([r for r in caplog.records if r.levelno == logging.WARNING]) <= 2


async def test_a_link_of_another_kind_is_refused(harness: SimulatedHarness) -> None:
    with pytest.raises(TypeError, match="FaultProxy"):
        async with harness.instance("c", FaultProxy("127.0.0.1", 1)):
            pass


async def test_a_child_process_finds_its_harness_by_a_name_with_the_port() -> None:
    broker = SimulatedBroker()
    other = getattr(gallery_child, f"EmitsNaN_at_{listen(broker)}")
    async with other.instance("c") as bus, bus.subscribe() as stream:
        assert type(bus) is MUTANTS["EmitsNaN"].bus
        hello = BusNotification("hello")
        found: list[BusNotification] = []
        with anyio.fail_after(BOUND):
            while not found:  # a bridge takes its time to stand
                await broker.inject("c", hello.encode())
                with anyio.move_on_after(0.05):
                    found += await read_until(stream, hello)
        assert found == [hello]


def test_only_names_with_a_port_are_found_in_the_module_for_child_processes() -> None:
    assert not hasattr(gallery_child, "ReferenceBus")


def test_a_bus_is_found_by_its_name() -> None:
    assert find_bus("ReferenceBus") is ReferenceBus
    assert find_bus("EmitsNaN") is MUTANTS["EmitsNaN"].bus
    with pytest.raises(KeyError):
        find_bus("Unheard")


def test_two_broken_buses_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two broken buses are named EmitsNaN"):
        broken("a row", check="deliver.echo", fragment="x")(type("EmitsNaN", (ReferenceBus,), {}))
