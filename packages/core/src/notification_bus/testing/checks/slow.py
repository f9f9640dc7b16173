"""A subscriber that does not read: bounded, told of, and nobody else's trouble."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from notification_bus.bus import NotificationBus
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.pump import Pump
from notification_bus.testing.traffic import (
    HEALTHY,
    drive_until_heard,
    expect_in_order,
    expect_prompt_publishing,
    publish_paced,
)


@dataclass(frozen=True, slots=True)
class _Overflow:
    """A subscription that was not read while several times its buffer was published."""

    bus: NotificationBus
    slow: Pump
    witness: Pump
    """Another subscription of the same instance, which has read all of it: so all of it has reached this instance."""
    numbers: list[int]


@asynccontextmanager
async def _overflow(kit: Context, times: int) -> AsyncGenerator[_Overflow]:
    async with (
        kit.instance() as bus,
        # The witness is the older one, so that what an overflow does to younger siblings is no matter here.
        kit.subscribed(bus, "the reading subscription") as witness,
        kit.subscribed(bus, "the slow subscription", reading=False) as slow,
    ):
        numbers = await publish_paced(kit, bus, times * kit.capabilities.buffer, [witness], HEALTHY)
        yield _Overflow(bus, slow, witness, numbers)


@check("slow.publisher_unaffected", "MUST", "bounded")
async def slow_publisher_unaffected(kit: Context) -> None:
    """A subscription that is never read neither delays publishing nor makes it raise."""
    count = 4 * kit.capabilities.buffer
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "the reading subscription") as witness,
        kit.subscribed(bus, "the slow subscription", reading=False),
    ):
        await expect_prompt_publishing(kit, bus, count, "while a subscription is not read")
        # Unpaced as that was, the witness may have missed some of it; what comes now must come.
        await drive_until_heard(kit, bus, [witness], "publishing works beside a subscription that is not read")


@check("slow.sibling_unaffected", "MUST", "bounded")
async def slow_sibling_unaffected(kit: Context) -> None:
    """A subscription that is never read costs its siblings nothing, whether older or younger."""
    promised = "a subscription that is not read costs its siblings nothing"
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "the older sibling") as older,
        kit.subscribed(bus, "the slow subscription", reading=False),
        kit.subscribed(bus, "the younger sibling") as younger,
    ):
        await publish_paced(kit, bus, 4 * kit.capabilities.buffer, [older, younger], promised)


@check("slow.buffer_is_bounded", "MUST", "bounded")
async def slow_buffer_is_bounded(kit: Context) -> None:
    """A subscription that is not read holds no more than its stated buffer."""
    allowed = kit.capabilities.buffer + kit.capabilities.slack
    promised = f"a subscription that is not read holds at most `buffer` + `slack` = {allowed} notifications"
    async with _overflow(kit, 8) as state:
        slow = state.slow
        slow.resume()
        await drive_until_heard(kit, state.bus, [slow], "after an overflow the stream goes on")
        published = set(state.numbers)
        held = sum(n is None or n in published for n in map(kit.number_of, slow.items))
        kit.expect(held <= allowed, promised, f"of {len(published)} published while it was not read, {held} arrived")


@check("slow.drop_is_warned", "MUST", "bounded")
async def slow_drop_is_warned(kit: Context) -> None:
    """A drop is warned of on the stated logger, with its kind and a count as fields of the record."""
    logger = kit.capabilities.drop_logger
    promised = (
        f"a drop is warned of on the logger {logger!r}, in a record whose field `notification_bus_event` starts with "
        "'dropped' and whose `notification_bus_count` is the number of drops it stands for"
    )
    async with _overflow(kit, 3) as state:
        others = [record.getMessage() for record in kit.warnings]
        kit.expect(
            kit.drops, promised, f"{len(state.numbers)} published, none read; the warnings were {others or 'none'}"
        )
        for record in kit.drops:
            number = getattr(record, "notification_bus_count", None)
            kit.expect(
                isinstance(number, int) and number >= 1, promised, f"{record.getMessage()!r} has the count {number!r}"
            )


@check("slow.drop_is_warned_once", "SHOULD", "bounded")
async def slow_drop_is_warned_once(kit: Context) -> None:
    """A flood of drops is warned of now and then, not once for each."""
    promised = "a flood of drops is warned of now and then, with a count, not once for each"
    async with _overflow(kit, 8) as state:
        drops = len(state.numbers) - kit.capabilities.buffer
        warnings = len(kit.drops)
        kit.expect(
            warnings <= max(3, drops // 4) or not kit.alone, promised, f"{warnings} warnings for about {drops} drops"
        )


@check("slow.recovers_in_order", "MUST", "bounded")
async def slow_recovers_in_order(kit: Context) -> None:
    """After an overflow the stream goes on: what survived is in order and without duplicates, and new ones arrive."""
    promised = "what survives an overflow is in the order published, without duplicates"
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "the reading subscription") as witness,
        kit.subscribed(bus, "the paused subscription") as slow,
    ):
        await publish_paced(kit, bus, 2, [witness, slow], HEALTHY)
        slow.pause()
        during = await publish_paced(kit, bus, 3 * kit.capabilities.buffer, [witness], HEALTHY)
        # A read that waited already when it was paused has got one, which says nothing of the buffer.
        read = set(slow.numbers)
        slow.resume()
        await drive_until_heard(kit, bus, [slow], "after an overflow the stream goes on, neither ended nor stuck")
        expect_in_order(kit, slow, promised)
        kit.expect(
            set(during) & (set(slow.numbers) - read),
            "an overflow drops what does not fit, and keeps the rest",
            f"{slow}: nothing of {len(during)} published while it was paused",
        )
