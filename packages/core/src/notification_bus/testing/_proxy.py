"""A TCP proxy that breaks on request: the faults of a network, for any broker, without touching the broker."""

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

import anyio
from anyio import AsyncContextManagerMixin, ClosedResourceError, notify_closing, wait_readable, wait_writable
from anyio.abc import TaskGroup
from anyio.lowlevel import cancel_shielded_checkpoint

__all__ = ["FaultProxy"]

_CHUNK: Final = 65536
"""Bytes read at once."""

_HELD: Final = 16 * 1024 * 1024
"""Bytes that one direction of a link holds back before it reads no more, as any peer would that is stuck for long."""

_HELD_SLOW: Final = _CHUNK
"""The same on a throttled link: a narrow pipe is no large one."""

_SLICE: Final = 0.02
"""Seconds of a throttled link's capacity that are sent at once."""

_LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""Linger for no time: closing then sends RST instead of FIN."""


@dataclass(frozen=True, slots=True)
class _Faults:
    """The faults of the network, as they apply to all links."""

    hold: bool = False
    delay: float = 0.0
    rate: float | None = None
    new: Literal["pass", "accept", "refuse"] = "pass"
    upstream: tuple[str, int | None] = ("", None)

    @property
    def fine(self) -> bool:
        return not self.hold and self.delay == 0 and self.rate is None


class _Network:
    """The current faults, and the links that they apply to."""

    def __init__(self, faults: _Faults) -> None:
        self.faults = faults
        self.links: set[_Link] = set()
        self._changed = anyio.Event()

    def turn(self, faults: _Faults) -> None:
        self.faults = faults
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def change(self, seconds: float | None = None) -> None:
        """Wait until the faults change, at most so many seconds."""
        changed = self._changed
        with anyio.move_on_after(seconds):
            await changed.wait()


class FaultProxy(AsyncContextManagerMixin):
    """Listens on a loopback port of its own and forwards to a server, through faults that a test asks for.

    Faults add up until `restore`. Each takes effect before its method returns.

        async with FaultProxy("127.0.0.1", 6379) as proxy:
            await proxy.stall()

    Args:
        host: The server's name or address, or the path of its Unix socket.
        port: The server's port; None for a Unix socket.
    """

    def __init__(self, host: str, port: int | None = None) -> None:
        self.host = "127.0.0.1"
        """Where the proxy listens."""
        self.port: int = 0
        """Where the proxy listens, once entered; the same until it is left."""
        self._healthy = _Faults(upstream=(host, port))
        self._network = _Network(self._healthy)
        self._attempts = 0
        self._dead: list[socket.socket] = []

    @property
    def connections(self) -> int:
        """Connections alive now: neither ended by a peer nor by a fault."""
        return len(self._network.links)

    @property
    def accepted(self) -> int:
        """Connections that were ever tried, those included that were refused (unless the port was closed)."""
        return self._attempts

    @property
    def attempts(self) -> int:
        """The same as `accepted`, by the name that a harness's link has for it."""
        return self._attempts

    async def delay(self, seconds: float) -> None:
        """Forward every chunk that much later, in both directions, in order; 0 ends it."""
        await self._turn(replace(self._network.faults, delay=seconds))

    async def stall(self) -> None:
        """Accept connections and bytes, and carry nothing: what is held back goes through after `restore`."""
        await self._turn(replace(self._network.faults, hold=True))

    async def throttle(self, bytes_per_second: float) -> None:
        """Let no more through than that, in each direction of each connection; what does not fit is not read."""
        await self._turn(replace(self._network.faults, rate=bytes_per_second))

    async def blackhole(self, new: Literal["pass", "accept", "refuse"] = "pass") -> None:
        """Kill the live connections silently: no FIN, no RST, and nothing is forwarded ever again.

        Args:
            new: What happens to new connections until `restore`: they work, or are accepted and ignored for ever, or
                are reset.
        """
        for link in list(self._network.links):
            self._dead += link.bury()
        await self._turn(replace(self._network.faults, new=new))

    async def cut(self) -> None:
        """Reset the live connections (RST). New ones work."""
        self._break(reset=True)
        await cancel_shielded_checkpoint()

    async def fin(self) -> None:
        """End the live connections in order (FIN), dropping what is held back. New ones work."""
        self._break(reset=False)
        await cancel_shielded_checkpoint()

    async def refuse(self, *, listening: bool = True) -> None:
        """Reset the live connections and refuse new ones.

        Args:
            listening: True accepts a new connection only to reset it at once, so that it counts as an attempt; False
                closes the port, so that connecting itself fails and nothing is counted.
        """
        self._break(reset=True)
        if not listening:
            self._close_port()
        await self._turn(replace(self._network.faults, new="refuse"))

    async def reroute(self, host: str, port: int | None = None) -> None:
        """Take new connections to another server; the live ones stay where they are."""
        await self._turn(replace(self._network.faults, upstream=(host, port)))

    async def restore(self) -> None:
        """Carry everything again, to the first server. What was killed stays dead."""
        self._open_port()
        await self._turn(self._healthy)

    async def _turn(self, faults: _Faults) -> None:
        self._network.turn(faults)
        await cancel_shielded_checkpoint()

    def _break(self, *, reset: bool) -> None:
        for link in list(self._network.links):
            link.close(reset=reset)

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        self._listener = self._bind()
        self._open_port()
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._accept, tasks)
                try:
                    yield self
                except anyio.get_cancelled_exc_class():
                    raise
                # Kept out of the task group, which would wrap it: a failed assertion is to reach the test as it is.
                except BaseException as error:
                    failure = error
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self._break(reset=True)
            for dead in self._dead:
                _close(dead, reset=True)
            self._dead.clear()
            self._listener.close()
        if failure is not None:
            raise failure

    def _bind(self) -> socket.socket:
        listener = socket.socket()
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
        except BaseException:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self._listening = False
        return listener

    def _open_port(self) -> None:
        if not self._listening:
            self._listener.listen(1024)
            self._listening = True

    def _close_port(self) -> None:
        """Close the port, and keep it: bound and not listening it refuses, and nobody else can take it."""
        if self._listening:
            notify_closing(self._listener)
            self._listener.close()
            self._listener = self._bind()

    async def _accept(self, tasks: TaskGroup) -> None:
        while True:
            listener = self._listener
            if not self._listening:
                await self._network.change()
                continue
            try:
                await wait_readable(listener)
            except ClosedResourceError:
                continue
            while listener is self._listener:
                try:
                    client, _ = listener.accept()
                except BlockingIOError:
                    break
                except ConnectionError:  # reset before it was accepted
                    self._attempts += 1
                    continue
                self._attempts += 1
                self._admit(client, tasks)

    def _admit(self, client: socket.socket, tasks: TaskGroup) -> None:
        client.setblocking(False)
        match self._network.faults.new:
            case "refuse":
                _close(client, reset=True)
            case "accept":
                self._dead.append(client)
            case "pass":
                link = _Link(self._network, client)
                self._network.links.add(link)
                tasks.start_soon(link.run)


