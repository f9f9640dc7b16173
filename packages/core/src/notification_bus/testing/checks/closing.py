"""Closing: bounded in any state, complete, as often as one likes, and final."""

import os
import threading
import time

import anyio

from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError
from notification_bus.testing._tasks import is_pooled, running_tasks
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.harness import Link
from notification_bus.testing.traffic import ECHO, HEALTHY, publish_paced, settle


def _bound(kit: Context) -> float:
    """The stated time, and what a busy machine may add to it."""
    return kit.capabilities.close_timeout + kit.promptly


async def _close(kit: Context, buses: list[NotificationBus], how: str) -> None:
    """Close, all of these at the same time, within the stated time and without an exception."""
    promised = f"closing returns within `close_timeout` = {kit.capabilities.close_timeout:g} s and raises nothing"

    closers = [kit.closer(bus) for bus in buses]

    async def close_all() -> None:
        async with anyio.create_task_group() as tasks:
            for closer in closers:
                tasks.start_soon(closer)

    problem: Exception | None = None

    async def close_each() -> None:
        nonlocal problem
        try:
            await close_all()
        except Exception as exc:
            problem = exc

    await kit.within(_bound(kit), close_each, promised, f"closing {how} has not returned")
    kit.expect(problem is None, promised, f"closing {how} raised {problem!r}")


@check("close.idempotent_and_concurrent", "MUST", "close")
async def close_idempotent_and_concurrent(kit: Context) -> None:
    """Closing twice, at the same time, or without ever having started is no error and does not hang."""
    async with kit.instance() as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], ECHO)
        await _close(kit, [bus], "an instance in use")
        await _close(kit, [bus], "a second time")
    async with kit.instance() as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], ECHO)
        await _close(kit, [bus, bus], "twice at the same time")
    if kit.hooks.build is not None:
        await _close(kit, [kit.build()], "an instance that was never started")


@check("close.ends_streams", "MUST", "close")
async def close_ends_streams(kit: Context) -> None:
    """Closing an instance ends the loops of its subscribers normally."""
    promised = "closing the instance ends the loops of its subscribers, normally"
    async with kit.instance() as bus, kit.subscribed(bus) as first, kit.subscribed(bus) as second:
        pumps = [first, second]
        await publish_paced(kit, bus, 1, pumps, ECHO)
        await _close(kit, [bus], "an instance whose subscribers wait")
        await kit.until(
            lambda: all(pump.done.is_set() for pump in pumps),
            promised,
            lambda: "; ".join(f"{p.name}: alive" for p in pumps if p.alive),
        )
        for pump in pumps:
            kit.expect(pump.ended and pump.error is None, promised, pump)


@check("close.bounded_in_outage_and_overflow", "MUST", "close", needs={"cut", "stall"})
async def close_bounded_in_outage_and_overflow(kit: Context) -> None:
    """Closing returns within the stated time while the broker is gone or frozen and every buffer is full."""

    async def refused(link: Link) -> None:
        await link.refuse()

    async def stalled(link: Link) -> None:
        await link.stall()

    for state, fault in (("gone", refused), ("frozen", stalled)):
        async with (
            kit.link() as link,
            kit.instance(link=link) as bus,
            kit.subscribed(bus, "the reading subscription") as pump,
            kit.subscribed(bus, "the slow subscription", reading=False),
        ):
            await publish_paced(kit, bus, 2 * kit.capabilities.buffer, [pump], HEALTHY)
            await fault(link)
            for _ in range((kit.capabilities.outbox or 0) + 10):
                await kit.publish_numbered(bus)
            await _close(kit, [bus], f"with the broker {state} and every buffer full")
            await link.restore()
        # Closed again before it ever had a connection.
        async with kit.link() as link:
            await fault(link)
            async with kit.instance(link=link) as bus:
                await kit.publish_numbered(bus)
                await kit.until(lambda: link.attempts > 0, "a started instance connects", "it never tried to connect")
                await _close(kit, [bus], f"with the broker {state} from the beginning")
            await link.restore()


@check("close.leaves_nothing_and_publish_is_defined", "MUST", "close", needs={"two"})
async def close_leaves_nothing_and_publish_is_defined(kit: Context) -> None:
    """A closed instance leaves no task, thread or socket, refuses to publish at once and sends nothing more."""
    async with kit.instance() as peer, kit.subscribed(peer, "the peer's subscription") as witness:
        await publish_paced(kit, peer, 1, [witness], ECHO)
        tasks, threads, open_sockets = set(running_tasks()), set(threading.enumerate()), sockets()
        async with kit.instance() as bus:
            async with kit.subscribed(bus) as pump:
                await publish_paced(kit, bus, 3, [pump, witness], HEALTHY)
            await _close(kit, [bus], "an instance")
            if kit.alone:
                await expect_nothing_left(kit, tasks, threads, open_sockets)
            number, notification = kit.numbered()
            began = time.perf_counter()
            problem: Exception | None = None
            with anyio.move_on_after(kit.timing.wait) as scope:
                try:
                    await bus.publish(notification)
                except Exception as exc:
                    problem = exc
            took = time.perf_counter() - began
            promised = "publishing on a closed instance raises BusClosedError at once"
            kit.expect(not scope.cancelled_caught, promised, f"it had not returned after {kit.timing.wait:g} s")
            kit.expect(isinstance(problem, BusClosedError), promised, f"it raised {problem!r}")
            kit.expect(took <= kit.promptly, promised, f"it took {took:.3f} s")
            problem = None
            try:
                async with bus.subscribe():
                    pass
            except Exception as exc:
                problem = exc
            kit.expect(
                isinstance(problem, BusClosedError),
                "entering a subscription of a closed instance raises BusClosedError",
                f"it raised {problem!r}",
            )
        await settle(kit, [peer], [witness], HEALTHY)
        kit.expect(number not in witness.numbers, "a closed instance sends nothing", f"{witness}, {number} among them")


async def expect_nothing_left(
    kit: Context, tasks: set[object], threads: set[threading.Thread], open_sockets: set[str]
) -> None:
    """Expect that there is nothing that was not there before."""

    def left() -> list[str]:
        return [
            *(f"the task {name}" for task, name in running_tasks().items() if task not in tasks),
            *(f"the thread {t.name}" for t in threading.enumerate() if t not in threads and not is_pooled(t)),
            *(f"the open {socket}" for socket in sockets() - open_sockets),
        ]

    await kit.until(lambda: not left(), "a closed instance leaves no task, thread or socket", lambda: "; ".join(left()))


def sockets() -> set[str]:
    """The sockets that this process has open, where the system tells."""
    folder = "/proc/self/fd"
    found: set[str] = set()
    if not os.path.isdir(folder):  # noqa: PTH112  # a handful of calls, in a loop that polls
        return found
    for name in os.listdir(folder):  # noqa: PTH208  # as above
        try:
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115  # as above
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found
