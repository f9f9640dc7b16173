"""Two correct buses on a hub pass the whole kit, and more: what fails on a broken one is not the kit's mistake."""

import logging
from collections.abc import AsyncIterator
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from notification_bus import GAP, BusNotification, BusNotReadyError, OpenableBus
from notification_bus.testing import FaultProxy, Timing
from notification_bus.testing.contract import BusContract
from tests.kit.gallery import ReferenceBus
from tests.kit.harness import HubHarness
from tests.kit.hub import HubBus

BOUND = 10.0
TIMING = Timing(outage=0.5, silence=0.02)
"""Nothing here has a client library whose patience must be outlasted, and nothing is carried later than at once."""


class TestReferenceBus(BusContract):
    strict = True
    backends = ("asyncio", "trio")
    timing = TIMING

    @pytest.fixture
    def harness(self) -> HubHarness:
        return HubHarness()


class TestBrokerBus(BusContract):
    strict = True
    backends = ("asyncio", "trio")
    timing = TIMING

    @pytest.fixture
    def harness(self) -> HubHarness:
        return HubHarness(HubBus)


# What no check of the kit asks for


@pytest.fixture(params=[ReferenceBus, HubBus])
def harness(request: pytest.FixtureRequest) -> HubHarness:
    return HubHarness(request.param)


async def read_until(stream: AsyncIterator[BusNotification], wanted: BusNotification) -> list[BusNotification]:
    """Everything up to that one."""
    found: list[BusNotification] = []
    with anyio.fail_after(BOUND):
        async for notification in stream:
            found.append(notification)
            if notification == wanted:
                break
    return found


def _event(record: logging.LogRecord) -> str:
    event: str = getattr(record, "notification_bus_event", "")
    return event


def _was_refused(bus: object) -> bool:
    """Whether nothing that was published waits or is being sent."""
    if isinstance(bus, ReferenceBus):
        return not (bus.outbox or bus.sending)
    assert isinstance(bus, HubBus)
    return bus.stats().dropped.get("refused") == 1


async def test_what_the_broker_refuses_is_warned_of_and_followed_by_a_gap(
    harness: HubHarness, caplog: pytest.LogCaptureFixture
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
            # A refused probe is warned of as well, perhaps before this notification has been sent.
            while not (_was_refused(bus) and "dropped:refused" in [_event(record) for record in caplog.records]):
                await checkpoint()
        await link.restore()
        await bus.publish(later)
        found = await read_until(stream, later)
        assert refused not in found
        assert GAP in found[:-1]
    assert harness.hub.connections == 0


async def test_what_cannot_be_made_ready_raises_with_the_cause(harness: HubHarness) -> None:
    async with harness.link() as link:
        await link.refuse()
        async with harness.instance("c", link) as bus:
            with pytest.raises(BusNotReadyError, match="refuses connections"):
                await cast("OpenableBus", bus).wait_ready(0.2)
    assert harness.hub.connections == 0


async def test_a_warning_is_logged_once_for_an_outage(harness: HubHarness, caplog: pytest.LogCaptureFixture) -> None:
    async with harness.link() as link, harness.instance("c", link) as bus, bus.subscribe():
        with caplog.at_level(logging.WARNING):
            tried = link.attempts
            await link.refuse()
            with anyio.fail_after(BOUND):
                while link.attempts < tried + 5:
                    await checkpoint()
            # One that the connection was lost, and one that it cannot be made.
            assert 1 <= len([r for r in caplog.records if r.levelno == logging.WARNING]) <= 2


async def test_a_link_of_another_kind_is_refused(harness: HubHarness) -> None:
    with pytest.raises(TypeError, match="FaultProxy"):
        async with harness.instance("c", FaultProxy("127.0.0.1", 1)):
            pass
