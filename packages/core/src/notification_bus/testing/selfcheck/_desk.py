"""What the parts of the examination share: who is accused of what, and how things are started, said and heard."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from typing import Final, Generic, Literal, TypeAlias, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification
from notification_bus.testing.harness import Harness
from notification_bus.testing.pump import NUMBERED, Pump

__all__ = ["Desk", "Ear", "HarnessFault", "Member", "ObstacleError", "Say", "shown"]

T = TypeVar("T")

Member: TypeAlias = Literal["capabilities", "instance", "build", "link", "wire", "child"]

Say: TypeAlias = Callable[[BusNotification], Awaitable[object]]
"""A way to put a notification on a channel."""

_SPINS: Final = 20
_POLL: Final = 0.002
_PAUSE: Final = 0.03
"""Seconds between two markers: a bus may eat its first, and that is for the checks to say."""


@dataclass(frozen=True, slots=True)
class HarnessFault:
    """One way in which a harness cannot be believed."""

    member: Member
    """Which member of the harness it is about."""

    text: str
    """What was seen, and what to do about it."""

    def __str__(self) -> str:
        return f"the harness, not the bus: {self.text}"


class ObstacleError(Exception):
    """No bus could be started, so nothing can be said of the harness."""


class _Held(Generic[T]):
    """A context that is entered and left in a task of its own: what hangs or raises in it harms nobody."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self.values: list[T] = []
        self.error: Exception | None = None
        self.entered = anyio.Event()
        self.left = anyio.Event()
        self.leave = anyio.Event()
        self.scope = anyio.CancelScope()
        self._manager = manager

    async def run(self) -> None:
        try:
            with self.scope:
                async with self._manager as value:
                    self.values.append(value)
                    self.entered.set()
                    await self.leave.wait()
        except Exception as exc:
            self.error = exc
        finally:
            self.entered.set()
            self.left.set()


class Ear(Pump):
    """A subscriber."""

    def __init__(self, bus: NotificationBus, channel: str) -> None:
        super().__init__(bus, channel, "the self-check's subscription", reading=True)
        self.channel: Final = channel


class Desk:
    """One examination."""

    def __init__(self, harness: Harness, patience: float) -> None:
        self.harness: Final = harness
        self.patience: Final = patience
        self.faults: Final[list[HarnessFault]] = []
        self.tasks: TaskGroup
        self._numbers = count(1)

    def accuse(self, member: Member, text: str) -> None:
        """Note that the harness cannot be believed."""
        self.faults.append(HarnessFault(member, text))

    def expect_manager(self, member: Member, manager: object, yields: str, *, method: str | None = None) -> bool:
        """Look whether a method of the harness returned what can be entered."""
        is_one = hasattr(manager, "__aenter__") and hasattr(manager, "__aexit__")
        if not is_one:
            close: Callable[[], object] | None = getattr(manager, "close", None)
            if close is not None:  # a coroutine, which nobody will ever await
                close()
            self.accuse(
                member,
                f"`{method or member}` returned a {type(manager).__name__}, which is no async context manager: "
                f"decorate it with `contextlib.asynccontextmanager`, and yield {yields}",
            )
        return is_one

    @staticmethod
    def channel(label: str) -> str:
        """A channel of its own; its name is as short as that of a check's."""
        return f"kit-self-check-{label}-{token_hex(6)}"

    # -- in tasks of their own

    def begin(self, function: Callable[["Desk"], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Start a part of the examination beside the others; how to wait for its end."""
        done = anyio.Event()

        async def run() -> None:
            await function(self)
            done.set()

        self.tasks.start_soon(run)
        return done.wait

    @asynccontextmanager
    async def held(self, manager: AbstractAsyncContextManager[T], what: str) -> AsyncGenerator[T]:
        """Enter a context in a task of its own.

        Raises:
            ObstacleError: It cannot be entered. Says why.
        """
        held = _Held(manager)
        self.tasks.start_soon(held.run)
        limit = self.patience + self.harness.capabilities.ready_timeout
        try:
            with anyio.move_on_after(limit):
                await held.entered.wait()
            if held.error is not None:
                raise ObstacleError(f"{what} raised {shown(held.error)}")
            if not held.values:
                raise ObstacleError(f"{what} was not entered within {limit:g} s")
            yield held.values[0]
        finally:
            held.leave.set()
            with anyio.move_on_after(self.patience, shield=True):
                await held.left.wait()
            held.scope.cancel()

    @asynccontextmanager
    async def listening(self, bus: NotificationBus, channel: str) -> AsyncGenerator[Ear]:
        """A subscriber, entered.

        Raises:
            ObstacleError: It cannot be entered. Says why.
        """
        ear = Ear(bus, channel)
        self.tasks.start_soon(ear.run)
        limit = self.patience + self.harness.capabilities.ready_timeout
        try:
            with anyio.move_on_after(limit):
                await ear.entered.wait()
            if ear.error is not None:
                raise ObstacleError(f"entering a subscription raised {shown(ear.error)}")
            if not ear.entered.is_set():
                raise ObstacleError(f"a subscription was not entered within {limit:g} s")
            yield ear
        finally:
            ear.cancel()

    # -- saying and hearing

    async def heard(self, say: Say, ear: Ear, within: float) -> int | None:
        """Say one marker after the other until one is heard, at most so long; its number."""
        said: list[int] = []
        deadline = anyio.current_time() + within
        while ear.alive:
            said.append(await self.say(say, ear.channel))
            if await self.until(lambda: any(n in ear.numbers for n in said) or not ear.alive, _PAUSE):
                return next((n for n in said if n in ear.numbers), None)
            if anyio.current_time() > deadline:
                break
        return None

    async def say(self, say: Say, channel: str) -> int:
        """Say one marker, as well as it can be said; its number."""
        number = next(self._numbers)
        # Whoever waits for it will see that it did not arrive.
        with anyio.move_on_after(self.patience), suppress(Exception):
            await say(BusNotification(NUMBERED, {"run": channel, "n": number}))
        return number

    @staticmethod
    async def until(condition: Callable[[], object], within: float) -> bool:
        """Wait for a condition at most so many seconds; whether it came true."""
        for _ in range(_SPINS):
            if condition():
                return True
            await checkpoint()
        deadline = anyio.current_time() + within
        while anyio.current_time() < deadline:
            if condition():
                return True
            await anyio.sleep(_POLL)
        return bool(condition())

    async def call(self, member: Member, name: str, function: Callable[[], Awaitable[object]]) -> bool:
        """Call a method of the harness, which must return in time and must not raise; whether it did."""
        with anyio.move_on_after(self.patience) as scope:
            try:
                await function()
            except Exception as exc:
                self.accuse(member, f"`{name}` raised {shown(exc)}")
                return False
        if scope.cancelled_caught:
            self.accuse(member, f"`{name}` had not returned after {self.patience:g} s")
            return False
        return True


def shown(error: BaseException) -> str:
    """The innermost error, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
