"""Faults for any `BrokerConnection`, between it and its bus: no proxy and no port, whatever the broker is.

They are the faults of a network as the supervisor of a `BrokerBus` sees them. How the client library takes a network
that breaks under it, only a `FaultProxy` before a real broker shows.

In Toxiproxy's words: `delay` is `latency`, `stall` is `bandwidth` with a rate of 0, `blackhole` is `timeout` with 0,
`cut` is `reset_peer`, and `refuse` is a proxy that is down. `deaf` and `deny` are faults of a broker, not of a network.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

import anyio
from anyio.lowlevel import checkpoint

from notification_bus._loops import BackgroundTask
from notification_bus.connection import BrokerConnection
from notification_bus.errors import SendRefusedError

__all__ = ["FaultyLink"]

_Batch = Sequence[bytes | str]


class _Connecting(Protocol):
    """A `BrokerBus`, or any other bus that gets its connections from a method `connect`."""

    async def connect(self) -> BrokerConnection: ...


class FaultyLink:
    """One instance's way to its broker, with every fault of a `notification_bus.testing.DeafLink`.

    async with FaultyLink.open() as link:
        link.lead(bus)
    """

    def __init__(self) -> None:
        self.attempts: int = 0
        """Connections that have been tried through this link, refused ones included."""
        self.is_deaf: bool = False
        self.is_denied: bool = False
        self.connections: set[_FaultyConnection] = set()
        """Those on which something can still be carried."""
        self._latency = 0.0
        self._stalled = self._refusing = False
        self._changed = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncGenerator[FaultyLink]":
        """A new link, which ends with the context: what it still holds is lost, and its connections break."""
        link = cls()
        try:
            yield link
        finally:
            with anyio.CancelScope(shield=True):
                for connection in tuple(link.connections):
                    await connection.break_off()

    def lead(self, bus: _Connecting) -> None:
        """Have this one object connect through the link from now on."""
        connect = bus.connect

        async def through() -> BrokerConnection:
            return await self._connect(connect)

        bus.connect = through  # type: ignore[method-assign]  # of this object, not of its class

    async def delay(self, seconds: float) -> None:
        """Let everything arrive that much later, in order."""
        self._latency = seconds
        await self._apply()

    async def stall(self) -> None:
        """Accept everything and carry nothing, in both directions; what was held back goes through after `restore`."""
        self._stalled = True
        await self._apply()

    async def blackhole(self) -> None:
        """Kill the present connections without a word: nothing is ever carried on them again, new ones work."""
        for connection in tuple(self.connections):
            connection.fall_silent()
        await self._apply()

    async def cut(self) -> None:
        """Break the present connections; new ones work."""
        for connection in tuple(self.connections):
            await connection.break_off()
        await self._apply()

    async def refuse(self) -> None:
        """Break the present connections and refuse new ones."""
        self._refusing = True
        await self.cut()

    async def deaf(self) -> None:
        """Confirm subscriptions, accept what is published and answer pings, but deliver nothing, until `restore`."""
        self.is_deaf = True
        await self._apply()

    async def deny(self) -> None:
        """Refuse whatever is published, as a broker does that has withdrawn the permission, until `restore`."""
        self.is_denied = True
        await self._apply()

    async def restore(self) -> None:
        """End every fault: carry again, what was held back first, and accept new connections."""
        self._latency = 0.0
        self._stalled = self._refusing = self.is_deaf = self.is_denied = False
        await self._apply()

    async def _apply(self) -> None:
        self.notify()
        await checkpoint()

    def notify(self) -> None:
        """Wake everything that waits on this link, to look again."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def left(self, since: float) -> float:
        """Seconds until what was sent then arrives at the other end."""
        return inf if self._stalled else since + self._latency - anyio.current_time()

    async def wait(self, left: Callable[[], float]) -> None:
        """Wait until there are no seconds left. `left` is asked again at every change."""
        while (seconds := left()) > 0:
            with anyio.move_on_after(seconds):
                await self._changed.wait()

    async def _connect(self, connect: Callable[[], Awaitable[BrokerConnection]]) -> BrokerConnection:
        self.attempts += 1
        began = anyio.current_time()
        await checkpoint()
        await self.wait(lambda: self.left(began))
        if self._refusing:
            raise ConnectionRefusedError("the link refuses connections")
        connection = _FaultyConnection(self, await connect())
        connected = anyio.current_time()
        try:
            await connection.arrival(lambda: connected)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            raise
        return connection