class _Link:
    """One client's connection and its counterpart to the server."""

    def __init__(self, network: _Network, client: socket.socket) -> None:
        self.network = network
        self.over = False
        self._sockets = [client]
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        try:
            with self._scope:
                client = self._sockets[0]
                while self.network.faults.hold:
                    await self.network.change()
                # The server refuses: so does the proxy, with the only means left once a connection is accepted.
                try:
                    server = await _connect(*self.network.faults.upstream)
                except OSError:
                    return
                if self.over:
                    server.close()
                    return
                self._sockets.append(server)
                for end in self._sockets:
                    if _is_tcp(end):
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with anyio.create_task_group() as tasks:
                    for pipe in (_Pipe(self, client, server), _Pipe(self, server, client)):
                        tasks.start_soon(pipe.read)
                        tasks.start_soon(pipe.write)
                # Both directions have ended in order.
                self.close(reset=False)
        finally:
            self.close(reset=True)

    def close(self, *, reset: bool) -> None:
        for end in self._end():
            notify_closing(end)
            _close(end, reset=reset)

    def bury(self) -> list[socket.socket]:
        """Stop forwarding and give away the sockets, open as they are."""
        return self._end()

    def _end(self) -> list[socket.socket]:
        if self.over:
            return []
        self.over = True
        self.network.links.discard(self)
        self._scope.cancel()
        return self._sockets


