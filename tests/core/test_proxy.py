"""The faults of `FaultProxy`, each against an echo server, on both async libraries."""

import os
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import wait_readable, wait_writable
from anyio.abc import Listener, SocketAttribute, SocketStream
from anyio.lowlevel import checkpoint

from notification_bus.testing._proxy import FaultProxy

LIMIT = 10.0
"""Seconds in which whatever must come has come."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Echo:
    """A server that sends back what it gets, and its name first when it has one."""

    host: str
    port: int
    name: bytes = b""
    got: bytearray = field(default_factory=bytearray)
    ends: list[str] = field(default_factory=list[str])
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, stream: SocketStream) -> None:
        end = "fin"
        async with stream:
            try:
                if self.name:
                    await stream.send(self.name)
                async for chunk in stream:
                    self.got += chunk
                    await stream.send(chunk)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                end = "reset"
        self.ends.append(end)
        self.ended.set()


@asynccontextmanager
async def echo_server(name: bytes = b"", path: Path | None = None) -> AsyncGenerator[Echo]:
    listener: Listener[SocketStream]
    if path is None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
    else:
        listener, port = await anyio.create_unix_listener(path), 0
    echo = Echo("127.0.0.1", port, name)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo.serve)
        yield echo
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def rig(name: bytes = b"") -> AsyncGenerator[tuple[Echo, FaultProxy]]:
    async with echo_server(name) as echo, FaultProxy(echo.host, echo.port) as proxy:
        yield echo, proxy


class Client:
    """A bare socket: it hides neither FIN nor RST, and reads only when told."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    async def send(self, data: bytes) -> None:
        with anyio.fail_after(LIMIT):
            while data:
                await wait_writable(self.socket)
                data = data[self.socket.send(data) :]

    async def receive(self, size: int) -> bytes:
        got = b""
        with anyio.fail_after(LIMIT):
            while len(got) < size:
                chunk = await self.receive_some()
                assert chunk, f"the stream ended after {len(got)} of {size} bytes"
                got += chunk
        return got

    async def receive_some(self) -> bytes:
        with anyio.fail_after(LIMIT):
            await wait_readable(self.socket)
            return self.socket.recv(65536)

    async def echoes(self, data: bytes) -> None:
        await self.send(data)
        assert await self.receive(len(data)) == data

    def is_silent(self) -> bool:
        """Whether the connection is open as far as it can tell, with nothing to read."""
        try:
            self.socket.recv(1)
        except BlockingIOError:
            return True
        return False


@asynccontextmanager
async def client_of(address: FaultProxy | Echo) -> AsyncGenerator[Client]:
    connection = socket.socket()
    with connection:
        connection.setblocking(False)
        code = connection.connect_ex((address.host, address.port))
        if code:
            with anyio.fail_after(LIMIT):
                await wait_writable(connection)
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        yield Client(connection)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def is_reset(proxy: FaultProxy) -> None:
    """A new connection is reset, be it while connecting or when it is first read."""
    with pytest.raises(ConnectionResetError):
        async with client_of(proxy) as refused:
            await refused.receive_some()


async def plenty_of_time(echo: Echo) -> None:
    """Time enough for anything to pass that is not held: many turns of the loop and many trips to the server."""
    async with client_of(echo) as direct:
        for _ in range(50):
            await direct.echoes(b".")
    with anyio.fail_after(LIMIT):
        await echo.ended.wait()


async def until_equal(what: Callable[[], object], expected: object) -> None:
    with anyio.fail_after(LIMIT):
        while what() != expected:
            await anyio.sleep(0.001)


async def test_carries_megabytes_both_ways_unchanged_and_counts() -> None:
    async with rig() as (_, proxy), client_of(proxy) as client, anyio.create_task_group() as tasks:
        data = os.urandom(1_000_003) * 5
        tasks.start_soon(client.send, data)
        assert await client.receive(len(data)) == data
        assert (proxy.connections, proxy.accepted, proxy.attempts) == (1, 1, 1)


