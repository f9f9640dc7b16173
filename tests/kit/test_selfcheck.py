"""A harness that lies is found out before the checks are run, and an honest one never is, whatever its bus does."""

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest

from notification_bus import MemoryBus, NotificationBus
from notification_bus.testing import Link, memory_harness
from tests.kit.gallery import MUTANTS, find_bus
from tests.kit.harness import HubHarness
from tests.kit.lies import Harness, found, the_only

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


# Honest ones


@BACKENDS
def test_an_honest_harness_is_believed_and_quickly(backend: str) -> None:
    for harness in (memory_harness(), Harness()):
        examination = found(harness, backend)
        assert not examination.faults
        assert examination.obstacle is None
        # Idle, it takes 0.3 s at most.
        assert examination.seconds < 3


def test_a_child_of_an_honest_harness_starts() -> None:
    assert not found(HubHarness()).faults


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_bus_is_not_laid_at_the_door_of_its_harness(name: str) -> None:
    """The gallery has every way to be wrong that the checks know, on a harness that is right."""
    assert not found(Harness(find_bus(name))).faults


def test_a_bus_that_cannot_be_started_is_no_lie() -> None:
    harness = Harness()

    @asynccontextmanager
    async def instance(channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        raise ConnectionRefusedError("nothing listens at port 6379")
        yield

    harness.replace(instance=instance)
    examination = found(harness)
    assert not examination.faults
    assert examination.obstacle is not None
    assert examination.obstacle.startswith("starting an instance on channel")
    assert examination.obstacle.endswith("ConnectionRefusedError: nothing listens at port 6379")


def test_a_deaf_bus_is_no_lie() -> None:
    """Where nothing is heard at all, the checks have something to say."""
    harness = Harness()

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel) as speaking, MemoryBus(f"{channel}-elsewhere") as hearing:
            speaking.subscribe = hearing.subscribe  # type: ignore[method-assign]
            yield speaking

    harness.replace(instance=instance, link=None, wire=None, capabilities=memory_harness().capabilities)
    assert not found(harness).faults


# Its shape


def only_a_channel(channel: str) -> None:
    raise AssertionError("nobody calls it")


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"capabilities": None}, "`capabilities` must be a `Capabilities`; there is none"),
        ({"capabilities": {"buffer": 1}}, "it is a dict"),
        ({"instance": None}, "there is no method `instance(channel, link=None)`"),
        ({"instance": lambda: None}, "cannot be called with a channel alone"),
        ({"instance": only_a_channel}, "there is a `link`, and `instance(channel)` cannot be given"),
        ({"link": 7}, "`link` must be a method, or None; it is 7"),
        ({"build": "bus"}, "`build` must be a method"),
        ({"wire": object()}, "which has no `inject`, no `observe`"),
        ({"child": "redis"}, "give a URL for `open_bus`, or `package.module:name`"),
    ],
)
def test_a_member_of_the_wrong_kind_is_named(members: dict[str, Any], says: str) -> None:
    harness = Harness()
    harness.replace(**members)
    assert says in str(found(harness))
    assert {fault.id for fault in found(harness).faults} == {"harness.shape"}


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"buffer": 0}, "buffer=0 is impossible"),
        ({"buffer": "16"}, "buffer='16' is impossible"),
        ({"buffer": True}, "buffer=True is impossible"),
        ({"slack": -1}, "slack=-1 is impossible: give a number, 0 or more"),
        ({"outbox": 0}, "outbox=0 is impossible"),
        ({"max_body": -1}, "max_body=-1 is impossible"),
        ({"ready_timeout": 0}, "ready_timeout=0 is impossible"),
        ({"close_timeout": float("inf")}, "close_timeout=inf is impossible"),
        ({"liveness": float("nan")}, "liveness=nan is impossible"),
        ({"liveness": None, "end_to_end": True}, "end_to_end is impossible without `liveness`"),
        ({"has_broker": False}, "liveness=2.0 is impossible with has_broker=False"),
        ({"fifo": "yes"}, "fifo='yes' is impossible: give True or False"),
        ({"backends": ()}, "backends=() is impossible"),
        ({"backends": ("curio",)}, "backends=('curio',) is impossible: name one or both of asyncio and trio"),
        ({"backends": "asyncio"}, "backends='asyncio' is impossible"),
        ({"drop_logger": None}, "drop_logger=None is impossible"),
        ({"buffer": 17}, "buffer=17 is impossible for the bus that `instance` builds, which has buffer=16"),
        ({"outbox": 1000}, "outbox=1000 is impossible for the bus"),
        (
            {"max_body": 10_000},
            "max_body=10000 is impossible for the bus that `instance` builds, which has max_body=8192",
        ),
    ],
)
def test_a_capability_that_cannot_be_is_named_with_its_value(claims: dict[str, Any], says: str) -> None:
    harness = Harness()
    harness.capabilities = dataclasses.replace(harness.capabilities, **claims)
    assert says in str(found(harness))


