"""Delivery: to everybody, once, whole, and to nobody else."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.pump import Pump
from notification_bus.testing.traffic import ECHO, duplicates, publish_paced, settle, shown, window


@check("deliver.fan_out", "MUST", "echo", needs={"two"})
async def deliver_fan_out(kit: Context) -> None:
    """A notification reaches every subscription of every instance once, equal to the original."""
    promised = "a notification reaches every subscription of every instance, as a BusNotification equal to the original"
    async with kit.instance() as here, kit.instance() as there, AsyncExitStack() as stack:
        pumps = [
            await stack.enter_async_context(kit.subscribed(bus, f"subscription {n} of instance {name}"))
            for name, bus in (("A", here), ("B", there))
            for n in (1, 2)
        ]
        published = BusNotification(
            "notifications/resources/updated", {"uri": "kit://one", "nested": {"list": [1, None]}}
        )
        await kit.publish(here, published)
        await kit.until(
            lambda: all(pump.items for pump in pumps),
            promised,
            lambda: "; ".join(f"{p.name}: {p.items}" for p in pumps),
        )
        for pump in pumps:
            first = pump.items[0]
            seen = f"{pump.name} yielded {first!r}, a {type(first).__name__}; published was {published!r}"
            kit.expect(isinstance(first, BusNotification) and first == published, promised, seen)


@check("deliver.echo", "MUST", "echo")
async def deliver_echo(kit: Context) -> None:
    """An instance's subscription yields what the same instance publishes."""
    promised = ECHO
    async with kit.instance() as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 3, [pump], promised)


@check("deliver.one_copy", "MUST", "at_most_once", needs={"two"})
async def deliver_one_copy(kit: Context) -> None:
    """No subscription yields a notification twice, whichever instance published it."""
    promised = "a notification arrives at most once on each subscription: no local copy beside the echo"
    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription of instance A") as pump_here,
        kit.subscribed(there, "the subscription of instance B") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        for _ in range(5 * kit.scale):
            for bus in (here, there):
                await publish_paced(kit, bus, 1, pumps, promised)
        await settle(kit, [here, there], pumps, promised)
        for pump in pumps:
            twice = duplicates(pump.numbers)
            kit.expect(not twice, promised, f"{pump}; more than once came {shown(twice)}")


@check("deliver.complete_when_healthy", "MUST", "complete", needs={"two"})
async def deliver_complete_when_healthy(kit: Context) -> None:
    """Nothing is lost while the broker is healthy and subscribers read."""
    promised = "nothing is lost on a healthy broker while subscribers read"
    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription of instance A") as pump_here,
        kit.subscribed(there, "the subscription of instance B") as pump_there,
    ):
        pumps = [pump_here, pump_there]
        published = [n for bus in (here, there) for n in await publish_paced(kit, bus, 32 * kit.scale, pumps, promised)]
        for pump in pumps:
            lost = [number for number in published if number not in pump.numbers]
            kit.expect(not lost, promised, f"{pump}, without {shown(lost)}")


@check("deliver.identical_kept", "MUST", "complete", claim="distinct")
async def deliver_identical_kept(kit: Context) -> None:
    """Equal notifications, apart or in a burst, arrive as often as they were published."""
    promised = "equal notifications are delivered as often as they were published"
    changed = BusNotification.tools_list_changed()
    async with kit.instance() as bus, kit.subscribed(bus) as pump:

        def arrived() -> int:
            return sum(item == changed for item in pump.items)

        async def arrive(times: int) -> None:
            await kit.until(lambda: arrived() >= times, promised, lambda: f"{arrived()} of {times}, published apart")

        for times in (1, 2):
            await kit.publish(bus, changed)
            await arrive(times)
        # A burst ends up in one batch of a bus that has batches, where brokers and authors like to merge equals.
        burst = window(kit) if kit.capabilities.buffer < 8 else 8
        for _ in range(burst):
            await kit.publish(bus, changed)
        await settle(kit, [bus], [pump], promised)
        kit.expect(
            arrived() == 2 + burst, promised, f"{arrived()} of {2 + burst}, {burst} of them published in a burst"
        )


