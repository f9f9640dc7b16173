"""Outages: the stream outlives them, nothing comes twice, and a broker that is away is not hammered."""

import time
from typing import Final

from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.harness import Link
from notification_bus.testing.pump import Pump
from notification_bus.testing.traffic import (
    ECHO,
    HEALTHY,
    drive_until_heard,
    duplicates,
    publish_paced,
    settle,
    shown,
)

_DELAY: Final = 0.03
"""Seconds each way: long enough to break a connection between a send and its answer."""

_PAUSE: Final = 0.25
"""Seconds between two cuts where the first seems to have met nothing."""

_RATE: Final = 20
"""Attempts a second that are still bounded, beside some at the beginning. A loop that does not wait makes thousands."""


def _expect_alive(kit: Context, pump: Pump) -> None:
    kit.expect(pump.alive, "a stream neither ends nor raises because of the broker", pump)


async def _cut_until_noticed(kit: Context, link: Link) -> None:
    """Cut, until another connection is tried: one that is only just being made is not there to be cut."""
    tried = link.attempts
    deadline = time.monotonic() + kit.timing.wait
    while link.attempts == tried:
        kit.expect(
            time.monotonic() < deadline,
            "an instance whose connection is gone makes another",
            "it does not try to connect",
        )
        await link.cut()
        await kit.comes_true(lambda: link.attempts > tried, _PAUSE)


@check("reconnect.survives_cut_both_ways", "MUST", "never_ends", needs={"cut", "two"})
async def reconnect_survives_cut_both_ways(kit: Context) -> None:
    """After its connections were cut an instance receives and publishes again, on the same stream."""
    async with (
        kit.link() as link,
        kit.instance(link=link) as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription of the instance that was cut") as pump_here,
        kit.subscribed(there, "the peer's subscription") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        for _ in range(2):
            for bus in (here, there):
                await publish_paced(kit, bus, 2, pumps, HEALTHY)
            await _cut_until_noticed(kit, link)
            await drive_until_heard(kit, there, pumps, "after its connections were cut an instance receives again")
            await drive_until_heard(
                kit, here, pumps, "after its connections were cut an instance's publishing arrives again"
            )
            _expect_alive(kit, pump_here)


@check("reconnect.survives_long_outage_with_backoff", "MUST", "reconnect", needs={"cut", "two"})
async def reconnect_survives_long_outage_with_backoff(kit: Context) -> None:
    """After an outage longer than any client's own patience, the same stream goes on."""
    async with (
        kit.link() as link,
        kit.instance(link=link) as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription that had the outage") as pump_here,
        kit.subscribed(there, "the peer's subscription") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        await publish_paced(kit, there, 2, pumps, HEALTHY)
        tried = link.attempts
        await link.refuse()
        began = time.monotonic()
        # At least so long, and at least so many attempts, so that no limit of either kind hides.
        await kit.until(
            lambda: link.attempts >= tried + 4 and time.monotonic() - began >= kit.timing.outage * kit.scale,
            "an instance whose broker is away tries again and again, for ever",
            lambda: f"it tried {link.attempts - tried} times; {pump_here}",
            within=kit.timing.outage * kit.scale + kit.timing.wait * 2,
        )
        _expect_alive(kit, pump_here)
        await link.restore()
        promised = "after a long outage the same stream goes on"
        await drive_until_heard(kit, there, pumps, promised, within=kit.timing.wait * 2)
        await drive_until_heard(
            kit, here, pumps, "after a long outage publishing works again", within=kit.timing.wait * 2
        )


@check("reconnect.backs_off", "SHOULD", "reconnect", needs={"cut"})
async def reconnect_backs_off(kit: Context) -> None:
    """While the broker is away connections are tried again at a bounded rate."""
    async with kit.link() as link, kit.instance(link=link) as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], ECHO)
        tried = link.attempts
        await link.refuse()
        began = time.monotonic()
        await kit.comes_true(lambda: link.attempts - tried > 1000, kit.timing.outage)
        lasted = time.monotonic() - began
        attempts = link.attempts - tried
        allowed = 10 + _RATE * lasted
        kit.expect(
            attempts <= allowed,
            "while the broker is away, the tries to reach it become rarer",
            f"{attempts} connections were tried in {lasted:.2f} s, at most {allowed:.0f} are a bounded rate",
        )
        await link.restore()


@check("reconnect.no_replay_no_duplicates", "MUST", "at_most_once", needs={"cut", "delay", "two"})
async def reconnect_no_replay_no_duplicates(kit: Context) -> None:
    """Nothing arrives twice around reconnects, also when a connection breaks between a send and its answer."""
    promised = "nothing arrives twice, whatever happens to the connections"
    async with (
        kit.link() as link,
        kit.instance(link=link) as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription that was cut") as pump_here,
        kit.subscribed(there, "the peer's subscription") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        for bus in (here, there):
            await publish_paced(kit, bus, 3, pumps, HEALTHY)
        # Three times, the second and third time while it is still busy reconnecting.
        for _ in range(3):
            await _cut_until_noticed(kit, link)
            await kit.publish_numbered(here)
            await kit.publish_numbered(there)
        for bus in (here, there):
            await drive_until_heard(kit, bus, pumps, "after its connections were cut an instance is whole again")
        # Cut between a send and its answer: the peer has it already, so whoever sends again sends twice.
        for _ in range(2):
            await link.delay(_DELAY)
            number = await kit.publish_numbered(here)
            await kit.comes_true(lambda number=number: number in pump_there.numbers, kit.timing.wait)  # type: ignore[misc]
            await link.cut()
            await link.restore()
            await drive_until_heard(kit, here, pumps, "after its connections were cut an instance is whole again")
        await settle(kit, [here, there], pumps, "an instance that is whole again receives everything")
        for pump in pumps:
            twice = duplicates(pump.numbers)
            kit.expect(not twice, promised, f"{pump}; more than once came {shown(twice)}")


def liveness(kit: Context) -> float:
    """The stated time, and what a busy machine may add to it."""
    return (kit.capabilities.liveness or 0.0) * 1.5 + kit.promptly * 2


@check("reconnect.half_open_detected", "CAPABILITY", "reconnect", needs={"stall", "two"}, claim="liveness")
async def reconnect_half_open_detected(kit: Context) -> None:
    """A connection that died without a word is noticed and made anew within the stated time."""
    promised = f"a link that died without a word is noticed within `liveness` = {kit.capabilities.liveness} s"
    async with (
        kit.link() as link,
        kit.instance(link=link) as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription on the dead link") as pump_here,
        kit.subscribed(there, "the peer's subscription") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        await publish_paced(kit, here, 2, pumps, HEALTHY)
        tried = link.attempts
        await link.blackhole()
        # In silence first: nothing that anybody publishes may be needed for it to be noticed.
        await kit.until(lambda: link.attempts > tried, promised, "no new connection was tried", within=liveness(kit))
        await drive_until_heard(kit, there, [pump_here], f"{promised}, and receiving goes on")
        await drive_until_heard(kit, here, [pump_there], f"{promised}, and publishing goes on")
        _expect_alive(kit, pump_here)