# Its instances


def same(bus: NotificationBus, _channel: str) -> NotificationBus:
    return bus


def at_one_place(harness: Harness, _channel: str, link: Any = None) -> Any:
    return harness.honest.instance("always-the-same", link)


def test_one_that_gives_the_same_object_twice() -> None:
    harness = Harness()
    shared = MemoryBus("kit")

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with shared:
            yield shared

    harness.replace(instance=instance, build=None)
    assert "`instance` yielded the same object twice" in the_only(found(harness), "harness.instances")


def test_one_that_builds_the_same_object_twice() -> None:
    harness = Harness()
    bus = MemoryBus("kit")
    harness.replace(build=partial(same, bus), instance=harness.honest.instance)
    assert "`build` returned the same object twice" in the_only(found(harness), "harness.build")


def test_one_that_gives_no_bus() -> None:
    harness = Harness()

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[object]:
        yield 7

    harness.replace(instance=instance)
    assert "gave a int, which is not a bus: it has no `publish` and no `subscribe`" in the_only(
        found(harness), "harness.instances"
    )


def test_one_that_forgot_the_decorator() -> None:
    harness = Harness()

    async def instance(channel: str, link: Any = None) -> NotificationBus:
        return MemoryBus(channel)

    harness.replace(instance=instance)
    text = the_only(found(harness), "harness.instances")
    assert "`instance` returned a coroutine, which is not an async context manager" in text


@BACKENDS
@pytest.mark.parametrize("suffix", ["-{n}", ""], ids=["its own beside the given", "the given ignored"])
def test_one_whose_instances_are_on_different_channels(backend: str, suffix: str) -> None:
    numbers = count()

    def name_of(channel: str) -> str:
        return f"{channel}{suffix.format(n=next(numbers))}" if suffix else f"mine-{next(numbers)}"

    harness = Harness()
    harness.replace(capabilities=memory_harness().capabilities, wire=None, link=None, build=None)

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(name_of(channel), buffer=16, max_body=65_536) as bus:
            yield bus

    harness.replace(instance=instance)
    text = the_only(found(harness, backend), "harness.instances")
    assert "two instances for one channel do not hear each other, and each hears itself" in text
    assert ("they are on the channels 'kit-harness-instances-" in text) == bool(suffix)
    assert ("they are on the channels 'mine-" in text) != bool(suffix)


def test_one_whose_instances_are_all_on_one_channel() -> None:
    harness = Harness()
    harness.replace(instance=partial(at_one_place, harness))
    assert "`instance` does not use the channel that it is given" in str(found(harness))


# Its child


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nothing://here", "no bus is known for nothing://"),
        ("no.such.module:harness", "there is no module"),
        ("notification_bus.testing:no_such_name", "no_such_name"),
    ],
)
def test_one_whose_child_does_not_start(spec: str, says: str) -> None:
    harness = Harness()
    harness.child = spec
    text = the_only(found(harness), "harness.child")
    assert "the child process that `child` names does not start" in text
    assert says in text
