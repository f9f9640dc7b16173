"""Order, and many publishers at once."""

from collections import Counter

import anyio

from notification_bus.notification import BusNotification
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import HEALTHY, body_of_size, expect_in_order, publish_paced, settle


@check("order.per_publisher_fifo", "CAPABILITY", "order", needs={"two"}, claim="fifo")
async def order_per_publisher_fifo(kit: Context) -> None:
    """Notifications of one publisher arrive in the order published."""
    promised = "notifications of one publisher arrive in the order published"
    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(here, "the publisher's own subscription") as own,
        kit.subscribed(there, "the peer's subscription") as other,
    ):
        await publish_paced(kit, here, 48 * kit.scale, [own, other], HEALTHY)
        for pump in (own, other):
            expect_in_order(kit, pump, promised)


_TASKS = 8
_LARGEST = 262_144
"""Bytes of the largest body that is used where the bus states no limit, or a larger one."""


@check("conc.many_publishers_mixed_sizes", "MUST", "complete", needs={"two"})
async def conc_many_publishers_mixed_sizes(kit: Context) -> None:
    """Many tasks on two instances publish small and large bodies at once, and each arrives once and intact."""
    promised = "what many tasks publish at the same time arrives once each, and intact"
    tasks_count = max(1, min(_TASKS, kit.capabilities.buffer // 2))
    limit = min(kit.capabilities.max_body or _LARGEST, _LARGEST)
    sizes = [0, 300, min(5_000, limit), limit]
    published: dict[str, BusNotification] = {}

    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(here, "the subscription of instance A") as pump_here,
        kit.subscribed(there, "the subscription of instance B") as pump_there,
    ):
        pumps = (pump_here, pump_there)

        def label(item: object) -> str:
            """What the notification calls itself, whatever became of the rest of it."""
            if not isinstance(item, BusNotification):
                return repr(item)
            number = kit.number_of(item)
            return item.method if number is None else str(number)

        async def arrive(name: str, size: int) -> None:
            await kit.until(
                lambda: all(any(label(item) == name for item in pump.items) for pump in pumps),
                promised,
                lambda: f"{name}, of {size or 'few'} bytes, did not reach both; " + "; ".join(map(str, pumps)),
            )

        async def publish_all(position: int) -> None:
            bus = (here, there)[position % 2]
            for round_ in range(len(sizes) * kit.scale):
                # Each task at another place in the sizes, so that small and large ones are on their way together.
                size = sizes[(position + round_) % len(sizes)]
                notification = body_of_size(kit, size) if size else BusNotification(f"n/{position}/{round_}")
                name = label(notification)
                published[name] = notification
                await kit.publish(bus, notification)
                # One on its way for each task: that fits into the buffers.
                await arrive(name, size)

        async with anyio.create_task_group() as tasks:
            for position in range(tasks_count):
                tasks.start_soon(publish_all, position)
        await settle(kit, [here, there], pumps, promised)
        for pump in pumps:
            times = Counter(label(item) for item in pump.items)
            wrong = [name for name in published if times[name] != 1]
            kit.expect(not wrong, promised, f"{pump}; not exactly once came {shown_names(wrong)}")
            damaged = [
                label(item) for item in pump.items if (p := published.get(label(item))) is not None and item != p
            ]
            kit.expect(not damaged, promised, f"{pump}; arrived changed: {shown_names(damaged)}")


def shown_names(names: list[str]) -> str:
    """Some of the names."""
    return f"{', '.join(names[:8])} ({len(names)} in all)"
