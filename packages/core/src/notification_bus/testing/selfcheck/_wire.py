"""The wire of a harness: it shows what is on the channel, and puts something there."""

from collections.abc import Sequence
from functools import partial

from notification_bus.notification import BusNotification
from notification_bus.testing.harness import Observed, Wire
from notification_bus.testing.selfcheck._desk import Desk, ObstacleError
from notification_bus.testing.selfcheck._instances import Footing

__all__ = ["examine_wire"]


async def examine_wire(desk: Desk, footing: Footing) -> bool:
    """Look whether the wire shows what a bus sends, and injects what a bus hears; whether it does the latter."""
    wire = desk.harness.wire
    if wire is None:
        return False
    manager = wire.observe(footing.channel)
    if not desk.expect_manager("wire", manager, "what is observed", method="wire.observe"):
        return False
    try:
        async with desk.held(manager, "`wire.observe`") as observed:
            return await _examine(desk, footing, wire, observed)
    except ObstacleError as exc:
        desk.accuse("wire", str(exc))
        return False


async def _examine(desk: Desk, footing: Footing, wire: Wire, observed: Observed) -> bool:
    ear, other = footing.ears
    # What the other instance hears has been on the channel.
    if not _shows_bytes(desk, observed) or await desk.heard(footing.buses[0].publish, other, desk.patience / 2) is None:
        return False
    shows_bus = await desk.until(lambda: len(observed.bodies), desk.patience / 2)
    if not _shows_bytes(desk, observed):
        return False
    sent = list(observed.bodies)
    injected: list[bytes] = []

    async def inject(notification: BusNotification) -> None:
        injected.append(notification.encode())
        await wire.inject(footing.channel, injected[-1])

    if not await desk.call("wire", "wire.inject", partial(inject, BusNotification("notifications/contract/wire"))):
        return False
    hears = await desk.heard(inject, ear, desk.patience / 3) is not None
    if not hears and sent:
        hears = await _hears_its_own(desk, wire, footing, sent[-2:])
    shows_injected = await desk.until(
        lambda: any(body in observed.bodies for body in injected), 0 if shows_bus and hears else desk.patience / 2
    )
    _judge(desk, shows_bus=shows_bus, shows_injected=shows_injected, hears=hears, mixed=footing.mixed)
    return hears


def _shows_bytes(desk: Desk, observed: Observed) -> bool:
    bodies: object = getattr(observed, "bodies", None)
    strange = None
    if not isinstance(bodies, Sequence) or isinstance(bodies, str | bytes):
        strange = f"a {type(observed).__name__} whose `bodies` are {bodies!r}"
    else:
        odd = [body for body in list(bodies) if not isinstance(body, bytes)]  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
        if odd:
            strange = f"bodies that are no bytes, {odd[0]!r} for instance"
    if strange is not None:
        desk.accuse("wire", f"`wire.observe` yielded {strange}: it must have `bodies`, a sequence of bytes")
    return strange is None


async def _hears_its_own(desk: Desk, wire: Wire, footing: Footing, bodies: Sequence[bytes]) -> bool:
    """Inject what the bus itself has sent: one with a format of its own reads nothing else, which is for the checks."""
    ear = footing.ears[0]
    before = len(ear.numbers)
    for body in bodies:
        if not await desk.call("wire", "wire.inject", partial(wire.inject, footing.channel, body)):
            return False
    return await desk.until(lambda: len(ear.numbers) > before, desk.patience / 3)


def _judge(desk: Desk, *, shows_bus: bool, shows_injected: bool, hears: bool, mixed: bool) -> None:
    if not shows_bus and not shows_injected:
        also = "" if hears else "; nor does an instance hear what `wire.inject` injects"
        desk.accuse(
            "wire",
            "`wire.observe` shows nothing: neither what an instance published, and another received, nor what "
            f"`wire.inject` injected{also}",
        )
    elif not shows_bus and not hears and not mixed:
        desk.accuse(
            "wire",
            "`wire` is not on the channel that the instances are on: it shows nothing of what they publish, they hear "
            "nothing of what it injects, and it sees itself. Give it the name that the bus uses on the broker, and the "
            "same broker",
        )
    elif shows_bus and not shows_injected and not hears:
        desk.accuse(
            "wire",
            "`wire.inject` injects nothing: no instance hears it, and `wire.observe`, which shows what instances "
            "publish, does not show it",
        )