async def test_a_half_closed_connection_still_carries_the_answer() -> None:
    async with rig() as (_, proxy), client_of(proxy) as client:
        await client.send(b"last words")
        client.socket.shutdown(socket.SHUT_WR)
        assert await client.receive(10) == b"last words"
        assert await client.receive_some() == b""
        await until_equal(lambda: proxy.connections, 0)


async def test_delay_makes_everything_later_in_order() -> None:
    async with rig() as (_, proxy), client_of(proxy) as client:
        await client.echoes(b"warm")
        await proxy.delay(0.1)
        began = anyio.current_time()
        for number in range(30):
            await client.send(b"%02d" % number)
            await checkpoint()
        assert await client.receive(60) == b"".join(b"%02d" % number for number in range(30))
        assert anyio.current_time() - began >= 0.2, "two ways of 0.1 s"
        await proxy.restore()
        await client.echoes(b"quick")


async def test_delay_goes_on_reading_and_restore_lets_everything_through_at_once() -> None:
    """The delayed bytes are more than a loopback's buffers would hold if the proxy read nothing meanwhile."""
    async with rig() as (echo, proxy), client_of(proxy) as client:
        await client.echoes(b"warm")
        await proxy.delay(3600)
        data = os.urandom(1_000_003) * 15
        await client.send(data)
        await plenty_of_time(echo)
        assert echo.got.replace(b".", b"") == b"warm"
        await proxy.restore()
        assert await client.receive(len(data)) == data


async def test_stall_holds_both_directions_until_restored() -> None:
    async with rig() as (echo, proxy), client_of(proxy) as client:
        await client.echoes(b"before")
        await proxy.stall()
        await client.send(b"held" * 100_000)
        await plenty_of_time(echo)
        assert b"held" not in echo.got
        assert client.is_silent()
        assert proxy.connections == 1
        await proxy.restore()
        assert await client.receive(400_000) == b"held" * 100_000


async def test_stall_accepts_new_connections_and_carries_them_on_when_restored() -> None:
    async with rig(name=b"hello") as (echo, proxy):
        await proxy.stall()
        async with client_of(proxy) as client:
            await client.send(b"held")
            await until_equal(lambda: proxy.accepted, 1)
            await plenty_of_time_named(echo)
            assert client.is_silent()
            assert proxy.connections == 1
            await proxy.restore()
            assert await client.receive(9) == b"helloheld"


async def plenty_of_time_named(echo: Echo) -> None:
    async with client_of(echo) as direct:
        assert await direct.receive(len(echo.name)) == echo.name
        for _ in range(50):
            await direct.echoes(b".")


async def test_a_stalled_peer_of_a_flood_stops_reading_in_the_end() -> None:
    """The proxy's memory is bounded: like any stuck peer it lets the sender's buffers fill up."""
    async with rig() as (_, proxy), client_of(proxy) as client:
        await client.echoes(b"warm")
        await proxy.stall()
        sent = 0
        with anyio.move_on_after(LIMIT):
            while sent < 1 << 30:
                with anyio.move_on_after(0.5) as stuck:
                    await wait_writable(client.socket)
                if stuck.cancelled_caught:
                    break
                sent += client.socket.send(bytes(1 << 20))
        assert 16 << 20 <= sent < 64 << 20


async def test_blackholed_connections_are_dead_for_ever_without_a_word() -> None:
    async with rig() as (echo, proxy), client_of(proxy) as old:
        await old.echoes(b"before")
        await proxy.blackhole()
        assert proxy.connections == 0
        await old.send(b"lost")
        async with client_of(proxy) as new:
            await new.echoes(b"new ones work")
        await proxy.restore()
        await plenty_of_time(echo)
        await old.send(b"lost too")
        await plenty_of_time(echo)
        assert old.is_silent()
        assert b"lost" not in echo.got
        assert echo.ends == ["fin"] * len(echo.ends), "the server is told nothing of the old one"


