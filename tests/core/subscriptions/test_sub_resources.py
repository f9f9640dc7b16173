"""The option that reports a change of `board://sprint/tasks/1` to whoever watches `board://sprint`."""

from collections.abc import AsyncIterator

import pytest

from notification_bus.notification import GAP, BusNotification
from notification_bus.subscriptions import SubscriptionRegistry
from tests.core.subscriptions._support import ACKNOWLEDGED, ID, now, read, watching

TASK = "board://sprint/tasks/1"


@pytest.fixture
async def registry() -> AsyncIterator[SubscriptionRegistry]:
    async with SubscriptionRegistry(sub_resources=True) as open_registry:
        yield open_registry


async def update(registry: SubscriptionRegistry, *uris: str) -> None:
    for uri in uris:
        await registry.publish(BusNotification.resource_updated(uri))


async def test_without_the_option_only_the_exact_uri_counts() -> None:
    async with SubscriptionRegistry() as registry, registry.listen(1, watching("board://sprint")) as stream:
        await update(registry, TASK)
        assert await now(stream) == [ACKNOWLEDGED]
        assert not registry.is_subscribed(TASK)


@pytest.mark.parametrize(
    "watched", ["board://sprint/tasks/", "board://sprint/tasks", "board://sprint", "board://", TASK]
)
async def test_a_change_below_is_told_by_the_uri_that_changed(registry: SubscriptionRegistry, watched: str) -> None:
    async with registry.listen(1, watching(watched)) as stream:
        await read(stream)
        await update(registry, TASK)
        assert (await read(stream)).params == {"uri": TASK, "_meta": {ID: 1}}
        assert registry.is_subscribed(TASK)
        assert registry.stats().delivered == 1


@pytest.mark.parametrize(
    "watched", ["board://sprin", "board://sprint/task", "board://sprint/tasks/1/", "board://sprint/tasks/12", "file://"]
)
async def test_a_change_beside_is_not_told(registry: SubscriptionRegistry, watched: str) -> None:
    async with registry.listen(1, watching(watched)) as stream:
        await update(registry, TASK)
        assert await now(stream) == [ACKNOWLEDGED]
        assert not registry.is_subscribed(TASK)


async def test_a_stream_that_watches_several_levels_is_told_once_under_the_nearest(
    registry: SubscriptionRegistry,
) -> None:
    async with registry.listen(1, watching("board://", "board://sprint", TASK)) as stream:
        await read(stream)
        await update(registry, TASK, "board://sprint/tasks/2")
        assert await now(stream) == [TASK, "board://sprint/tasks/2"]


async def test_several_changes_below_that_wait_become_one_of_the_watched_uri(registry: SubscriptionRegistry) -> None:
    """The mailbox stays within the filter, and no change is told as another's."""
    async with registry.listen(1, watching("board://sprint")) as stream:
        await read(stream)
        await update(registry, TASK, TASK)
        assert await now(stream) == [TASK]
        await update(registry, *(f"board://sprint/tasks/{number}" for number in range(1000)))
        assert await now(stream) == ["board://sprint"]


async def test_after_a_gap_the_watched_uri_stands_for_all_below(registry: SubscriptionRegistry) -> None:
    async with registry.listen(1, watching("board://sprint")) as stream:
        await read(stream)
        await update(registry, TASK)
        await registry.publish(GAP)
        await update(registry, TASK)
        assert await now(stream) == ["board://sprint"]


async def test_streams_on_different_levels_are_each_told(registry: SubscriptionRegistry) -> None:
    async with registry.listen(1, watching(TASK)) as exact, registry.listen(2, watching("board://sprint")) as above:
        await update(registry, TASK)
        assert await now(exact) == await now(above) == [ACKNOWLEDGED, TASK]
        assert registry.stats().delivered == 2


async def test_a_hostile_uri_from_the_bus_is_routed_like_any_other(registry: SubscriptionRegistry) -> None:
    async with registry.listen(1, watching("board://")) as stream:
        await read(stream)
        await update(registry, "board://" + "/" * 100_000)
        assert len((await read(stream)).params["uri"]) == 100_008