class _Pipe:
    """One direction of a link: reads from `source`, holds back what the faults demand, writes to `target`."""

    def __init__(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        self._link = link
        self._network = link.network
        self._source = source
        self._target = target
        # What was read and not yet sent, and when it was read. An empty chunk is the end of the stream.
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._moved = anyio.Event()

    async def read(self) -> None:
        try:
            while not self._link.over:
                while self._held >= (_HELD if self._network.faults.rate is None else _HELD_SLOW):
                    await self._moved.wait()
                await wait_readable(self._source)
                # A task that was already on its way is not stopped by a cancellation, and nothing may pass a dead link.
                if self._link.over:
                    return
                try:
                    chunk = self._source.recv(_CHUNK)
                except BlockingIOError:
                    continue
                if chunk and not self._queue and self._network.faults.fine:
                    chunk = chunk[self._send(chunk) :]
                    if not chunk:
                        continue
                self._queue.append((anyio.current_time(), chunk))
                self._held += len(chunk)
                self._wake()
                if not chunk:
                    return
        except (OSError, ClosedResourceError):
            self._link.close(reset=True)

    async def write(self) -> None:
        try:
            while not self._link.over:
                while not self._queue:
                    await self._moved.wait()
                if self._link.over:
                    return
                faults = self._network.faults
                arrived, chunk = self._queue[0]
                early = arrived + faults.delay - anyio.current_time()
                if faults.hold or early > 0:
                    await self._network.change(None if faults.hold else early)
                    continue
                if not chunk:
                    self._target.shutdown(socket.SHUT_WR)
                    return
                part = chunk if faults.rate is None else chunk[: max(1, int(faults.rate * _SLICE))]
                sent = self._send(part)
                self._held -= sent
                if sent == len(chunk):
                    self._queue.popleft()
                else:
                    self._queue[0] = (arrived, chunk[sent:])
                self._wake()
                if sent < len(part):
                    await wait_writable(self._target)
                if faults.rate is not None:
                    await self._network.change(sent / faults.rate)
        except (OSError, ClosedResourceError):
            self._link.close(reset=True)

    def _send(self, chunk: bytes) -> int:
        try:
            return self._target.send(chunk)
        except BlockingIOError:
            return 0

    def _wake(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


async def _connect(host: str, port: int | None) -> socket.socket:
    """A connected non-blocking socket.

    Raises:
        OSError: No address of that name answers.
    """
    if port is None:
        return await _connect_one(socket.AF_UNIX, host)
    failure: OSError = OSError(f"no address for {host}")
    for family, _, _, _, address in await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return await _connect_one(family, address)
        except OSError as error:
            failure = error
    raise failure


async def _connect_one(family: int, address: str | tuple[object, ...]) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        code = connecting.connect_ex(address)
        if code == errno.EINPROGRESS:
            await wait_writable(connecting)
            code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        connecting.close()
        raise
    return connecting


def _is_tcp(end: socket.socket) -> bool:
    return end.family in {socket.AF_INET, socket.AF_INET6}


def _close(end: socket.socket, *, reset: bool) -> None:
    if reset and _is_tcp(end):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    end.close()
