"""Cancellation: of a read, of a publish, of a subscriber; each on purpose, and each with nobody else harmed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.notification import BusNotification
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import ECHO, publish_paced, shown


class _Call:
    """Something awaited in a task of its own, to be cancelled.

    On asyncio a task is cancelled by `Task.cancel`, once, as `asyncio.wait_for` and most applications do it: who
    swallows that one is not cancelled at all. A scope of anyio would try again.
    """

    def __init__(self, kit: Context, function: Callable[[], Awaitable[object]], *, scoped: bool) -> None:
        self._kit = kit
        self._function = function
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None
        self.state = "not begun"
        self.outcome: object = None
        self._over = False
        if scoped:
            kit.spawn(self._run_scoped)
        else:
            self._task = asyncio.get_running_loop().create_task(self._run_task(), name="a call of the contract kit")

    async def _run_scoped(self) -> None:
        with self._scope:
            await self._run()
        self._over = True

    async def _run_task(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            # It was meant for this very task, and there is nobody who waits for it.
            self.state = "cancelled"

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

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or another; a task can be cancelled before it has begun."""
        return self._over if self._task is None else self._task.done()

    async def over(self, promised: str, what: str) -> None:
        """Wait for its end."""
        await self._kit.until(
            lambda: self.done, promised, lambda: f"{what} was cancelled, and is {self.state} as before"
        )

    def cancel(self) -> None:
        """Cancel it."""
        if self._task is None:
            self._scope.cancel()
        else:
            self._task.cancel()


def _scoped(kit: Context, round_: int) -> bool:
    return not kit.backend.startswith("asyncio") or round_ % 2 == 1


async def _turns(count: int) -> None:
    for _ in range(count):
        await checkpoint()


class _Reads:
    """Reads of one stream, one after the other, and what they have got."""

    def __init__(self, kit: Context, stream: AsyncIterator[BusNotification]) -> None:
        self._kit = kit
        self._stream = stream
        self.published: list[int] = []
        self.received: list[int] = []

    @property
    def owed(self) -> list[int]:
        """What was published and not read."""
        return [number for number in self.published if number not in self.received]

    def begin(self, *, scoped: bool) -> _Call:
        return _Call(self._kit, lambda: anext(self._stream), scoped=scoped)

    def note(self, call: _Call) -> None:
        """What a read that is over has got."""
        if call.state == "returned":
            number = self._kit.number_of(call.outcome)
            if number is None:
                self._kit.fail("a read yields what was published, cancelled or not", f"it returned {call.outcome!r}")
            self.received.append(number)

    async def read(self) -> None:
        """One that is not cancelled."""
        promised = "after a cancelled read the next one goes on, with everything that was not read"
        call = self.begin(scoped=True)
        await self._kit.until(
            lambda: call.done, promised, lambda: f"it waits, though {shown(self.owed)} were published"
        )
        self._kit.expect(call.state == "returned", promised, f"the next read {call.state}")
        self.note(call)


@check("cancel.next_is_survivable_and_lossless", "MUST", "never_ends")
async def cancel_next_is_survivable_and_lossless(kit: Context) -> None:
    """A cancelled read ends at once, loses nothing, and the next read goes on."""
    promised = "a cancelled read ends at once, cancelled"
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "a sibling, to know when something lands") as sibling,
        bus.subscribe() as stream,
    ):
        reads = _Reads(kit, stream)
        for round_ in range(36 * kit.scale):
            while len(reads.owed) > kit.capabilities.buffer // 2:
                await reads.read()
            owed = reads.owed
            call = reads.begin(scoped=_scoped(kit, round_))
            # Parked for sure, or on its way there.
            await _turns(round_ % 5)
            moment = round_ // 2 % 3
            if moment > 0:
                reads.published.append(await kit.publish_numbered(bus))
            if moment == 2:
                # The instant in which it lands: the sibling has it, so this stream has it or is about to.
                await kit.until(lambda: sibling.has(reads.published), "a sibling receives", sibling)
            await _turns(round_ // 6 % 3)
            call.cancel()
            await call.over(promised, "the read")
            allowed = ("cancelled", "not begun") if moment == 0 and not owed else ("cancelled", "not begun", "returned")
            kit.expect(call.state in allowed, promised, f"the read {call.state} ({call.outcome!r})")
            reads.note(call)
        reads.published.append(await kit.publish_numbered(bus))
        while reads.published[-1] not in reads.received:
            await reads.read()
    promised = "a cancelled read loses nothing, and changes no order"
    seen = f"published {len(reads.published)}, read {len(reads.received)}, lost {shown(reads.owed) or 'none'}"
    kit.expect(reads.received == reads.published, promised, f"{seen}, read in the order {shown(reads.received, 50)}")


@check("cancel.publish_propagates", "MUST", "cancellation")
async def cancel_publish_propagates(kit: Context) -> None:
    """Cancelling a task inside `publish` cancels that task and nothing else, and its notification still arrives."""
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
            await call.over(promised, "it")
            kit.expect(call.state in ("cancelled", "not begun"), promised, f"it {call.state}")
            await kit.until(
                lambda: pump.has(begun),
                "a caller cancelled in `publish` has published: the hand-off comes before anything that waits",
                lambda: f"{pump} of {len(begun)}",
            )
        await publish_paced(kit, bus, 2, [pump], "after a cancelled `publish` the bus works for everybody else")


@check("cancel.consumer_unwinds_in_stall", "MUST", "cancellation", needs={"stall"})
async def cancel_consumer_unwinds_in_stall(kit: Context) -> None:
    """A subscriber that is cancelled while the link is stalled leaves its subscription at once."""
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