@check("deliver.no_history", "MUST", "at_most_once")
async def deliver_no_history(kit: Context) -> None:
    """A new subscription yields nothing that was published before it."""
    promised = "a new subscription yields only what is published after it was entered"
    async with kit.instance() as bus, kit.subscribed(bus, "the old subscription") as old:
        before = await publish_paced(kit, bus, 3, [old], ECHO)
        async with kit.subscribed(bus, "the new subscription") as new:
            await settle(kit, [bus], [old, new], promised)
            stale = set(before) & set(new.numbers)
            kit.expect(not stale, promised, f"{new}, and {shown(sorted(stale))} were published before it")


_Member: TypeAlias = tuple[NotificationBus, Pump]


def _alike(base: str) -> Sequence[tuple[str, str]]:
    """Pairs of names that a bus might take for one another. The first pair is one that every bus must carry.

    Args:
        base: 13 characters of ASCII.
    """
    long = base + "ü" * 28
    return (
        (f"{base}a", f"{base}b"),
        # Differ in the 70th byte; brokers that cut names do so before.
        (f"{long}a", f"{long}b"),
        # Differ in the 63rd byte, which is the last that Postgres carries.
        (f"{base}{'x' * 49}a", f"{base}{'x' * 49}b"),
        (f"{base}case", f"{base}CASE"),
        # One could be taken for a parent of the other, or for a pattern.
        (f"{base}.a", base),
        (f"{base}.*", f"{base}.a"),
        (f"{base}.>", f"{base}.a"),
        (f"{base}*", f"{base}a"),
        # What must be quoted, where names stand in statements.
        (f'{base}"; a', base),
    )


@check("deliver.namespace_isolated", "MUST", "isolation", needs={"two"})
async def deliver_namespace_isolated(kit: Context) -> None:
    """Nothing crosses from one channel name to another, however alike, long or odd the names are."""
    promised = (
        "what is published on one channel is never seen on another, and a name that cannot be carried is a ValueError"
    )
    for position, pair in enumerate(_alike(f"k{kit.channel[-12:]}")):
        async with AsyncExitStack() as stack:
            members: list[_Member] = []
            try:
                for name in pair:
                    bus = await stack.enter_async_context(kit.instance(name))
                    pump = await stack.enter_async_context(kit.subscribed(bus, f"the subscription on channel {name!r}"))
                    members.append((bus, pump))
            except ValueError as exc:
                # Refused, so nothing can be mixed up.
                kit.expect(position > 0, promised, f"the plain names {pair!r} were refused: {exc}")
                continue
            first, second = members
            own: dict[str, list[int]] = {first[1].name: [], second[1].name: []}
            # The first once more at the end: what crossed over from the second would be there before that.
            for bus, pump in (first, second, first):
                own[pump.name] += await publish_paced(kit, bus, 2, [pump], "a channel name that is not refused works")
            for _, pump in members:
                crossed = set(pump.numbers) - set(own[pump.name])
                kit.expect(not crossed, promised, f"{pump}, {len(crossed)} of them published on the other of {pair!r}")


@check("deliver.cross_process", "MUST", "echo", needs={"process"})
async def deliver_cross_process(kit: Context) -> None:
    """Notifications travel from another process to this one and back."""
    promised = "what one process publishes reaches the subscriptions of another"
    async with kit.instance() as bus, kit.subscribed(bus) as pump, kit.child("talk") as child:
        numbers: list[int] = []
        for _ in range(3):
            number, notification = kit.numbered()
            numbers.append(number)
            await child.publish(notification)
        await kit.until(lambda: pump.has(numbers), promised, lambda: f"{pump} of 3 that the child published; {child}")
        back = [await kit.publish_numbered(bus) for _ in range(3)]
        await kit.until(
            lambda: set(back) <= {kit.number_of(item) for item in child.received},
            promised,
            lambda: f"the child received {child}",
        )
