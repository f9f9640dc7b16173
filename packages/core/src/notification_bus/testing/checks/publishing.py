"""Publishing: handed off at once, whatever the broker does; refused at once where the caller can mend it."""

import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

from anyio.lowlevel import checkpoint

from notification_bus import JsonObject
from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification, decode_bodies
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.harness import Link, Observed
from notification_bus.testing.pump import Pump
from notification_bus.testing.traffic import (
    ECHO,
    HEALTHY,
    drive_until_heard,
    expect_prompt_publishing,
    publish_paced,
    settle,
)

_TRIES: Final = 3
_SNAPSHOT: Final = "notifications/contract/snapshot"


@check("publish.prompt_when_broker_stalls", "MUST", "hand_off", needs={"stall"})
async def publish_prompt_when_broker_stalls(kit: Context) -> None:
    """`publish` returns at once while the broker accepts bytes and answers nothing."""
    async with kit.link() as link, kit.instance(link=link) as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], ECHO)
        await link.stall()
        await expect_prompt_publishing(kit, bus, 10, "while the broker accepts bytes and answers nothing")
        await link.restore()


@check("publish.never_raises_when_broker_down", "MUST", "hand_off", needs={"cut"})
async def publish_never_raises_when_broker_down(kit: Context) -> None:
    """`publish` returns and raises nothing while the broker cannot be reached."""
    async with kit.link() as link, kit.instance(link=link) as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], ECHO)
        tried = link.attempts
        await link.refuse()
        # Before the instance knows of it, and again when it does.
        await expect_prompt_publishing(kit, bus, 5, "in the moment in which the broker goes away")
        await kit.until(
            lambda: link.attempts > tried, "an instance whose broker went away tries to reach it", "it does not try"
        )
        await expect_prompt_publishing(kit, bus, 5, "while the broker cannot be reached")
        await link.restore()
        await drive_until_heard(kit, bus, [pump], "once the broker is back, publishing reaches it again")


@check("publish.outage_backlog_is_bounded", "MUST", "bounded", needs={"cut", "two"})
async def publish_outage_backlog_is_bounded(kit: Context) -> None:
    """What is published in an outage is kept up to the stated outbox, the rest dropped with a warning."""
    bound = kit.capabilities.outbox or 0
    count = 6 * max(bound, 10)
    promised = f"of what is published in an outage at most `outbox` + 1 = {bound + 1} is kept, and the rest dropped"
    async with (
        kit.link() as link,
        kit.instance(link=link) as bus,
        kit.instance() as peer,
        kit.subscribed(bus) as own,
        kit.subscribed(peer, "the peer's subscription") as pump,
    ):
        await publish_paced(kit, bus, 1, [own, pump], HEALTHY)
        tried = link.attempts
        await link.refuse()
        await kit.until(
            lambda: link.attempts > tried, "an instance whose broker went away tries to reach it", "it does not try"
        )
        drops = len(kit.drops)
        stale: list[int] = []
        slow = 0
        for _ in range(count):
            number, notification = kit.numbered()
            slow += await kit.publish(bus, notification) > kit.prompt
            stale.append(number)
        # A machine is late now and then; a bus that waits for room is late each time.
        kit.expect(
            slow <= 3, "`publish` returns at once while the outbox is full", f"{slow} of {count} calls were slow"
        )
        await kit.until(
            lambda: len(kit.drops) > drops,
            "drops from an outbox that is full are warned of",
            f"no warning of a drop on {kit.capabilities.drop_logger!r}, though {count} were published in an outage",
        )
        arrived = await _arrivals_after(kit, link, bus, pump)
        late = sorted(set(stale) & arrived)
        kit.expect(len(late) <= bound + 1, promised, f"of {count} published in the outage {len(late)} came after it")


