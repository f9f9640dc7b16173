"""A peer that dies in the middle of something."""

from notification_bus.notification import BusNotification
from notification_bus.testing._process import FLOOD
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.pump import Pump
from notification_bus.testing.traffic import HEALTHY, drive_until_heard, publish_paced


@check("crash.peer_killed", "MUST", "never_ends", needs={"process", "two"})
async def crash_peer_killed(kit: Context) -> None:
    """A peer killed in the middle of publishing harms nobody, and no half body is delivered."""
    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription of instance A") as pump_here,
        kit.subscribed(there, "the subscription of instance B") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        await publish_paced(kit, here, 2, pumps, HEALTHY)
        async with kit.child("flood") as child:
            await kit.until(
                lambda: all(len(_flood(pump)) >= 40 for pump in pumps),
                "what one process publishes reaches the subscriptions of another",
                lambda: f"{[len(_flood(pump)) for pump in pumps]} received of what a child process publishes; {child}",
            )
            await child.kill()
        # What the dead one left behind may fill a buffer; the survivors' words get through as soon as it is read.
        for bus in (here, there):
            await drive_until_heard(kit, bus, pumps, "after a peer was killed the others go on exchanging")
        for bus in (here, there):
            await publish_paced(kit, bus, 3, pumps, "after a peer was killed the others lose nothing")
        for pump in pumps:
            broken = [item for item in _flood(pump) if not _whole(item)]
            kit.expect(
                not broken, "what a killed peer published arrives whole or not at all", f"{pump}: {broken[:1]!r}"
            )
            kit.expect(pump.alive, "a killed peer ends nobody else's stream", pump)


def _flood(pump: Pump) -> list[BusNotification]:
    return [item for item in pump.items if isinstance(item, BusNotification) and item.method == FLOOD]


def _whole(notification: BusNotification) -> bool:
    params = notification.params or {}
    size, pad = params.get("size"), params.get("pad")
    return isinstance(size, int) and pad == "x" * size