async def test_blackhole_can_ignore_new_connections() -> None:
    async with rig() as (echo, proxy):
        await proxy.blackhole(new="accept")
        async with client_of(proxy) as ignored:
            await ignored.send(b"lost")
            await until_equal(lambda: proxy.accepted, 1)
            await proxy.restore()
            await plenty_of_time(echo)
            assert ignored.is_silent()
            assert b"lost" not in echo.got
            async with client_of(proxy) as client:
                await client.echoes(b"works")


async def test_blackhole_can_refuse_new_connections() -> None:
    async with rig() as (_, proxy), client_of(proxy) as old:
        await old.echoes(b"before")
        await proxy.blackhole(new="refuse")
        await is_reset(proxy)
        assert old.is_silent()
        assert proxy.accepted == 2


async def test_cut_resets_both_ends_and_lets_new_connections_in() -> None:
    async with rig() as (echo, proxy), client_of(proxy) as client:
        await client.echoes(b"before")
        await proxy.cut()
        assert proxy.connections == 0
        with pytest.raises(ConnectionResetError):
            await client.receive_some()
        with anyio.fail_after(LIMIT):
            await echo.ended.wait()
        assert echo.ends == ["reset"]
        async with client_of(proxy) as new:
            await new.echoes(b"works")


async def test_fin_ends_both_ends_in_order() -> None:
    async with rig() as (echo, proxy), client_of(proxy) as client:
        await client.echoes(b"before")
        await proxy.fin()
        assert await client.receive_some() == b""
        with anyio.fail_after(LIMIT):
            await echo.ended.wait()
        assert echo.ends == ["fin"]


async def test_refuse_resets_live_and_new_connections_and_counts_them() -> None:
    async with rig() as (echo, proxy), client_of(proxy) as old:
        await old.echoes(b"before")
        await proxy.refuse()
        with pytest.raises(ConnectionResetError):
            await old.receive_some()
        for _ in range(5):
            await is_reset(proxy)
        assert (proxy.accepted, proxy.connections) == (6, 0)
        assert echo.got == b"before"
        await proxy.restore()
        async with client_of(proxy) as client:
            await client.echoes(b"works")


async def test_refuse_can_close_the_port_and_keep_it() -> None:
    async with rig() as (_, proxy), client_of(proxy) as old:
        await old.echoes(b"before")
        port = proxy.port
        await proxy.refuse(listening=False)
        with pytest.raises(ConnectionResetError):
            await old.receive_some()
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                async with client_of(proxy):
                    pass
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind((proxy.host, port))
        await proxy.refuse(listening=False)
        await proxy.restore()
        assert proxy.port == port
        async with client_of(proxy) as client:
            await client.echoes(b"works")
        assert proxy.accepted == 2


async def test_throttle_bounds_the_rate_of_each_direction() -> None:
    async with rig() as (_, proxy), client_of(proxy) as client, anyio.create_task_group() as tasks:
        await client.echoes(b"warm")
        await proxy.throttle(400_000)
        began = anyio.current_time()
        tasks.start_soon(client.send, bytes(200_000))
        assert await client.receive(200_000) == bytes(200_000)
        assert anyio.current_time() - began >= 0.4
        await proxy.throttle(1)
        await client.send(b"slow")
        await proxy.restore()
        assert await client.receive(4) == b"slow"


async def test_throttled_links_hold_back_the_sender() -> None:
    async with rig() as (_, proxy), client_of(proxy) as client:
        await client.echoes(b"warm")
        await proxy.throttle(1000)
        sent = 0
        with anyio.move_on_after(LIMIT):
            while sent < 1 << 28:
                with anyio.move_on_after(0.5) as stuck:
                    await wait_writable(client.socket)
                if stuck.cancelled_caught:
                    break
                sent += client.socket.send(bytes(1 << 20))
        assert sent < 16 << 20


async def test_reroute_takes_new_connections_elsewhere_until_restored() -> None:
    async with rig(name=b"one") as (_, proxy), echo_server(b"two") as other, client_of(proxy) as old:
        assert await old.receive(3) == b"one"
        await proxy.reroute(other.host, other.port)
        async with client_of(proxy) as new:
            assert await new.receive(3) == b"two"
        await old.echoes(b"still there")
        await proxy.restore()
        async with client_of(proxy) as again:
            assert await again.receive(3) == b"one"