async def _arrivals_after(kit: Context, link: Link, bus: NotificationBus, pump: Pump) -> set[int]:
    """End the outage; the numbers that come after it, up to the first that was published then."""
    promised = "after an outage new notifications get through"
    if kit.hooks.wire is None:
        await link.restore()
        await drive_until_heard(kit, bus, [pump], promised)
        return set(pump.numbers)
    # The wire shows what was sent; a subscription can drop some of such a burst.
    async with kit.wire.observe(kit.channel) as observed:
        await link.restore()
        markers = await drive_until_heard(kit, bus, [pump], promised)
        heard = set(markers) & set(pump.numbers)
        await kit.until(
            lambda: heard & _numbers_on(kit, observed), "`wire.observe` sees what subscriptions see", "it does not"
        )
        return _numbers_on(kit, observed)


def _numbers_on(kit: Context, observed: Observed) -> set[int]:
    arrived = (item for body in observed.bodies for item in decode_bodies(body)[0])
    return {number for item in arrived if (number := kit.number_of(item)) is not None}


def _snapshot_params(number: int) -> dict[str, Any]:
    return {"uri": f"kit://snapshot/{number}", "list": [1, {"deep": ["a", None]}], "object": {"x": 1.5, "empty": {}}}


@check("publish.snapshots_its_input", "MUST", "hand_off", needs={"stall"}, brokerless=True)
async def publish_snapshots_its_input(kit: Context) -> None:
    """`publish` changes nothing of the caller's, and what the caller changes afterwards does not travel."""
    promised = "what travels is the value at the time of the call"
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(kit.link()) if kit.capabilities.has_broker else None
        bus = await stack.enter_async_context(kit.instance(link=link))
        pump = await stack.enter_async_context(kit.subscribed(bus))
        await publish_paced(kit, bus, 1, [pump], ECHO)
        for _ in range(_TRIES):
            before = len(pump.items)
            if link is not None:
                await link.stall()
            # Several, so that some wait behind the one that is already on its way.
            wanted = [await _publish_and_change(kit, bus, number) for number in range(3)]
            if link is not None:
                await link.restore()

            def arrived(before: int = before) -> list[BusNotification]:
                later = [item for item in pump.items[before:] if isinstance(item, BusNotification)]
                return [item for item in later if item.method == _SNAPSHOT]

            if await kit.comes_true(lambda wanted=wanted: len(arrived()) >= len(wanted), kit.timing.wait / _TRIES):  # type: ignore[misc]
                kit.expect(arrived() == wanted, promised, f"{arrived()!r} arrived, published were {wanted!r}")
                return
        # On a machine that is slow enough the bus takes even a short stall for an outage, and gives up what is in
        # doubt.
        kit.untestable("what was published during a short stall never arrived, so it could not be looked at")


async def _publish_and_change(kit: Context, bus: NotificationBus, number: int) -> BusNotification:
    params = _snapshot_params(number)
    notification = BusNotification(_SNAPSHOT, params)
    wanted = BusNotification(_SNAPSHOT, _snapshot_params(number))
    await kit.publish(bus, notification)
    promised = "`publish` changes nothing of the caller's"
    kit.expect(params == _snapshot_params(number), promised, f"the params it was built from are now {params!r}")
    kit.expect(notification == wanted, promised, f"the notification is now {notification!r}")
    # As a handler does that fills the next one in the same dict; what `params` gives is changed too, whatever it is.
    for changed in (params, cast("dict[str, Any]", notification.params)):
        changed["uri"] = "kit://changed"
        changed["list"][1]["deep"].append("changed")
        changed["added"] = True
    return wanted


def _build(params: object) -> Any:
    return BusNotification("notifications/bad", cast("JsonObject", params))


def _itself(stranger: object) -> Any:
    return stranger


def _impostor(params: object) -> Any:
    """Looks like a notification, and was never checked like one."""
    return SimpleNamespace(method="notifications/impostor", params=params)


