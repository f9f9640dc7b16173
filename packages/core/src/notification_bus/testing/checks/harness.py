"""Is the harness honest? These run before the others, so that a bus is not blamed for what its harness does.

A harness is accused only of what was seen: something arrived that could not have, or something did not arrive although
others of its kind did. If the bus may be the cause, nothing is said here, and the other checks say it better.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification
from notification_bus.options import BusOptions
from notification_bus.testing._process import start_child
from notification_bus.testing._shape import expect_manager, one_line
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.harness import DeafLink, Link, Observed, Wire
from notification_bus.testing.pump import Pump

__all__ = ["harness_build", "harness_child", "harness_instances", "harness_links", "harness_wire"]

_Say = Callable[[BusNotification], Awaitable[object]]
"""A way to put a notification on a channel."""

_FAULTS: Final = ("delay", "stall", "blackhole", "cut", "refuse")

_PAUSE: Final = 0.03
"""Seconds between two markers: a bus may lose its first, and other checks say so."""

_WINDOW: Final = 0.12
"""Seconds for which nothing may arrive through a link that carries nothing; more on a slow network."""

_LATE: Final = 0.15
"""Seconds of delay."""


async def _say(kit: Context, say: _Say) -> int:
    """Publish one marker; its number. An error is no matter of this module: the marker does not arrive."""
    number, marker = kit.numbered()
    with anyio.move_on_after(kit.timing.wait), suppress(Exception):
        await say(marker)
    return number


async def _heard(kit: Context, say: _Say, pump: Pump, within: float) -> bool:
    """Publish one marker after the other until one arrives, at most so long."""
    said: list[int] = []
    deadline = anyio.current_time() + within
    while pump.alive:
        said.append(await _say(kit, say))
        if await kit.comes_true(lambda: any(n in pump.numbers for n in said) or not pump.alive, _PAUSE):
            return any(n in pump.numbers for n in said)
        if anyio.current_time() > deadline:
            break
    return False


async def _call(kit: Context, name: str, function: Callable[[], Awaitable[object]]) -> None:
    """Call a method of the harness, which must return in time and must not raise."""
    with anyio.move_on_after(kit.timing.wait) as scope:
        try:
            await function()
        except Exception as exc:
            kit.accuse(f"`{name}` raised {one_line(exc)}")
    if scope.cancelled_caught:
        kit.accuse(f"`{name}` had not returned after {kit.timing.wait:g} s")


# -- instances


@check("harness.build", "MUST", "harness", needs={"build"})
async def harness_build(kit: Context) -> None:
    """`build` gives a new bus at each call."""
    try:
        first, second = kit.build(), kit.build()
    except Exception as exc:
        kit.untestable(f"`build` raised {one_line(exc)}")
    if first is second:
        kit.accuse("`build` returned the same object twice: build a new bus at each call")
    _expect_bus(kit, first, "build")


def _expect_bus(kit: Context, bus: object, member: str) -> None:
    lacking = [name for name in ("publish", "subscribe") if not callable(getattr(bus, name, None))]
    if lacking:
        listed = "` and no `".join(lacking)
        kit.accuse(f"`{member}` gave a {type(bus).__name__}, which is not a bus: it has no `{listed}`")


@check("harness.instances", "MUST", "harness", needs={"two"})
async def harness_instances(kit: Context) -> None:
    """Each instance is a bus of its own, on the channel that it was given, and can hold and carry what is declared."""
    expect_manager(kit, "instance", kit.harness.instance(kit.channel), "the bus")
    other = f"{kit.channel}-other"
    async with kit.instance() as one, kit.instance() as two, kit.instance(other) as stranger:
        _expect_bus(kit, one, "instance")
        if one is two or one is stranger:
            kit.accuse("`instance` yielded the same object twice: build a new bus at each call")
        async with kit.subscribed(one) as ear, kit.subscribed(two) as second, kit.subscribed(stranger) as strange:
            _compare(kit, one)
            if not await _heard(kit, two.publish, ear, kit.timing.wait / 2):
                await _apart(kit, (one, two), (ear, second))
                kit.untestable("one instance does not receive what another publishes")
            if strange.numbers:
                _expect_same_channel(kit, one)
                kit.untestable("the bus does not keep channels apart")


def _expect_same_channel(kit: Context, bus: NotificationBus) -> None:
    """Channels are not kept apart: look whether `instance` gives a bus another channel than `build` does."""
    if "build" not in kit.harness.hooks:
        return
    given, used = (_channel_of(each, kit.channel) for each in (kit.build(), bus))
    if used != given:
        kit.accuse(
            "`instance` does not use the channel that it is given: what is published on one is received on another; "
            f"a bus of `build` is on {given!r}, and this one on {used!r}"
        )


def _channel_of(bus: object, given: str) -> str:
    """The channel that a bus says it is on; the one that it was given if it does not say."""
    return str(getattr(bus, "channel", given))


def _compare(kit: Context, bus: NotificationBus) -> None:
    """Compare what is declared with what the bus says of itself."""
    options: object = getattr(bus, "options", None)
    says: dict[str, object] = {"max_body": getattr(bus, "max_body", None)}
    if isinstance(options, BusOptions):
        says |= {"buffer": options.buffer, "outbox": options.outbox}
    found: list[str] = []
    for name, actual in says.items():
        claimed: int | None = getattr(kit.capabilities, name)
        if claimed is not None and isinstance(actual, int) and claimed > actual:
            found.append(
                f"the capability {name}={claimed} is impossible for the bus that `instance` builds, which has "
                f"{name}={actual}"
            )
    if found:
        kit.accuse(*found)


async def _apart(kit: Context, buses: Sequence[NotificationBus], pumps: Sequence[Pump]) -> None:
    """One instance does not hear the other. One that does not hear itself either may just be deaf."""
    for bus, pump in zip(buses, pumps, strict=True):
        if not await _heard(kit, bus.publish, pump, kit.timing.wait / 3):
            return
    one, two = (_channel_of(bus, kit.channel) for bus in buses)
    # Two that were given the same name and do not hear each other: that is the bus.
    if one != two:
        kit.accuse(
            "two instances for one channel do not hear each other, and each hears itself: they are on the channels "
            f"{one!r} and {two!r}. Build each with exactly the name that `instance` is given"
        )


@asynccontextmanager
async def _receiving(kit: Context, name: str, link: Link | None = None) -> AsyncGenerator[tuple[NotificationBus, Pump]]:
    """An instance on that channel, and a subscriber of it."""
    async with kit.instance(name, link) as bus, kit.subscribed(bus) as pump:
        yield bus, pump


# -- the wire


@check("harness.wire", "MUST", "harness", needs={"wire"})
async def harness_wire(kit: Context) -> None:
    """`wire` shows what is on the channel of the instances, and puts something there."""
    manager = kit.wire.observe(kit.channel)
    expect_manager(kit, "wire.observe", manager, "what is observed")
    async with _receiving(kit, kit.channel) as (bus, ear), _receiving(kit, kit.channel) as (_, other):
        try:
            observed = await manager.__aenter__()
        except Exception as exc:
            kit.accuse(f"`wire.observe` raised {one_line(exc)}")
        try:
            _expect_bytes(kit, observed)
            # What another instance has received was on the channel.
            if await _heard(kit, bus.publish, other, kit.timing.wait / 2):
                await _look_at_wire(kit, kit.wire, observed, ear)
        finally:
            with anyio.move_on_after(kit.timing.wait, shield=True):
                await manager.__aexit__(None, None, None)


def _expect_bytes(kit: Context, observed: Observed) -> None:
    bodies: object = getattr(observed, "bodies", None)
    strange = None
    if not isinstance(bodies, Sequence) or isinstance(bodies, str | bytes):
        strange = f"a {type(observed).__name__} whose `bodies` are {bodies!r}"
    elif odd := [body for body in list(bodies) if not isinstance(body, bytes)]:  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
        strange = f"bodies that are not bytes, {odd[0]!r} for instance"
    if strange is not None:
        kit.accuse(f"`wire.observe` yielded {strange}: it must have `bodies`, a sequence of bytes")


async def _look_at_wire(kit: Context, wire: Wire, observed: Observed, ear: Pump) -> None:
    shows_bus = await kit.comes_true(lambda: len(observed.bodies), kit.timing.wait / 2)
    _expect_bytes(kit, observed)
    sent = list(observed.bodies)
    injected: list[bytes] = []

    async def inject(notification: BusNotification) -> None:
        injected.append(notification.encode())
        await wire.inject(kit.channel, injected[-1])

    await _call(kit, "wire.inject", partial(inject, BusNotification("notifications/contract/wire")))
    hears = await _heard(kit, inject, ear, kit.timing.wait / 3)
    if not hears and sent:
        # A bus with a format of its own reads only what it has sent itself, and another check says so.
        before = len(ear.numbers)
        for body in sent[-2:]:
            await _call(kit, "wire.inject", partial(wire.inject, kit.channel, body))
        hears = await kit.comes_true(lambda: len(ear.numbers) > before, kit.timing.wait / 3)
    shows_injected = await kit.comes_true(
        lambda: any(body in observed.bodies for body in injected), 0 if shows_bus and hears else kit.timing.wait / 2
    )
    if not shows_bus and not shows_injected:
        also = "" if hears else "; nor does an instance hear what `wire.inject` injects"
        kit.accuse(
            "`wire.observe` shows nothing: neither what an instance published, and another received, nor what "
            f"`wire.inject` injected{also}"
        )
    if not shows_bus and not hears:
        kit.accuse(
            "`wire` is not on the channel that the instances are on: it shows nothing of what they publish, they hear "
            "nothing of what it injects, and it sees itself. Give it the name that the bus uses on the broker, and the "
            "same broker"
        )
    if shows_bus and not shows_injected and not hears:
        kit.accuse(
            "`wire.inject` injects nothing: no instance hears it, and `wire.observe`, which shows what instances "
            "publish, does not show it"
        )


# -- links


@dataclass(slots=True)
class _Findings:
    """What was found on the links, one for each fault."""

    accusations: list[str] = field(default_factory=list[str])
    flowing: list[str] = field(default_factory=list[str])
    """Faults in spite of which everything arrived."""
    uncounted: bool = False
    """A connection was made through a link and not counted."""
    unreached: list[str] = field(default_factory=list[str])
    """Why nothing was received through a link before there was any fault on it."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """An instance that goes through a link and has received something."""

    link: Link
    ear: Pump
    say: _Say
    """How to publish without the link."""
    window: float
    """Seconds in which a notification that comes through would have arrived."""


@check("harness.links", "MUST", "harness", needs={"delay", "stall", "cut"})
async def harness_links(kit: Context) -> None:
    """An instance connects through the link that it is given, each fault has an effect, and `attempts` counts."""
    manager = kit.link()
    expect_manager(kit, "link", manager, "the link")
    try:
        async with manager as link:
            lacking = [f"`{name}`" for name in (*_FAULTS, "restore") if not callable(getattr(link, name, None))]
            if not isinstance(getattr(link, "attempts", None), int):
                lacking.append("`attempts`, a number")
            is_deaf = isinstance(link, DeafLink)
    except Exception as exc:
        kit.accuse(f"`link` raised {one_line(exc)}")
    if lacking:
        kit.accuse(f"`link` yielded a {type(link).__name__}, which has no {', no '.join(lacking)}")
    found, by_wire = _Findings(), await _hears_wire(kit)
    faults = (*_FAULTS, "deaf") if is_deaf else _FAULTS
    async with anyio.create_task_group() as tasks:
        for fault in faults:
            tasks.start_soon(_try_fault, kit, fault, found, by_wire)
    if len(found.unreached) >= len(_FAULTS):
        found.accusations.append(
            "an instance that goes through a link with no fault on it hears nothing, and others do: "
            + found.unreached[0]
        )
    if found.uncounted:
        found.accusations.append(
            "`attempts` is 0 after an instance has connected through the link: either `instance` does not go through "
            "the link that it is given, or connections are not counted"
        )
    if names := [f"`{name}`" for name in faults if name in found.flowing]:
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        found.accusations.append(
            f"after {listed} notifications arrive through the link as if nothing had happened, so "
            f"{'that fault does' if len(names) == 1 else 'these faults do'} nothing"
        )
    if found.accusations:
        kit.accuse(*dict.fromkeys(found.accusations))


async def _try_fault(kit: Context, fault: str, found: _Findings, by_wire: bool) -> None:
    """Look at one fault, on a link and a channel of its own. Errors of the bus end it: others report them."""
    name = f"{kit.channel}-{fault}"
    unreached = "no instance could be used in time"
    with anyio.move_on_after(kit.timing.wait * 4 + kit.capabilities.ready_timeout):
        try:
            async with kit.link() as link:
                began = anyio.current_time()
                async with _receiving(kit, name, link) as (_, ear), _voice(kit, name, by_wire=by_wire) as say:
                    unreached = f"nothing arrived within {kit.timing.wait:g} s"
                    if await _heard(kit, say, ear, kit.timing.wait):
                        unreached = ""
                        found.uncounted |= link.attempts < 1
                        window = min(max(_WINDOW, (anyio.current_time() - began) * 2), 1.0)
                        await _observe_fault(kit, _Trial(link, ear, say, window), fault, found)
                        # So that leaving is quick.
                        await _use(kit, link, "restore", found)
        except Exception as exc:
            unreached = unreached and one_line(exc)
    if unreached:
        found.unreached.append(unreached)


async def _hears_wire(kit: Context) -> bool:
    """Whether an instance hears what the wire injects: a bus with a format of its own does not."""
    if kit.harness.wire is None:
        return False
    async with _receiving(kit, kit.channel) as (_, ear):
        return await _heard(kit, partial(_inject, kit, kit.channel), ear, kit.timing.wait / 3)


async def _inject(kit: Context, name: str, notification: BusNotification) -> None:
    await kit.wire.inject(name, notification.encode())


@asynccontextmanager
async def _voice(kit: Context, name: str, *, by_wire: bool) -> AsyncGenerator[_Say]:
    """A way to the channel that avoids the link: the wire, or another instance."""
    if by_wire:
        yield partial(_inject, kit, name)
    else:
        async with kit.instance(name) as peer:
            yield peer.publish


async def _use(kit: Context, link: Link, fault: str, found: _Findings) -> bool:
    """Call a method of the link; whether it did what it is to do without an error."""
    arguments = (_LATE,) if fault == "delay" else ()
    with anyio.move_on_after(kit.timing.wait) as scope:
        try:
            await getattr(link, fault)(*arguments)
        except Exception as exc:
            found.accusations.append(f"`link.{fault}` raised {one_line(exc)}")
            return False
    if scope.cancelled_caught:
        found.accusations.append(f"`link.{fault}` had not returned after {kit.timing.wait:g} s")
    return not scope.cancelled_caught


async def _observe_fault(kit: Context, trial: _Trial, fault: str, found: _Findings) -> None:
    """Let the fault happen, and look what still arrives."""
    before = trial.link.attempts
    if not await _use(kit, trial.link, fault, found):
        return
    if fault == "delay":
        began = anyio.current_time()
        number = await _say(kit, trial.say)
        arrived = await kit.comes_true(lambda: number in trial.ear.numbers, _LATE * 2)
        if arrived and anyio.current_time() - began < _LATE / 2:
            found.flowing.append(fault)
    elif await _heard(kit, trial.say, trial.ear, trial.window):
        # Through a new connection, which is counted, something may arrive after a cut.
        if fault not in ("blackhole", "cut") or trial.link.attempts == before:
            found.flowing.append(fault)
    elif fault == "refuse":
        await _observe_refusal(kit, trial, before, found)


async def _observe_refusal(kit: Context, trial: _Trial, before: int, found: _Findings) -> None:
    """While `refuse` refuses, connections are counted; after `restore` an instance receives again."""
    link, name = trial.link, f"{kit.channel}-again"
    counted = await kit.comes_true(lambda: link.attempts > before, kit.timing.wait / 3)
    if not counted and before:
        # That instance may have given up for good, so another one tries.
        async def try_to_subscribe() -> None:
            with suppress(Exception):
                async with _receiving(kit, name, link):
                    pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(try_to_subscribe)
            counted = await kit.comes_true(lambda: link.attempts > before, kit.timing.wait)
            tasks.cancel_scope.cancel()
        if not counted:
            found.accusations.append(
                "`attempts` does not grow while `refuse` refuses connections: refused ones count as well"
            )
    if not await _use(kit, link, "restore", found):
        return
    if await _heard(kit, trial.say, trial.ear, kit.timing.wait / 3):
        return
    with suppress(Exception):
        async with _receiving(kit, name, link) as (bus, again):
            if await _heard(kit, bus.publish, again, kit.timing.wait):
                return
    found.accusations.append("after `refuse` and `restore` nothing comes through the link, nor for a new instance")


# -- the child


@check("harness.child", "MUST", "harness", needs={"process"})
async def harness_child(kit: Context) -> None:
    """The other process that `child` names starts, and becomes ready."""
    assert kit.harness.child is not None  # noqa: S101  # the check needs one
    limit = kit.timing.wait * 5 + kit.capabilities.ready_timeout
    async with start_child(kit.harness.child, kit.channel, "talk") as child:
        if not await kit.comes_true(lambda: child.ready or child.ended, limit):
            kit.accuse(f"the child process that `child` names is not ready after {limit:g} s: {child}")
        if not child.ready:
            kit.accuse(f"the child process that `child` names does not start: {child}")
