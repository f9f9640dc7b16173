"""The instances that a harness builds: each one of its own, and all of one channel on that channel."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from notification_bus.bus import NotificationBus
from notification_bus.options import BusOptions
from notification_bus.testing._process import start_child
from notification_bus.testing.selfcheck._desk import Desk, Ear
from notification_bus.testing.selfcheck._names import texts_with

__all__ = ["Footing", "examine_build", "examine_child", "examine_instances"]


@dataclass(frozen=True, slots=True)
class Footing:
    """Two instances on one channel, of which the second was heard by the first."""

    channel: str
    ears: tuple[Ear, Ear]
    buses: tuple[NotificationBus, NotificationBus]
    mixed: bool
    """Whether channels are not kept apart: then nothing can be said of who is on which."""


def examine_build(desk: Desk) -> None:
    """Look at what `build` builds, without an event loop. What it raises is a matter of the checks."""
    if "build" not in desk.harness.hooks:
        return
    channel = desk.channel("build")
    try:
        first, second = desk.harness.build(channel), desk.harness.build(channel)
    except Exception:
        return
    if first is second:
        desk.accuse("build", "`build` returned the same object twice: build a new bus at each call")
    _expect_bus(desk, first, "build")


@asynccontextmanager
async def examine_instances(desk: Desk) -> AsyncGenerator[Footing | None]:
    """Start instances, see who hears whom, and yield what can be built upon, where there is anything.

    Raises:
        ObstacleError: No instance can be started, or none can be subscribed to.
    """
    harness = desk.harness
    name, other = desk.channel("one"), desk.channel("two")
    first = harness.instance(name)
    if not desk.expect_manager("instance", first, "the bus"):
        yield None
        return
    async with (
        desk.held(first, "`instance`") as one,
        desk.held(harness.instance(name), "`instance`, called a second time,") as two,
        desk.held(harness.instance(other), "`instance`, called for another channel,") as stranger,
    ):
        if not _expect_bus(desk, one, "instance"):
            yield None
            return
        if one is two or one is stranger:
            desk.accuse("instance", "`instance` yielded the same object twice: build a new bus at each call")
            yield None
            return
        async with (
            desk.listening(one, name) as ear,
            desk.listening(two, name) as second_ear,
            desk.listening(stranger, name) as strange_ear,
        ):
            _compare(desk, one)
            if await desk.heard(two.publish, ear, desk.patience / 2) is None:
                await _apart(desk, (one, two), (ear, second_ear))
                yield None
                return
            mixed = bool(strange_ear.numbers)
            if mixed and not (texts_with(name, one) and texts_with(other, stranger)):
                desk.accuse(
                    "instance",
                    "`instance` does not use the channel that it is given: what is published on one is heard on "
                    "another",
                )
            yield Footing(name, (ear, second_ear), (one, two), mixed)


def _expect_bus(desk: Desk, bus: object, member: str) -> bool:
    lacking = [name for name in ("publish", "subscribe") if not callable(getattr(bus, name, None))]
    if lacking:
        text = f"`{member}` gave a {type(bus).__name__}, which is no bus: it has no `{'` and no `'.join(lacking)}`"
        desk.accuse("build" if member == "build" else "instance", text)
    return not lacking


def _compare(desk: Desk, bus: NotificationBus) -> None:
    """Look whether the bus can hold and carry what is claimed for it, where it says what it can."""
    capabilities = desk.harness.capabilities
    options: object = getattr(bus, "options", None)
    says: dict[str, object] = {"max_body": getattr(bus, "max_body", None)}
    if isinstance(options, BusOptions):
        says |= {"buffer": options.buffer, "outbox": options.outbox}
    for name, actual in says.items():
        claimed: int | None = getattr(capabilities, name)
        if claimed is not None and isinstance(actual, int) and claimed > actual:
            desk.accuse(
                "capabilities",
                f"the capability {name}={claimed} is impossible for the bus that `instance` builds, which has "
                f"{name}={actual}",
            )


async def _apart(desk: Desk, buses: tuple[NotificationBus, NotificationBus], ears: tuple[Ear, Ear]) -> None:
    """One instance does not hear the other. Who hears neither the other nor itself may just be deaf."""
    for bus, ear in zip(buses, ears, strict=True):
        if await desk.heard(bus.publish, ear, desk.patience / 3) is None:
            return
    channel = ears[0].channel
    one, two = (texts_with(channel, bus) for bus in buses)
    # Where both hold the same text with the name in it, they were given it, and what they make of it is theirs.
    if one & two:
        return
    desk.accuse(
        "instance",
        "two instances for one channel do not hear each other, and each hears itself: "
        + (
            f"they are on the channels {_shown(one - two)} and {_shown(two - one)}"
            if one and two
            else "they do not know the name that `instance` was given"
        )
        + ". Build each with exactly that name",
    )


def _shown(texts: set[str]) -> str:
    return repr(min(texts, key=len))


async def examine_child(desk: Desk) -> None:
    """Start the other process, and see that it becomes ready."""
    spec = desk.harness.child
    assert spec is not None  # noqa: S101  # the caller has looked
    limit = desk.patience * 5 + desk.harness.capabilities.ready_timeout
    async with start_child(spec, desk.channel("child"), "talk") as child:
        if not await desk.until(lambda: child.ready or child.ended, limit):
            desk.accuse("child", f"the child process `child` names is not ready after {limit:g} s: {child}")
        elif not child.ready:
            desk.accuse("child", f"the child process that `child` names does not start: {child}")
