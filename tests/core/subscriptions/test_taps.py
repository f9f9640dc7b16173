"""Taps of a registry: what they are called with, how often, and what they cannot do to it."""

import anyio
import pytest

from notification_bus.errors import BusClosedError
from notification_bus.memory import MemoryBus
from notification_bus.notification import GAP, BusNotification
from notification_bus.subscriptions import SubscriptionRegistry, _taps
from tests.core.subscriptions._support import BOUND, TOOLS, ScriptedBus, eventually, read_seen, tools

CHANGED = BusNotification.tools_list_changed()
LISTS = {
    BusNotification.tools_list_changed(),
    BusNotification.prompts_list_changed(),
    BusNotification.resources_list_changed(),
}


def updated(uri: str) -> BusNotification:
    return BusNotification.resource_updated(uri)


async def test_a_tap_is_called_with_the_resources_that_it_names_and_the_lists() -> None:
    async with SubscriptionRegistry(MemoryBus()) as registry:
        some: list[BusNotification] = []
        everything: list[BusNotification] = []
        registry.tap(some.append, uris=["board://a"])
        remove = registry.tap(everything.append)
        assert registry.stats().taps == 2
        for notification in (updated("board://b"), updated("board://a"), CHANGED):
            await registry.publish(notification)
        await eventually(lambda: len(everything) == 3)
        assert some == [updated("board://a"), CHANGED]
        assert registry.is_subscribed("board://whatever")
        remove()
        remove()
        assert not registry.is_subscribed("board://whatever")
        assert registry.is_subscribed("board://a")


async def test_without_a_bus_a_tap_is_called_too() -> None:
    async with SubscriptionRegistry() as registry:
        heard: list[BusNotification] = []
        registry.tap(heard.append)
        await registry.publish(CHANGED)
        await eventually(lambda: heard == [CHANGED])


async def test_a_tap_that_raises_is_counted_and_harms_neither_streams_nor_other_taps() -> None:
    async with SubscriptionRegistry(MemoryBus()) as registry, registry.listen(1, tools()) as stream:
        heard: list[BusNotification] = []

        def broken(_: BusNotification) -> None:
            raise ValueError("no")

        registry.tap(broken)
        registry.tap(heard.append)
        await registry.publish(CHANGED)
        assert (await read_seen(stream, 2))[1:] == [TOOLS]
        await eventually(lambda: heard == [CHANGED])
        assert registry.stats().tap_errors == 1


@pytest.mark.parametrize("uris", [None, ("board://named",)], ids=["all", "named"])
async def test_a_gap_calls_a_tap_for_the_lists_and_the_resources_it_knows_of(uris: tuple[str, ...] | None) -> None:
    """Those that it names, though never updated; or those that were updated, though before it was there."""
    async with SubscriptionRegistry(MemoryBus()) as registry:
        heard: set[BusNotification] = set()
        await registry.publish(updated("board://known"))
        await eventually(lambda: registry.stats().received == 1)
        registry.tap(heard.add, uris)
        await registry.publish(GAP)
        await eventually(lambda: len(heard) == 4)
        assert heard == {*LISTS, updated("board://named" if uris else "board://known")}


async def test_a_tap_from_before_the_first_confirmation_is_told_of_a_gap_and_one_from_after_it_is_not() -> None:
    bus = ScriptedBus()
    async with SubscriptionRegistry(bus) as registry:
        early: set[BusNotification] = set()
        late: list[BusNotification] = []
        registry.tap(early.add)
        bus.open.set()
        await eventually(lambda: early == LISTS)
        registry.tap(late.append)
        await registry.publish(updated("board://a"))
        await eventually(lambda: len(late) == 1)
        assert late == [updated("board://a")]
        assert registry.stats().gaps == 1


async def test_more_different_resources_than_fit_become_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told of the lists then, and of the resource that did not fit."""
    monkeypatch.setattr(_taps, "MAX_PENDING", 10)
    async with SubscriptionRegistry() as registry:
        heard: list[BusNotification] = []
        registry.tap(heard.append)
        for number in range(30):
            await registry.publish(updated(f"board://{number}"))
        await eventually(lambda: set(heard) >= {*LISTS, updated("board://29")})
        assert registry.stats().gaps


async def test_a_change_that_comes_again_is_told_once_more_and_never_lost() -> None:
    async with SubscriptionRegistry() as registry:
        heard: list[BusNotification] = []
        registry.tap(heard.append)
        for _ in range(1000):
            await registry.publish(CHANGED)
        with anyio.fail_after(BOUND):
            await eventually(lambda: len(heard) == registry.stats().delivered - registry.stats().coalesced)
        assert registry.stats().delivered == 1000
        assert len(heard) < 100


async def test_a_registry_that_is_not_open_takes_no_tap() -> None:
    with pytest.raises(BusClosedError):
        SubscriptionRegistry().tap(print)