@dataclass(eq=False, slots=True)
class _Request:
    """Something on its way to the broker, and when its answer set out on the way back."""

    act: Callable[[], Awaitable[None]]
    sent: float
    answered: float | None = None
    error: Exception | None = None


class _FaultyConnection(BrokerConnection):
    """Carries requests to the inner connection and batches from it, each in order and each when it is due.

    A task of its own carries what was accepted, as a network does: a caller that stops waiting takes nothing back.
    """

    def __init__(self, link: FaultyLink, inner: BrokerConnection) -> None:
        self.max_body: int = inner.max_body
        self._link: Final = link
        self._inner: Final = inner
        self._requests: deque[_Request] = deque()
        self._arrived: deque[tuple[float, _Batch | Exception | None]] = deque()
        self._lost: str | None = None
        self._silent = False
        self._close_error: Exception | None = None
        self._reader: BackgroundTask | None = None
        self._carrier = BackgroundTask(self._carry, "carries requests over a faulty link")
        link.connections.add(self)

    def fall_silent(self) -> None:
        """Nothing is ever carried here again, and nothing says so."""
        self._silent = True
        self._link.connections.discard(self)
        self._carrier.cancel()

    async def break_off(self, cause: str = "the link was cut") -> None:
        """End at once: whatever waits here raises, what is under way is lost, and the inner connection is closed."""
        self._lost = self._lost or cause
        self._link.notify()
        if not self._carrier.done:  # it ends with its loop, and cannot be cancelled from another
            self._carrier.cancel()
            await self._carrier.wait()

    async def send(self, bodies: Sequence[bytes]) -> None:
        taken = tuple(bodies)

        async def publish() -> None:
            if self._link.is_denied:
                raise SendRefusedError("no permission to publish")
            await self._inner.send(taken)

        await self._request(publish)

    async def check(self) -> None:
        await self._request(self._inner.check)

    async def _request(self, act: Callable[[], Awaitable[None]]) -> None:
        request = _Request(act, anyio.current_time())
        self._requests.append(request)
        self._link.notify()
        await self.arrival(lambda: request.answered)
        if request.error is not None:
            raise request.error

    async def receive(self) -> AsyncGenerator[_Batch]:
        # It reads ahead, so that a delay is one of the way and not one for each batch.
        self._reader = BackgroundTask(self._read, "reads for a faulty link")
        while True:
            await self.arrival(lambda: self._arrived[0][0] if self._arrived else None)
            batch = self._arrived.popleft()[1]
            if batch is None:
                return
            if isinstance(batch, Exception):
                raise batch
            yield batch

    async def aclose(self) -> None:
        cause = "the connection has been closed"
        if self._requests and not self._carrier.done and self._link.left(anyio.current_time()) > 0:
            # What the link has accepted still arrives; then the carrier ends.
            self._lost = self._lost or cause
            self._link.notify()
            return
        await self.break_off(cause)
        if self._close_error is not None:
            raise self._close_error

    async def arrival(self, sent: Callable[[], float | None]) -> None:
        """Wait until what the broker sent has arrived at this end; `sent` says when that was, `None` for not yet."""

        def left() -> float:
            if self._lost is not None:
                raise ConnectionResetError(self._lost)
            since = None if self._silent else sent()
            return inf if since is None else self._link.left(since)

        await self._link.wait(left)

    async def _carry(self) -> None:
        try:
            while self._requests or self._lost is None:
                await self._link.wait(self._left)
                while self._requests and self._link.left(self._requests[0].sent) <= 0:
                    request = self._requests.popleft()
                    try:
                        await request.act()
                    except Exception as exc:  # the answer, whatever it is
                        request.error = exc
                    request.answered = anyio.current_time()
                    self._link.notify()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    def _left(self) -> float:
        """Seconds until there is something to carry, or nothing ever again."""
        if self._requests:
            return self._link.left(self._requests[0].sent)
        return inf if self._lost is None else 0.0

    async def _close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await self._reader.wait()
        try:
            await self._inner.aclose()
        except Exception as exc:  # a task of its own has nobody to raise it to; `aclose` has
            self._close_error = exc
        self._link.connections.discard(self)

    async def _read(self) -> None:
        end: Exception | None = None
        try:
            async for batch in self._inner.receive():
                if not self._link.is_deaf:
                    self._put(batch)
        except Exception as exc:
            end = exc
        self._put(end)

    def _put(self, item: _Batch | Exception | None) -> None:
        self._arrived.append((anyio.current_time(), item))
        self._link.notify()
