"""Cancellation: of a read, of a publish, of a subscriber; each on purpose, and each with nobody else harmed."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.notification import BusNotification
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import ECHO, publish_paced, shown

__all__ = ["cancel_consumer_unwinds_in_stall", "cancel_next_is_survivable_and_lossless", "cancel_publish_propagates"]


class _Call:
    """Something awaited in a task of its own, to be cancelled.

    On asyncio a task is cancelled by `Task.cancel`, once, as `asyncio.wait_for` and most applications do it: who swallows
    that one is not cancelled at all. A scope of anyio would try again.
    """

    def __init__(self, kit: Context, function: Callable[[], Awaitable[object]], *, scoped: bool) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None
        self.state = "not begun"
        self.outcome: object = None
        self.done = False
        if scoped:
            kit.spawn(self._run_scoped)
        else:
            self._task = asyncio.get_running_loop().create_task(self._run_task(), name="a call of the contract kit")

    async def _run_scoped(self) -> None:
        with self._scope:
            await self._run()
        self.done = True

    async def _run_task(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            # It was meant for this very task, and there is nobody who waits for it.
            self.state = "cancelled"
        self.done = True

    async def _run(self) -> None:
        self.state = "waiting"
        try:
            self.outcome = await self._function()
        except anyio.get_cancelled_exc_class():
            self.state = "cancelled"
            raise
        except Exception as exc:
            self.state = f"raised {exc!r}"
        else:
            self.state = "returned"

    def cancel(self) -> None:
        if self._task is None:
            self._scope.cancel()
        else:
            self._task.cancel()


def _scoped(kit: Context, round_: int) -> bool:
    return not kit.backend.startswith("asyncio") or round_ % 2 == 1


async def _turns(count: int) -> None:
    for _ in range(count):
        await checkpoint()


async def cancel_next_is_survivable_and_lossless(kit: Context) -> None:
    promised_end = "a cancelled read ends at once, cancelled"
    promised_all = "a cancelled read loses nothing, and the next one goes on, in order"
    published: list[int] = []
    received: list[int] = []
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "a sibling, to know when something lands") as sibling,
        bus.subscribe() as stream,
    ):

        def read(*, scoped: bool) -> _Call:
            return _Call(kit, lambda: anext(stream), scoped=scoped)

        def note(call: _Call) -> None:
            if isinstance(call.outcome, BusNotification):
                number = kit.number_of(call.outcome)
                received.extend([] if number is None else [number])

        for round_ in range(36 * kit.scale):
            call = read(scoped=_scoped(kit, round_))
            # Parked for sure, or on its way there.
            await _turns(round_ % 5)
            moment = round_ // 2 % 3
            if moment > 0:
                published.append(await kit.publish_numbered(bus))
            if moment == 2:
                # The instant in which it lands: the sibling has it, so this stream has it or is about to.
                await kit.until(lambda: sibling.has(published), "a sibling receives", sibling)
            await _turns(round_ // 6 % 3)
            call.cancel()
            await kit.until(lambda call=call: call.done, promised_end, lambda call=call: f"the read is {call.state}")  # type: ignore[misc]
            kit.expect(call.state in ("cancelled", "returned", "not begun"), promised_end, f"the read {call.state}")
            note(call)

        published.append(await kit.publish_numbered(bus))
        while published[-1] not in received:
            call = read(scoped=True)
            await kit.until(
                lambda call=call: call.done,  # type: ignore[misc]
                promised_all,
                lambda: f"the next read waits, though {shown(n for n in published if n not in received)} have not been read",
            )
            kit.expect(call.state == "returned", promised_all, f"the next read {call.state}")
            note(call)
    lost = [n for n in published if n not in received]
    seen = f"published {len(published)}, read {len(received)}, lost {shown(lost) or 'none'}"
    kit.expect(received == published, promised_all, seen if lost else f"{seen}, in the order {shown(received)}")


async def cancel_publish_propagates(kit: Context) -> None:
    promised = "cancelling a task inside `publish` cancels that task"
    begun: list[int] = []
    async with kit.instance() as bus, kit.subscribed(bus) as pump:
        for round_ in range(16):
            number, notification = kit.numbered()

            async def publish(number: int = number, notification: BusNotification = notification) -> None:
                begun.append(number)
                await bus.publish(notification)
                # Where the cancellation comes after the publishing it ends this; where it was swallowed, nothing does.
                await anyio.sleep_forever()

            call = _Call(kit, publish, scoped=_scoped(kit, round_))
            await _turns(round_ // 2 % 5)
            call.cancel()
            await kit.until(lambda call=call: call.done, promised, "`publish` returned as if nothing had been, or hangs")  # type: ignore[misc]
            kit.expect(call.state in ("cancelled", "not begun"), promised, f"it {call.state}")
            await kit.until(
                lambda: pump.has(begun),
                "what a cancelled caller of `publish` published arrives: the hand-off comes before anything that can be cancelled",
                lambda: f"{pump} of {len(begun)}",
            )
        await publish_paced(kit, bus, 2, [pump], "after a cancelled `publish` the bus works for everybody else")


async def cancel_consumer_unwinds_in_stall(kit: Context) -> None:
    promised = "a subscriber that is cancelled while the link is stalled leaves its subscription at once"
    async with kit.link() as link, kit.instance(link=link) as bus:
        reading = kit.pump(bus, "a subscriber that reads")
        await kit.until(reading.entered.is_set, "a subscription is ready within `ready_timeout`", "still being entered")
        await publish_paced(kit, bus, 1, [reading], ECHO)
        await link.stall()
        async with kit.instance(link=link) as late:
            entering = kit.pump(late, "a subscriber that is being made ready")
            await _turns(20)
            for pump in (reading, entering):
                pump.cancel()
                await kit.until(pump.done.is_set, promised, f"{pump.name} is still in it", within=kit.promptly)
                kit.expect(pump.error is None, promised, f"{pump.name} raised {pump.error!r}")
            await link.restore()
