"""What a check is given: a channel of its own, instances, links, subscribers, and ways to wait and to judge."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Final, NoReturn, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from notification_bus import JsonValue
from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification
from notification_bus.testing._process import Child, start_child
from notification_bus.testing._tasks import run_in_new_loop
from notification_bus.testing._watch import Watch
from notification_bus.testing.check import Check
from notification_bus.testing.harness import Capabilities, Harness, Link, Wire
from notification_bus.testing.outcome import CheckFailedError, HarnessFaultError, UntestableError
from notification_bus.testing.pump import NUMBERED, Pump, number_of
from notification_bus.testing.timing import Timing

__all__ = ["Context", "Setup"]

T = TypeVar("T")

_SPINS: Final = 20
"""Turns of the event loop that are given before the first sleep: enough for whatever needs no network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all runs in one event loop have in common."""

    harness: Harness
    backend: str
    timing: Timing
    scale: int
    copies: int
    watch: Watch


class Context:
    """One run of one check. See the modules of `notification_bus.testing.checks` for how it is used."""

    def __init__(self, check: Check, setup: Setup, tasks: TaskGroup) -> None:
        self.check: Final = check
        self.channel: Final = f"kit-{check.id.replace('.', '-').replace('_', '-')[:24]}-{token_hex(6)}"
        """This run's own channel."""
        self.harness: Final = setup.harness
        self.capabilities: Final[Capabilities] = setup.harness.capabilities
        self.backend: Final = setup.backend
        """`"asyncio"` or `"trio"`, perhaps with a variant, as in `"asyncio+debug"`."""
        self.timing: Final = setup.timing
        self.scale: Final = setup.scale
        """How much more than usual is to be published where the amount matters."""
        self.copies: Final = setup.copies
        """How many runs there are at the same time, this one included; budgets of time grow with them."""
        self.logs: Final = setup.watch.logs
        self.failure: CheckFailedError | None = None
        """The first promise seen broken, whatever is raised while things are torn down after it."""
        self.step: str = "starting"
        """What is being done, for the report of a check that does not end."""
        self._reports = setup.watch.reports
        self._tasks = tasks
        self._numbers = count(1)
        self._names = count(1)

    # -- judging

    def fail(self, promised: str, seen: str) -> NoReturn:
        """End the check: a promise was broken."""
        failure = CheckFailedError(promised, seen)
        self.failure = self.failure or failure
        raise failure

    def accuse(self, *texts: str) -> NoReturn:
        """End the check: it was the harness that did not do what it says."""
        self.failure = HarnessFaultError(*texts)
        raise self.failure

    def expect(self, condition: object, promised: str, seen: object) -> None:
        """Go on if the condition holds."""
        if not condition:
            self.fail(promised, str(seen))

    def untestable(self, reason: str) -> NoReturn:
        """End the check: the harness lacks something that only now turned out to be needed."""
        raise UntestableError(reason)

    @property
    def alone(self) -> bool:
        """Whether this is the only run, so that log records, tasks, threads and sockets are this one's."""
        return self.copies == 1

    @property
    def prompt(self) -> float:
        """Seconds that count as at once."""
        return self.timing.prompt * self.copies

    @property
    def promptly(self) -> float:
        """Seconds for what is to be quick but takes more than one turn, such as leaving a subscription."""
        return self.timing.prompt * self.copies * 5

    # -- what the bus is run with

    @asynccontextmanager
    async def instance(self, channel: str | None = None, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        """A started instance, on this run's channel unless another is given."""
        name = self.channel if channel is None else channel
        self.step = f"starting an instance on channel {name!r}"
        manager = self.harness.instance(name) if link is None else self.harness.instance(name, link)
        async with manager as bus:
            self.step = f"using an instance on channel {name!r}"
            yield bus
            self.step = f"stopping an instance on channel {name!r}"

    def build(self, channel: str | None = None) -> NotificationBus:
        """An instance that was not started."""
        return self.harness.build(self.channel if channel is None else channel)

    def link(self) -> AbstractAsyncContextManager[Link]:
        """A link for one instance, to break."""
        link = self.harness.link()
        if link is None:
            self.untestable("the harness has no `link`")
        return link

    @property
    def wire(self) -> Wire:
        """The channel beside the bus."""
        if self.harness.wire is None:
            self.untestable("the harness has no `wire`")
        return self.harness.wire

    @asynccontextmanager
    async def child(self, mode: str) -> AsyncGenerator[Child]:
        """Another process with an instance on this run's channel; see `notification_bus.testing.child`."""
        if self.harness.child is None:
            self.untestable("the harness has no `child`")
        self.step = "starting a child process"
        async with start_child(self.harness.child, self.channel, mode) as child:
            await self.until(
                lambda: child.ready or child.ended,
                "another process can use the bus",
                lambda: f"the child process is not ready: {child}",
                within=self.timing.wait * 3,  # an interpreter starts, on a machine that may be busy
            )
            self.expect(child.ready, "another process can use the bus", f"the child process ended: {child}")
            self.step = "using a child process"
            yield child

    # -- subscribers

    @asynccontextmanager
    async def subscribed(
        self, bus: NotificationBus, name: str | None = None, *, reading: bool = True
    ) -> AsyncGenerator[Pump]:
        """A subscriber in a task of its own, ready once this is entered. Without `reading` it starts at `resume`."""
        pump = self.pump(bus, name, reading=reading)
        await self.until(
            pump.entered.is_set,
            "a subscription is ready within `ready_timeout`, or raises",
            f"{pump.name} is still being entered",
            within=self.capabilities.ready_timeout + self.timing.wait,
        )
        if pump.error is not None:
            raise pump.error
        yield pump
        await self.leave(pump)

    def pump(self, bus: NotificationBus, name: str | None = None, *, reading: bool = True) -> Pump:
        """A subscriber that begins to enter its subscription now. It ends with the check."""
        pump = Pump(bus, self.channel, name or f"subscription {next(self._names)}", reading=reading)
        self.spawn(pump.run)
        return pump

    def spawn(self, function: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run something in a task of its own, which is cancelled at the end of the check. It must not raise."""
        self._tasks.start_soon(function)

    async def leave(self, pump: Pump) -> None:
        """Cancel a subscriber, and wait until it has left."""
        pump.cancel()
        await self.until(
            pump.done.is_set, "a cancelled subscriber leaves its subscription", f"{pump.name} is still in it"
        )

    # -- notifications

    def numbered(self, **params: JsonValue) -> tuple[int, BusNotification]:
        """The next notification that can be counted."""
        number = next(self._numbers)
        return number, BusNotification(NUMBERED, {"run": self.channel, "n": number, **params})

    async def publish(self, bus: NotificationBus, notification: BusNotification, promised: str | None = None) -> float:
        """Publish, which must return and must not raise; the seconds that it took.

        Args:
            bus: Where to publish.
            notification: What to publish; fit to travel.
            promised: What it proves that it returns, where that is more than what `publish` promises anyway.
        """
        promised = (
            promised or "`publish` queues a notification that is fit to travel and returns, whatever the broker does"
        )
        began = time.perf_counter()
        problem: Exception | None = None
        with anyio.move_on_after(self.timing.wait) as scope:
            try:
                await bus.publish(notification)
            except Exception as exc:
                problem = exc
        if problem is not None:
            self.fail(promised, f"`publish` raised {problem!r}")
        if scope.cancelled_caught:
            self.fail(promised, f"`publish` had not returned after {self.timing.wait:g} s")
        return time.perf_counter() - began

    async def publish_numbered(self, bus: NotificationBus, promised: str | None = None) -> int:
        """Publish the next notification that can be counted; its number."""
        number, notification = self.numbered()
        await self.publish(bus, notification, promised)
        return number

    def number_of(self, notification: object) -> int | None:
        """The number of one of this run's notifications; `None` for anything else."""
        return number_of(notification, self.channel)

    # -- waiting

    async def until(
        self,
        condition: Callable[[], object],
        promised: str,
        seen: object,
        *,
        within: float | None = None,
    ) -> None:
        """Wait for a condition; where it does not come true in time, the promise is broken.

        Args:
            condition: What must come true.
            promised: What it would prove.
            seen: What to report otherwise: something with a `str`, or a function that returns it.
            within: Seconds, `wait` where it is not given.
        """
        limit = self.timing.wait if within is None else within
        if not await self.comes_true(condition, limit):
            found = seen() if callable(seen) else seen
            self.fail(promised, f"after {limit:g} s: {found}")

    async def comes_true(self, condition: Callable[[], object], within: float) -> bool:
        """Wait for a condition at most so many seconds; whether it came true."""
        for _ in range(_SPINS):
            if condition():
                return True
            await checkpoint()
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if condition():
                return True
            await anyio.sleep(self.timing.poll)
        # Looked at once more: on a busy machine the last sleep can have been a long one.
        return bool(condition())

    async def linger(self) -> None:
        """Wait as long as silence must last. What was to come has been seen to come before, by a sentinel."""
        await anyio.sleep(self.timing.silence)

    async def within(
        self, seconds: float, function: Callable[[], Awaitable[object]], promised: str, seen: str
    ) -> float:
        """Call something in a task of its own, which must end in time; what it raises is raised. The seconds it took.

        Its own task, since what hangs may resist being cancelled, and that must not hide the finding.
        """
        problem: list[Exception] = []
        done = anyio.Event()
        took = 0.0

        async def call() -> None:
            nonlocal took
            began = time.perf_counter()
            try:
                await function()
            except Exception as exc:
                problem.append(exc)
            took = time.perf_counter() - began
            done.set()

        scope = anyio.CancelScope()

        async def scoped() -> None:
            with scope:
                await call()

        self.spawn(scoped)
        if not await self.comes_true(done.is_set, seconds):
            scope.cancel()
            self.fail(promised, f"after {seconds:g} s: {seen}")
        if problem:
            raise problem[0]
        return took

    async def in_new_loop(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run something in a new event loop of the same library, in a thread of its own."""
        outcome: list[T] = []

        async def main() -> None:
            outcome.append(await function())

        thread = run_in_new_loop(main, self.backend, self._reports)
        await self.until(
            lambda: thread.over,
            "the bus works in another event loop",
            "it still runs there",
            within=self.timing.deadline,
        )
        if thread.error is not None:
            raise thread.error
        return outcome[0]

    # -- what the bus logs

    @property
    def drops(self) -> Sequence[logging.LogRecord]:
        """Warnings of drops since the check began."""
        return self.logs.drops

    @property
    def warnings(self) -> Sequence[logging.LogRecord]:
        """Warnings of the bus since the check began."""
        return self.logs.of_the_bus

    # -- closing

    def closer(self, bus: NotificationBus) -> Callable[[], Coroutine[None, None, object]]:
        """How to close an instance, as its users do."""
        aclose: Callable[[], Coroutine[None, None, object]] | None = getattr(bus, "aclose", None)
        leave: Callable[..., Coroutine[None, None, object]] | None = getattr(bus, "__aexit__", None)
        if aclose is None and leave is None:
            self.untestable(f"a {type(bus).__name__} has neither `aclose` nor is it a context manager")
        return aclose or partial(cast("Callable[..., Coroutine[None, None, object]]", leave), None, None, None)
