"""The links of a harness: an instance goes through the one that it is given, and each fault does something."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from notification_bus.notification import BusNotification
from notification_bus.testing.harness import DeafLink, Link
from notification_bus.testing.selfcheck._desk import Desk, Ear, ObstacleError, Say

__all__ = ["examine_links"]

_FAULTS: Final = ("delay", "stall", "blackhole", "cut", "refuse")
_METHODS: Final = (*_FAULTS, "restore")

_WINDOW: Final = 0.12
"""Seconds in which nothing may come through a link that carries nothing; more where the way is slow."""

_LATE: Final = 0.15
"""Seconds of delay."""


@dataclass(slots=True)
class _Findings:
    flowing: list[str] = field(default_factory=list[str])
    """Faults in spite of which everything arrived."""
    uncounted: list[str] = field(default_factory=list[str])
    """Faults before which a connection through the link was made and not counted."""
    unreached: dict[str, str] = field(default_factory=dict[str, str])
    """Faults for which nothing could be heard through the link to begin with, and why."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """An instance that goes through a link, is subscribed, and has heard something."""

    channel: str
    link: Link
    ear: Ear
    say: Say
    window: float


async def examine_links(desk: Desk, *, by_wire: bool) -> None:
    """Look at each fault, on a link of its own.

    Args:
        desk: The examination, which has found nothing to object to so far.
        by_wire: Whether the wire can be spoken through; another instance where it cannot.
    """
    if not await _expect_link(desk):
        return
    found = _Findings()
    async with anyio.create_task_group() as tasks:
        for fault in (*_FAULTS, "deaf"):
            tasks.start_soon(_examine, desk, fault, found, by_wire)
    if len(found.unreached) >= len(_FAULTS):
        desk.accuse(
            "link",
            "an instance that goes through a link with no fault on it hears nothing, and others do: "
            + next(iter(found.unreached.values())),
        )
    if found.uncounted:
        desk.accuse(
            "link",
            "`attempts` is 0 after an instance has connected through the link: either `instance` does not go through "
            "the link that it is given, or connections are not counted",
        )
    if found.flowing:
        names = [f"`{name}`" for name in (*_FAULTS, "deaf") if name in found.flowing]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        desk.accuse(
            "link",
            f"after {listed} notifications arrive through the link as if nothing had happened, so "
            f"{'that fault does' if len(names) == 1 else 'these faults do'} nothing",
        )


async def _expect_link(desk: Desk) -> bool:
    manager = desk.harness.link()
    assert manager is not None  # noqa: S101  # the caller has looked
    if not desk.expect_manager("link", manager, "the link"):
        return False
    try:
        async with desk.held(manager, "`link`") as link:
            lacking = [f"`{name}`" for name in _METHODS if not callable(getattr(link, name, None))]
            if not isinstance(getattr(link, "attempts", None), int):
                lacking.append("`attempts`, a number")
            if lacking:
                desk.accuse("link", f"`link` yielded a {type(link).__name__}, which has no {', no '.join(lacking)}")
    except ObstacleError as exc:
        desk.accuse("link", str(exc))
        return False
    return not lacking


@asynccontextmanager
async def _voice(desk: Desk, channel: str, *, by_wire: bool) -> AsyncGenerator[Say]:
    """A way to the channel that goes around the link."""
    wire = desk.harness.wire
    if by_wire and wire is not None:

        async def inject(notification: BusNotification) -> None:
            await wire.inject(channel, notification.encode())

        yield inject
    else:
        async with desk.held(desk.harness.instance(channel), "`instance`") as bus:
            yield bus.publish


async def _examine(desk: Desk, fault: str, found: _Findings, by_wire: bool) -> None:
    channel = desk.channel(fault)
    manager = desk.harness.link()
    assert manager is not None  # noqa: S101  # the caller has looked
    try:
        async with desk.held(manager, "`link`") as link:
            if fault == "deaf" and not isinstance(link, DeafLink):
                return
            began = anyio.current_time()
            async with (
                desk.held(desk.harness.instance(channel, link), "`instance`, with a link,") as bus,
                desk.listening(bus, channel) as ear,
                _voice(desk, channel, by_wire=by_wire) as say,
            ):
                if await desk.heard(say, ear, desk.patience) is None:
                    found.unreached[fault] = f"nothing arrived within {desk.patience:g} s"
                    return
                window = min(max(_WINDOW, (anyio.current_time() - began) * 2), 1.0)
                if link.attempts < 1:
                    found.uncounted.append(fault)
                await _PROBES[fault](desk, _Ground(channel, link, ear, say, window), found)
                # So that leaving is quick.
                await desk.call("link", "link.restore", link.restore)
    except ObstacleError as exc:
        found.unreached[fault] = str(exc)


async def _begin(desk: Desk, ground: _Ground, fault: str) -> bool:
    function: Callable[[], Awaitable[object]] = getattr(ground.link, fault)
    return await desk.call("link", f"link.{fault}", function)


async def _delay(desk: Desk, ground: _Ground, found: _Findings) -> None:
    if not await desk.call("link", "link.delay", lambda: ground.link.delay(_LATE)):
        return
    began = anyio.current_time()
    number = await desk.say(ground.say, ground.channel)
    arrived = await desk.until(lambda: number in ground.ear.numbers, _LATE * 2)
    if arrived and anyio.current_time() - began < _LATE / 2:
        found.flowing.append("delay")


async def _silent(desk: Desk, ground: _Ground, found: _Findings, fault: str) -> None:
    """A fault after which nothing comes through, unless a new connection is made."""
    before = ground.link.attempts
    if not await _begin(desk, ground, fault) or await desk.heard(ground.say, ground.ear, ground.window) is None:
        return
    # A connection that is counted was made anew: that is what the other faults allow.
    if fault in ("stall", "deaf") or ground.link.attempts == before:
        found.flowing.append(fault)


async def _stall(desk: Desk, ground: _Ground, found: _Findings) -> None:
    await _silent(desk, ground, found, "stall")


async def _blackhole(desk: Desk, ground: _Ground, found: _Findings) -> None:
    await _silent(desk, ground, found, "blackhole")


async def _cut(desk: Desk, ground: _Ground, found: _Findings) -> None:
    await _silent(desk, ground, found, "cut")


async def _deaf(desk: Desk, ground: _Ground, found: _Findings) -> None:
    await _silent(desk, ground, found, "deaf")


async def _refuse(desk: Desk, ground: _Ground, found: _Findings) -> None:
    link = ground.link
    before = link.attempts
    if not await _begin(desk, ground, "refuse"):
        return
    if await desk.heard(ground.say, ground.ear, ground.window) is not None:
        found.flowing.append("refuse")
        return
    counted = await desk.until(lambda: link.attempts > before, desk.patience / 3)
    if not counted and before and not await _counts_another(desk, link):
        desk.accuse("link", "`attempts` does not grow while `refuse` refuses connections: refused ones count as well")
    if not await _begin(desk, ground, "restore"):
        return
    if await desk.heard(ground.say, ground.ear, desk.patience / 3) is None:
        # That instance may have given up for good, which another has not.
        await _expect_restored(desk, ground)


async def _counts_another(desk: Desk, link: Link) -> bool:
    """Whether the attempts of another instance are counted: the first may have given up."""
    before = link.attempts
    channel = desk.channel("refused")

    async def try_to_subscribe() -> None:
        with scope:
            try:
                async with (
                    desk.held(desk.harness.instance(channel, link), "`instance`") as bus,
                    desk.listening(bus, channel),
                ):
                    pass
            except ObstacleError:
                pass

    scope = anyio.CancelScope()
    desk.tasks.start_soon(try_to_subscribe)
    counted = await desk.until(lambda: link.attempts > before, desk.patience)
    scope.cancel()
    return counted


async def _expect_restored(desk: Desk, ground: _Ground) -> None:
    channel = desk.channel("restored")
    heard = None
    try:
        async with (
            desk.held(desk.harness.instance(channel, ground.link), "`instance`") as bus,
            desk.listening(bus, channel) as ear,
        ):
            heard = await desk.heard(bus.publish, ear, desk.patience)
    except ObstacleError:
        pass
    if heard is None:
        desk.accuse("link", "after `refuse` and `restore` nothing comes through the link, nor for a new instance")


_PROBES: Final = {
    "delay": _delay,
    "stall": _stall,
    "blackhole": _blackhole,
    "cut": _cut,
    "refuse": _refuse,
    "deaf": _deaf,
}
