"""The life of a bus: built anywhere, entered as often as one likes, used in one event loop after the other."""

import threading
from contextlib import AbstractAsyncContextManager
from typing import cast

import anyio

from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError
from notification_bus.notification import BusNotification
from notification_bus.testing._tasks import is_pooled, running_tasks
from notification_bus.testing.check import check
from notification_bus.testing.checks.closing import expect_nothing_left, sockets
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import HEALTHY, publish_paced


def _enterable(kit: Context, bus: NotificationBus) -> AbstractAsyncContextManager[object]:
    if not hasattr(bus, "__aenter__") or not hasattr(bus, "__aexit__"):
        kit.untestable(f"a {type(bus).__name__} is no async context manager")
    return cast("AbstractAsyncContextManager[object]", bus)


async def _expect_usable(kit: Context, bus: NotificationBus, promised: str) -> None:
    """In a new event loop: start the bus, hear the own echo, stop it, and find nothing left."""
    sent = BusNotification("notifications/contract/loop", {"run": kit.channel})

    async def use() -> list[str]:
        before = set(running_tasks())
        async with _enterable(kit, bus):
            with anyio.fail_after(kit.timing.wait + kit.capabilities.ready_timeout):
                async with bus.subscribe() as stream:
                    await bus.publish(sent)
                    async for notification in stream:
                        if notification == sent:
                            break
        await kit.comes_true(lambda: not set(running_tasks()) - before, kit.timing.wait)
        return [name for task, name in running_tasks().items() if task not in before]

    problem: Exception | None = None
    left: list[str] = []
    try:
        left = await kit.in_new_loop(use)
    except Exception as exc:
        problem = exc
    kit.expect(problem is None, promised, f"it raised {problem!r}")
    kit.expect(not left, f"{promised}, and leaves nothing there", f"these tasks: {'; '.join(left)}")


@check("life.reference_counted", "MUST", "lifecycle", needs={"build"})
async def life_reference_counted(kit: Context) -> None:
    """A bus entered several times works until its last exit, then stops, and can be entered in another event loop."""
    tasks, threads, open_sockets = set(running_tasks()), set(threading.enumerate()), sockets()
    bus = kit.build()
    context = _enterable(kit, bus)
    entered = 0
    try:
        for _ in range(3):
            await context.__aenter__()
            entered += 1
        async with kit.subscribed(bus) as pump:
            for left in (2, 1):
                await context.__aexit__(None, None, None)
                entered -= 1
                promised = "a bus that was entered three times works until its last exit"
                await publish_paced(kit, bus, 2, [pump], f"{promised}; here {left} are to come")
            await context.__aexit__(None, None, None)
            entered -= 1
            await kit.until(
                pump.done.is_set, "the last exit stops the bus and ends its streams", f"{pump}, and is alive"
            )
        problem: Exception | None = None
        try:
            await bus.publish(kit.numbered()[1])
        except Exception as exc:
            problem = exc
        kit.expect(
            isinstance(problem, BusClosedError),
            "after the last exit the bus is closed: `publish` raises BusClosedError",
            f"it raised {problem!r}",
        )
        if kit.alone:
            await expect_nothing_left(kit, tasks, threads, open_sockets)
    finally:
        # A check that failed leaves no started bus behind, whose tasks would be reported in place of the failure.
        while entered:
            await context.__aexit__(None, None, None)
            entered -= 1
    await _expect_usable(kit, bus, "a bus that was stopped works again in a new event loop")
    async with context, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], HEALTHY)


@check("life.built_without_loop", "MUST", "lifecycle", needs={"build"})
async def life_built_without_loop(kit: Context) -> None:
    """Building a bus needs no event loop and opens nothing, and it works in two loops one after the other."""
    promised = "building a bus needs no event loop, and opens nothing"
    built: list[NotificationBus] = []
    problems: list[Exception] = []
    tasks, threads, open_sockets = set(running_tasks()), set(threading.enumerate()), sockets()

    def build() -> None:
        try:
            built.append(kit.build())
        except Exception as exc:
            problems.append(exc)

    # A thread has no event loop, as a module has none while it is imported.
    thread = threading.Thread(target=build, name="building a bus")
    thread.start()
    await kit.until(lambda: not thread.is_alive(), promised, "building it has not returned")
    kit.expect(not problems, promised, f"it raised {problems!r}")
    if kit.alone:
        new = [t.name for t in threading.enumerate() if t not in threads and not is_pooled(t)]
        new += [name for task, name in running_tasks().items() if task not in tasks]
        new += sorted(sockets() - open_sockets)
        kit.expect(not new, promised, f"after it there are {', '.join(new)}")
    for which in ("first", "second"):
        await _expect_usable(kit, built[0], f"a bus works in one event loop after the other, here the {which}")
