"""The life of a subscription beside others that come and go."""

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import publish_paced


@check("sub.close_one_keeps_others", "MUST", "never_ends", needs={"two"})
async def sub_close_one_keeps_others(kit: Context) -> None:
    """Closing one subscription, or a peer instance, leaves the other subscriptions whole."""
    async with kit.instance() as bus, kit.subscribed(bus, "the remaining subscription") as remaining:
        async with kit.instance() as peer:
            async with kit.subscribed(bus, "the other subscription") as other, kit.subscribed(peer, "the peer's"):
                await publish_paced(kit, peer, 2, [remaining, other], "two subscriptions of one instance both receive")
                await kit.leave(other)
                await publish_paced(
                    kit, peer, 2, [remaining], "closing one subscription leaves the others of its instance as they were"
                )
            await publish_paced(
                kit, peer, 2, [remaining], "closing a peer's subscription leaves those of other instances as they were"
            )
        await publish_paced(
            kit, bus, 2, [remaining], "closing a peer instance leaves the subscriptions of others as they were"
        )


@check("sub.reopen_after_last_close", "MUST", "ready")
async def sub_reopen_after_last_close(kit: Context) -> None:
    """After an instance's last subscription was closed, a new one works."""
    promised = "after an instance's last subscription was closed, a new one receives"
    async with kit.instance() as bus:
        for _ in range(3):
            async with kit.subscribed(bus) as pump:
                await publish_paced(kit, bus, 2, [pump], promised)


@check("sub.close_wakes_and_is_idempotent", "MUST", "close")
async def sub_close_wakes_and_is_idempotent(kit: Context) -> None:
    """Closing a subscription from another task ends a read that waits in it, and closing it again does nothing."""
    promised = "closing a subscription from another task ends a read that waits in it"
    async with kit.instance() as bus:
        subscription = bus.subscribe()
        stream = await subscription.__aenter__()
        states: list[str] = []
        done = anyio.Event()

        async def read() -> None:
            states.append("waiting")
            try:
                item = await anext(stream, None)
                states.append("ended" if item is None else f"read {item!r}")
            except Exception as exc:
                states.append(f"raised {exc!r}")
            done.set()

        kit.spawn(read)
        await kit.until(lambda: states, "a task runs", "it never ran")
        # It runs, and every turn that it needs to get to its waiting is given.
        for _ in range(10):
            await checkpoint()
        await subscription.__aexit__(None, None, None)
        in_time = await kit.comes_true(done.is_set, kit.timing.wait)
        kit.expect(in_time and states[-1] == "ended", promised, f"the reader: {', '.join(states)}")
        problem: Exception | None = None
        try:
            await subscription.__aexit__(None, None, None)
        except Exception as exc:
            problem = exc
        kit.expect(problem is None, "closing a subscription a second time does nothing", f"it raised {problem!r}")
        async with kit.subscribed(bus) as pump:
            await publish_paced(kit, bus, 1, [pump], "after that, a new subscription receives")


@check("sub.churn_keeps_stable_whole", "MUST", "complete", needs={"two"})
async def sub_churn_keeps_stable_whole(kit: Context) -> None:
    """Subscriptions that come and go cost a steady one nothing."""
    promised = "subscriptions that come and go cost a steady one nothing"
    rounds = 0
    stop = False
    problems: list[str] = []
    async with (
        kit.instance() as bus,
        kit.instance() as peer,
        kit.subscribed(bus, "the steady subscription") as steady,
        anyio.create_task_group() as tasks,
    ):

        async def come_and_go() -> None:
            nonlocal rounds
            while not stop:
                try:
                    async with bus.subscribe():
                        await checkpoint()
                except Exception as exc:
                    problems.append(repr(exc))
                    return
                rounds += 1
                await checkpoint()

        for _ in range(3):
            tasks.start_soon(come_and_go)
        try:
            await publish_paced(kit, peer, 30 * kit.scale, [steady], promised)
            await publish_paced(kit, bus, 30 * kit.scale, [steady], promised)
            await kit.until(lambda: rounds > 5 or problems, "subscriptions can come and go", lambda: f"{rounds} did")
        finally:
            stop = True
    kit.expect(not problems, "subscriptions can come and go", f"entering or leaving raised {problems}")
