"""What the checks do again and again: publish in steps, wait until something gets through, and look for duplicates."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import anyio

from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification
from notification_bus.testing.context import Context
from notification_bus.testing.pump import Pump

__all__ = [
    "ECHO",
    "HEALTHY",
    "body_of_size",
    "drive_until_heard",
    "duplicates",
    "expect_arrival",
    "expect_in_order",
    "expect_method",
    "expect_prompt_publishing",
    "out_of_order",
    "publish_paced",
    "settle",
    "shown",
    "window",
]

ECHO: Final = "a subscription yields what its own instance publishes"
HEALTHY: Final = "nothing is lost on a healthy broker by those that read"

_MARKER: Final = 0.05
"""Seconds between two markers. One that is lost is followed by another, so only the last word of a fault counts."""

_TRIES: Final = 8
"""How often something that must be quick is tried: a machine is late by chance, a bus that waits is late each time."""


def shown(numbers: Iterable[int], most: int = 12) -> str:
    """Numbers as a failure message shows them."""
    listed = list(numbers)
    return ", ".join(map(str, listed[:most])) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def window(kit: Context) -> int:
    """How many notifications may be on their way at once: well within every buffer on it."""
    outbox = kit.capabilities.outbox
    return max(1, min(8, kit.capabilities.buffer // 2, kit.capabilities.buffer if not outbox else outbox // 2))


async def publish_paced(
    kit: Context, bus: NotificationBus, count: int, pumps: Sequence[Pump], promised: str, *, size: int | None = None
) -> list[int]:
    """Publish numbered notifications, a few at a time, each few only when every pump has the ones before.

    Args:
        kit: The run.
        bus: Where to publish.
        count: How many.
        pumps: Who must receive all of them.
        promised: What it proves.
        size: How many at a time; by default well within the buffers.

    Returns:
        Their numbers.
    """
    numbers: list[int] = []
    step = size or window(kit)
    while len(numbers) < count:
        batch = [await kit.publish_numbered(bus, promised) for _ in range(min(step, count - len(numbers)))]
        numbers += batch
        await expect_arrival(kit, batch, pumps, promised)
    return numbers


async def expect_arrival(kit: Context, numbers: list[int], pumps: Sequence[Pump], promised: str) -> None:
    """Wait until each pump has all of these."""
    await kit.until(lambda: all(pump.has(numbers) for pump in pumps), promised, lambda: _missing(numbers, pumps))


async def expect_method(kit: Context, pump: Pump, method: str, promised: str, what: str) -> list[BusNotification]:
    """Wait until the pump has a notification of that method; all of them that it has.

    Args:
        kit: The run.
        pump: Who must receive it.
        method: Its method.
        promised: What it proves.
        what: What to report as not arrived.
    """

    def arrived() -> list[BusNotification]:
        return [item for item in pump.items if isinstance(item, BusNotification) and item.method == method]

    await kit.until(arrived, promised, lambda: f"{what} did not arrive; {pump}")
    return arrived()


def _missing(numbers: list[int], pumps: Sequence[Pump]) -> str:
    lacking = [(pump, [n for n in numbers if n not in pump.numbers]) for pump in pumps]
    return "; ".join(f"{pump}, without {shown(missing)}" for pump, missing in lacking if missing)


async def drive_until_heard(
    kit: Context,
    bus: NotificationBus,
    pumps: Sequence[Pump],
    promised: str,
    *,
    within: float | None = None,
) -> list[int]:
    """Publish one numbered marker after the other, until each pump has received one of them.

    Args:
        kit: The run.
        bus: Where to publish.
        pumps: Who must receive one.
        promised: What it proves.
        within: Seconds, `wait` where it is not given.

    Returns:
        The markers' numbers.
    """
    markers: list[int] = []
    limit = kit.timing.wait if within is None else within
    deadline = anyio.current_time() + limit

    def heard() -> bool:
        return all(any(n in pump.numbers for n in markers) for pump in pumps)

    while not heard():
        if any(not pump.alive for pump in pumps) or anyio.current_time() > deadline:
            kit.fail(
                promised,
                f"of {len(markers)} markers, published one after the other for {limit:g} s, not one arrived: "
                + "; ".join(str(pump) for pump in pumps if not any(n in pump.numbers for n in markers)),
            )
        markers.append(await kit.publish_numbered(bus, promised))
        await kit.comes_true(heard, _MARKER)
    return markers


async def settle(kit: Context, buses: Sequence[NotificationBus], pumps: Sequence[Pump], promised: str) -> None:
    """Have a sentinel from every bus arrive at every pump, then be silent for a while: nothing else is on its way."""
    for bus in buses:
        await publish_paced(kit, bus, 1, pumps, promised)
    await kit.linger()


def duplicates(numbers: Sequence[int]) -> list[int]:
    """The numbers that are there more than once."""
    return sorted(number for number, times in Counter(numbers).items() if times > 1)


def out_of_order(numbers: Sequence[int]) -> str | None:
    """The first place where numbers do not rise; `None` where they do."""
    for before, after in pairwise(numbers):
        if after <= before:
            return f"{after} arrived after {before}"
    return None


def expect_in_order(kit: Context, pump: Pump, promised: str) -> None:
    """Expect what arrived to be in the order in which it was published, each at most once."""
    wrong = out_of_order(pump.numbers)
    kit.expect(wrong is None, promised, f"{pump}: {wrong}")


async def expect_prompt_publishing(kit: Context, bus: NotificationBus, count: int, when: str) -> None:
    """Publish, and expect every call to return at once, in the best of some tries.

    Args:
        kit: The run.
        bus: Where to publish.
        count: How many calls a try has.
        when: The state that everything is in, for the message.
    """
    promised = f"`publish` returns at once {when}"
    slowest: list[float] = []
    for _ in range(_TRIES):
        slowest.append(0.0)
        for _ in range(count):
            slowest[-1] = max(slowest[-1], await kit.publish(bus, kit.numbered()[1], promised))
            if slowest[-1] > kit.prompt:
                break
        else:
            return
    took = ", ".join(f"{seconds:.3f} s" for seconds in slowest)
    kit.fail(promised, f"in each of {_TRIES} tries one call was late: {took}; allowed are {kit.prompt:g} s")


def body_of_size(kit: Context, size: int, character: str = "x") -> BusNotification:
    """A numbered notification whose body has exactly so many bytes, filled with that character."""
    number, bare = kit.numbered(pad="")
    room = size - len(bare.encode())
    if room < 0:
        kit.untestable(f"the bus carries bodies of {size} bytes only, too small for the check's own {size - room}")
    # A character takes several bytes, or is escaped; what is left over is filled with plain ones.
    width = len(_padded(character).encode()) - len(_padded("").encode())
    pad = character * (room // width) + "x" * (room % width)
    return BusNotification(bare.method, {**(bare.params or {}), "n": number, "pad": pad})


def _padded(pad: str) -> BusNotification:
    return BusNotification("pad", {"pad": pad})