async def test_faults_add_up() -> None:
    async with rig() as (echo, proxy), client_of(proxy) as client:
        await client.echoes(b"before")
        await proxy.stall()
        await proxy.delay(0.01)
        await proxy.throttle(1e9)
        await client.send(b"held")
        await plenty_of_time(echo)
        assert b"held" not in echo.got
        await proxy.restore()
        assert await client.receive(4) == b"held"


async def test_a_reset_and_a_refusal_by_the_server_reach_the_client() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with FaultProxy(*listener.getsockname()) as proxy:
            async with client_of(proxy) as client:
                with anyio.fail_after(LIMIT):
                    await wait_readable(listener)
                reset(listener.accept()[0])
                with pytest.raises(ConnectionResetError):
                    await client.receive_some()
            listener.close()
            await is_reset(proxy)
            await until_equal(lambda: proxy.connections, 0)


async def test_a_reset_by_the_client_reaches_the_server() -> None:
    async with rig() as (echo, proxy):
        async with client_of(proxy) as client:
            await client.echoes(b"before")
            reset(client.socket)
        with anyio.fail_after(LIMIT):
            await echo.ended.wait()
        assert echo.ends == ["reset"]
        assert proxy.connections == 0


async def test_an_unknown_host_is_a_reset_connection() -> None:
    async with FaultProxy("no-such-host.invalid", 1) as proxy:
        await is_reset(proxy)


async def test_forwards_to_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "echo"
    async with echo_server(path=path), FaultProxy(str(path)) as proxy, client_of(proxy) as client:
        await client.echoes(b"over a path")
        await proxy.cut()
        with pytest.raises(ConnectionResetError):
            await client.receive_some()


def open_files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def test_closing_leaves_no_task_and_no_socket() -> None:
    """With a connection of every kind: live, stalled, dead, ignored, half open, and the port closed."""
    async with echo_server() as echo, AsyncExitStack() as clients:
        await plenty_of_time(echo)
        opened = [await clients.enter_async_context(client_of(echo)) for _ in range(2)]
        await opened[0].echoes(b"x")
        await opened[1].echoes(b"x")
        tasks, files = len(anyio.get_running_tasks()), open_files()
        mine = 0
        async with FaultProxy(echo.host, echo.port) as proxy:
            faults: list[Callable[[], Awaitable[None]]] = [proxy.blackhole, partial(proxy.blackhole, "accept")]
            faults += [proxy.restore, proxy.stall, proxy.restore]
            for fault in faults:
                client = await clients.enter_async_context(client_of(proxy))
                mine += 1
                await client.send(b"x")
                await until_equal(lambda: proxy.accepted, mine)
                await fault()
            half = await clients.enter_async_context(client_of(proxy))
            mine += 1
            await half.echoes(b"x")
            half.socket.shutdown(socket.SHUT_WR)
            await proxy.stall()
        await until_equal(lambda: len(anyio.get_running_tasks()), tasks)
        await until_equal(open_files, files + mine)


async def test_a_failure_inside_is_not_wrapped() -> None:
    with pytest.raises(AssertionError, match="as it is"):
        async with FaultProxy("127.0.0.1", 1):
            raise AssertionError("as it is")


async def test_a_cancelled_user_is_cancelled() -> None:
    with anyio.move_on_after(0) as scope:
        async with FaultProxy("127.0.0.1", 1):
            await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_slow_reader_gets_everything() -> None:
    """The fast path sends what the target takes; the rest waits for it, in order."""
    async with rig() as (_, proxy), client_of(proxy) as client, anyio.create_task_group() as tasks:
        data = os.urandom(1_000_003) * 20
        tasks.start_soon(client.send, data)
        await until_equal(lambda: proxy.connections, 1)
        got = bytearray()
        while len(got) < len(data):
            await wait_readable(client.socket)
            got += client.socket.recv(4096)
            if len(got) % 3 == 0:
                await checkpoint()
        assert got == data