@check("publish.unencodable_fails_fast", "MUST", "hand_off")
async def publish_unencodable_fails_fast(kit: Context) -> None:
    """What cannot be encoded is refused before anything of it travels, and spoils nothing."""
    promised = "what cannot be encoded is refused at once, with a ValueError or TypeError"
    unfit: list[tuple[str, Any]] = [
        ("an object", {"value": object()}),
        ("NaN", {"value": float("nan")}),
        ("an infinity", {"value": float("inf")}),
        ("a lone surrogate", {"value": "\ud800"}),
        ("a lone surrogate in a key", {"\udfff": 1}),
        ("a key that is no string", {1: "value"}),
        ("an integer beyond 64 bits", {"value": 2**64}),
        ("bytes", {"value": b"x"}),
        ("a list in place of params", ["value"]),
    ]
    # Text has an `encode` of its own, which a bus that does not look takes for that of a notification.
    strangers: list[Any] = ["text", b"bytes", None, {"method": "notifications/bad"}]
    async with kit.instance() as bus, kit.subscribed(bus) as pump:

        async def expect_refusal(what: str, build: Callable[[], Any], *errors: type[Exception]) -> None:
            problem: Exception | None = None
            try:
                await bus.publish(cast("BusNotification", build()))
            except Exception as exc:
                problem = exc
            seen = "it was accepted" if problem is None else f"it raised {problem!r}"
            kit.expect(isinstance(problem, errors), promised, f"{what}: {seen}")

        for what, params in unfit:
            await expect_refusal(f"params with {what}", partial(_build, params), ValueError, TypeError)
            # What is no notification at all may fail as it does anywhere in Python.
            looks = partial(_impostor, params)
            await expect_refusal(
                f"something like a notification, its params with {what}", looks, ValueError, TypeError, AttributeError
            )
        for stranger in strangers:
            await expect_refusal(repr(stranger), partial(_itself, stranger), ValueError, TypeError, AttributeError)
        await settle(kit, [bus], [pump], "after something was refused, the next good notification arrives")
        extra = [item for item in pump.items if kit.number_of(item) is None]
        kit.expect(not extra, "what was refused does not travel", f"{len(extra)} arrived, the first {extra[:1]!r}")


class _Pulse(threading.Thread):
    """Beats beside the event loop, and so notices when the machine stops the whole process, which is no bus's fault."""

    def __init__(self) -> None:
        super().__init__(name="a pulse of the contract kit", daemon=True)
        self.longest = 0.0
        self._over = False

    def run(self) -> None:
        """Beat until it is stopped."""
        last = time.perf_counter()
        while not self._over:
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._over = True
        self.join()


@check("publish.yields_and_never_blocks_loop", "MUST", "hand_off")
async def publish_yields_and_never_blocks_loop(kit: Context) -> None:
    """A burst of publishing lets other tasks run, and blocks the event loop for no noticeable time."""
    count = 100 * kit.scale
    allowed = kit.timing.blocked * kit.copies
    ticks = 0
    longest = 0.0
    last = 0.0
    stop = False

    async def tick() -> None:
        nonlocal ticks, longest, last
        while not stop:
            now = time.perf_counter()
            longest = max(longest, now - last)
            last = now
            ticks += 1
            await checkpoint()

    async with kit.instance() as bus, kit.subscribed(bus):
        least: list[tuple[float, int, int]] = []
        for _ in range(_TRIES):
            stop, last, longest = False, time.perf_counter(), 0.0
            pulse = _Pulse()
            pulse.start()
            kit.spawn(tick)
            await checkpoint()
            ticks, done, late = 0, 0, 0.0
            for _ in range(count):
                await kit.publish(bus, kit.numbered()[1])
                done += 1
                longest = max(longest, time.perf_counter() - last)
                late = max(0.0, longest - pulse.longest)
                if late > allowed:
                    break
            pulse.stop()
            least.append((late, ticks, done))
            stop = True
            await checkpoint()
            if late <= allowed:
                break
        late, ticks, done = min(least)
        kit.expect(
            late <= allowed,
            f"publishing keeps the event loop from others for no more than {allowed:g} s",
            f"{late:.3f} s, in each of {len(least)} bursts",
        )
        kit.expect(
            ticks >= 2,
            "a burst of publishing gives the event loop its turns",
            f"{ticks} turns of another task during {done} calls of `publish`, one after the other",
        )
