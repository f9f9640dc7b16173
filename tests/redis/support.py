"""What the tests of RedisBus share."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from uuid import uuid4

import anyio

from notification_bus import GAP, BusNotification
from notification_bus_redis import RedisBus

PATIENCE: Final = 15.0
"""Seconds to wait for what must come, on a busy machine."""

QUICK: Final[dict[str, Any]] = {"probe_interval": 0.3, "probe_timeout": 0.5, "backoff_cap": 0.2}
"""Settings under which a fault is found within a second."""


def channel(name: str = "test") -> str:
    return f"{name}-{uuid4().hex[:12]}"


def quick_bus(server: Any, name: str | None = None, **options: Any) -> RedisBus:
    return RedisBus(server, channel=name or channel(), **(QUICK | options))


async def eventually(condition: Callable[[], bool], what: str) -> None:
    with anyio.move_on_after(PATIENCE):
        while not condition():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"not within {PATIENCE:g} s: {what}")


async def next_of(subscription: AsyncIterator[BusNotification]) -> BusNotification:
    with anyio.fail_after(PATIENCE):
        return await anext(subscription)


async def receives(
    subscription: AsyncIterator[BusNotification], notification: BusNotification
) -> list[BusNotification]:
    """Read until the notification comes; what came before it."""
    before: list[BusNotification] = []
    with anyio.fail_after(PATIENCE):
        async for got in subscription:
            if got == notification:
                return before
            before.append(got)
    raise AssertionError(f"the stream ended before {notification!r} came")


async def marker_arrives(bus: RedisBus, subscription: AsyncIterator[BusNotification]) -> list[BusNotification]:
    """Publish a marker and read until it comes back; what came before it."""
    marker = BusNotification("test/marker", {"id": uuid4().hex})
    await bus.publish(marker)
    return await receives(subscription, marker)


def gaps(notifications: list[BusNotification]) -> int:
    return sum(1 for notification in notifications if notification == GAP)
