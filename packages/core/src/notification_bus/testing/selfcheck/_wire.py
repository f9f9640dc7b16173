"""The wire of a harness: it shows what is on the channel, and puts something there."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final

from notification_bus.notification import BusNotification
from notification_bus.testing.harness import Observed, Wire
from notification_bus.testing.pump import NUMBERED
from notification_bus.testing.selfcheck._desk import Desk
from notification_bus.testing.selfcheck._instances import Footing

__all__ = ["examine_wire"]

_FIRST: Final = 1_000_000
"""Numbers that nobody else says."""

_PAUSE: Final = 0.03


async def examine_wire(desk: Desk, footing: Footing) -> bool:
    """Look whether the wire shows what a bus sends, and injects what a bus hears; whether it does the latter.

    Raises:
        ObstacleError: It cannot be watched.
    """
    wire = desk.hooks.wire
    if wire is None:
        return False
    ear = footing.ears[0]
    async with desk.held(wire.observe(footing.channel), "`wire.observe`") as observed:
        if not _expect_bodies(desk, observed):
            return False
        # What the other instance hears has been on the channel.
        if await desk.heard(footing.buses[0].publish, footing.ears[1], desk.patience / 2) is None:
            return False
        shows_bus = await desk.until(lambda: len(observed.bodies) > 0, desk.patience / 2)
        if not _expect_bodies(desk, observed):
            return False
        sent = list(observed.bodies)
        marker = partial(_Injection, desk, wire, footing.channel)
        injections = [marker(body) for body in (None, None, *sent[:2])]
        numbers = count(_FIRST)
        shows_injected = heard = False
        deadline = desk.patience
        waited = 0.0
        while not (shows_injected and heard) and waited < deadline:
            for injection in injections:
                if not await injection.go(next(numbers)):
                    return False
            hears = partial(_arrived, injections, ear.items)
            await desk.until(lambda: hears() and any(i.seen(observed) for i in injections), _PAUSE)
            shows_injected = any(i.seen(observed) for i in injections)
            heard = bool(hears())
            waited += 1
        return heard
