"""Faults for any `BrokerConnection`, put between it and its bus: no proxy, no port, whatever the broker is.

They are the faults of a network as the supervisor of a `BrokerBus` sees them. What the client library makes of a
network that breaks under it, only a `FaultProxy` before a real broker shows.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from notification_bus._loops import BackgroundTask
from notification_bus.broker import BrokerBus
from notification_bus.connection import BrokerConnection

__all__ = ["FaultyLink"]

T = TypeVar("T")

_Batch = Sequence[bytes | str]


class FaultyLink:
    """One instance's way to its broker, with every fault of a `notification_bus.testing.DeafLink`.

    async with FaultyLink.open() as link:
        link.lead(bus)
    """

    def __init__(self) -> None:
        self.attempts: int = 0
        """Connections that have been tried through this link, refused ones included."""
        self._delay = 0.0
        self._holding = False
        self._refusing = False
        self._deaf = False
        self._live: set[_FaultyConnection] = set()
        self._changed = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncGenerator[FaultyLink]":
        """A new link, which ends with the context."""
        link = cls()
        try:
            yield link
        finally:
            await link.cut()

    def lead(self, bus: BrokerBus) -> None:
        """Have this one object connect through the link from now on."""
        connect = bus.connect

        async def through() -> BrokerConnection:
            return await self._connect(connect)

        bus.connect = through  # type: ignore[method-assign]  # of this object, not of its class

    async def delay(self, seconds: float) -> None:
        """Let everything arrive that much later, in order."""
        self._delay = seconds
        await self._turn()

    async def stall(self) -> None:
        """Accept everything and carry nothing, in both directions; what was held back goes through after `restore`."""
        self._holding = True
        await self._turn()

    async def blackhole(self) -> None:
        """Kill the present connections without a word: nothing is ever carried on them again, new ones work."""
        for connection in self._take_all():
            connection.dead = True
        await checkpoint()

    async def cut(self) -> None:
        """Break the present connections; new ones work."""
        for connection in self._take_all():
            connection.break_off()
        await checkpoint()

    async def refuse(self) -> None:
        """Break the present connections and refuse new ones."""
        self._refusing = True
        await self.cut()

    async def deaf(self) -> None:
        """Confirm subscriptions, accept what is published and answer pings, but deliver nothing, until `restore`."""
        self._deaf = True
        await checkpoint()

    async def restore(self) -> None:
        """Carry again, and accept new connections."""
        self._delay = 0.0
        self._holding = self._refusing = self._deaf = False
        await self._turn()

    async def _turn(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        await checkpoint()

    def _take_all(self) -> "set[_FaultyConnection]":
        taken, self._live = self._live, set()
        return taken

    async def _connect(self, connect: Callable[[], Awaitable[BrokerConnection]]) -> BrokerConnection:
        self.attempts += 1
        await self.carry()
        if self._refusing:
            raise ConnectionRefusedError("the link refuses connections")
        connection = _FaultyConnection(self, await connect())
        self._live.add(connection)
        try:
            await connection.exposed(self.carry)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            raise
        return connection

    async def carry(self) -> None:
        """Take the time that it takes to get from one end of the link to the other."""
        await self.hold()
        await anyio.sleep(self._delay)
        await self.hold()

    async def hold(self) -> None:
        """Wait while nothing is carried."""
        while self._holding:
            await self._changed.wait()

    async def wait_due(self, since: float) -> None:
        """Wait until what was sent down then has arrived."""
        await self.hold()
        while (left := since + self._delay - anyio.current_time()) > 0:
            changed = self._changed
            with anyio.move_on_after(left):
                await changed.wait()
            await self.hold()

    @property
    def delivers(self) -> bool:
        """Whether the broker delivers anything."""
        return not self._deaf

    def forget(self, connection: "_FaultyConnection") -> None:
        """A connection was closed."""
        self._live.discard(connection)


class _FaultyConnection(BrokerConnection):
    def __init__(self, link: FaultyLink, inner: BrokerConnection) -> None:
        self.max_body: int = inner.max_body
        self.dead = False
        """Nothing is ever carried here again, and nothing says so."""
        self._link: Final = link
        self._inner: Final = inner
        self._broken = False
        self._scopes: set[anyio.CancelScope] = set()
        self._arrived: deque[tuple[float, _Batch]] = deque()
        self._news = anyio.Event()
        self._ended = False
        self._failure: Exception | None = None
        self._reader: BackgroundTask | None = None

    def break_off(self) -> None:
        """The connection breaks: whatever waits on it raises, what is unread is lost."""
        self._broken = True
        for scope in self._scopes:
            scope.cancel()

    async def exposed(self, function: Callable[[], Awaitable[T]]) -> T:
        """Do something that ends with the connection where that breaks, and never where it is dead."""
        if self._broken:
            raise self._reset()
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        try:
            with scope:
                result = await function()
                if self.dead:
                    await anyio.sleep_forever()
                return result
        finally:
            self._scopes.discard(scope)
        raise self._reset()

    @staticmethod
    def _reset() -> ConnectionResetError:
        return ConnectionResetError("the link was cut")

    async def send(self, bodies: Sequence[bytes]) -> None:
        async def there_and_back() -> None:
            await self._link.carry()
            if self.dead:
                await self._nowhere()
            await self._inner.send(bodies)
            await self._link.carry()

        await self.exposed(there_and_back)

    async def check(self) -> None:
        async def there_and_back() -> None:
            await self._link.carry()
            if self.dead:
                await self._nowhere()
            await self._inner.check()
            await self._link.carry()

        await self.exposed(there_and_back)

    @staticmethod
    async def _nowhere() -> NoReturn:
        await anyio.sleep_forever()
        raise AssertionError("for ever has ended")

    async def receive(self) -> AsyncGenerator[_Batch]:
        self._reader = BackgroundTask(self._read, "reads for a faulty link")
        while True:
            batch = await self.exposed(self._next)
            if batch is None:
                return
            yield batch

    async def _next(self) -> _Batch | None:
        while not self._arrived:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            self._news = anyio.Event()
            await self._news.wait()
        await self._link.wait_due(self._arrived[0][0])
        return self._arrived.popleft()[1]

    async def _read(self) -> None:
        """Read ahead, so that a delay is one of the way and not one for each."""
        try:
            async for batch in self._inner.receive():
                if self._link.delivers:
                    self._arrived.append((anyio.current_time(), batch))
                    self._news.set()
        except Exception as exc:
            self._failure = exc
        finally:
            self._ended = True
            self._news.set()

    async def aclose(self) -> None:
        self._link.forget(self)
        self.break_off()
        if self._reader is not None:
            self._reader.cancel()
            await self._reader.wait()
        await self._inner.aclose()
