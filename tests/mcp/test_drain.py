"""The end of a server with open streams: signals, explicit draining, and what its clients see of it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

import anyio
import anyio.to_thread
import hypercorn.asyncio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.subscriptions import Subscription, ToolsListChanged
from mcp.shared.exceptions import MCPError

from notification_bus import MemoryBus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions._signals import SignalChain
from tests.mcp.board import BUS, INSTALL, STARTED, STDIO, build
from tests.mcp.replicas import LIMIT, ROOT, expect, replica, stalled_listener, url_of

DRAIN = 2.0
"""Seconds that a drain may take, by default."""

MEMORY = "memory://?channel=board"


@asynccontextmanager
async def listening(url: str, count: int) -> AsyncGenerator[list[Subscription]]:
    """Open streams of some clients."""
    async with AsyncExitStack() as stack:
        streams: list[Subscription] = []
        clients = [await stack.enter_async_context(Client(url)) for _ in range(min(count, 4))]
        for number in range(count):
            listen = clients[number % len(clients)].listen(tools_list_changed=True)
            streams.append(await stack.enter_async_context(listen))
        yield streams


async def ends_gracefully(streams: list[Subscription]) -> None:
    """A stream that breaks raises SubscriptionLost."""

    async def read(stream: Subscription) -> None:
        assert [event async for event in stream] == []

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            for stream in streams:
                tasks.start_soon(read, stream)


async def gone(process: subprocess.Popen[Any]) -> int:
    return await anyio.to_thread.run_sync(lambda: process.wait(LIMIT))


@pytest.fixture
def anyio_backend() -> str:
    """Uvicorn runs on asyncio, and a client is a client."""
    return "asyncio"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_ends_200_streams_gracefully_and_the_process_in_time(number: signal.Signals) -> None:
    """Uvicorn waits for open streams, by default for ever, before it leaves the lifespan."""
    with replica(MEMORY, install=True) as process:
        async with listening(url_of(process), 200) as streams:
            before = monotonic()
            process.send_signal(number)
            await ends_gracefully(streams)
            await gone(process)
            took = monotonic() - before
    print(f"200 streams ended and the process went within {took:.2f} s of {number.name}")  # noqa: T201
    assert took < DRAIN + 1


async def test_a_client_that_reads_nothing_does_not_keep_the_process() -> None:
    """Its result stays in the socket; the others have theirs."""
    with replica(MEMORY, install=True) as process:
        url = url_of(process)
        with stalled_listener(url):
            async with listening(url, 3) as streams:
                before = monotonic()
                process.terminate()
                await ends_gracefully(streams)
                await gone(process)
                assert monotonic() - before < DRAIN + 1


async def test_a_listen_after_the_signal_is_refused() -> None:
    """In a process that takes its time: the client asks again, and another replica answers."""
    subscriptions = McpSubscriptions(MemoryBus())
    mcp = build("board", subscriptions)
    async with Client(mcp) as client, client.listen(tools_list_changed=True) as stream:
        assert await subscriptions.drain() == 0
        assert [event async for event in stream] == []
        with pytest.raises(MCPError, match="shutting down"):
            async with client.listen(tools_list_changed=True):
                pass
        # Everything else goes on until the server is really gone.
        assert not (await client.call_tool("change", {"kind": "tools"})).is_error
    async with Client(mcp) as client, client.listen(tools_list_changed=True) as stream:
        await client.call_tool("change", {"kind": "tools"})
        await expect(stream, ToolsListChanged())


async def test_draining_without_streams_takes_no_time() -> None:
    """And may be asked for at any time, with or without `install`."""
    subscriptions = McpSubscriptions(MemoryBus())
    assert await subscriptions.drain() == 0
    async with subscriptions.lifespan():
        before = monotonic()
        assert await subscriptions.drain() == 0
        assert monotonic() - before < DRAIN / 2


@contextmanager
def served_by(*command: str, workers: int, started: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A server that is told where the application is, on a port of its own, once all of its workers serve."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", *(part.format(port=port) for part in command)],
        cwd=ROOT,
        env=os.environ | {BUS: MEMORY, INSTALL: "1", STARTED: str(started)},
        start_new_session=True,
    ) as process:
        try:
            _until_serving(port, process, workers, started)
            yield process, f"http://127.0.0.1:{port}/mcp"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _until_serving(port: int, process: subprocess.Popen[bytes], workers: int, started: Path) -> None:
    """All of the workers: one of granian's that is starting drops the signal, and its supervisor waits for ever."""
    deadline = monotonic() + LIMIT
    while monotonic() < deadline and process.poll() is None:
        with socket.socket() as client:
            if len(list(started.iterdir())) == workers and client.connect_ex(("127.0.0.1", port)) == 0:
                return
        sleep(0.01)
    raise AssertionError(f"{list(started.iterdir())} of {workers} serve; the server's code is {process.poll()}")


UVICORN = (
    "uvicorn",
    "tests.mcp.board:app",
    "--factory",
    "--port",
    "{port}",
    "--log-level",
    "warning",
    "--workers",
    "2",
)
GUNICORN = (
    *("gunicorn", "tests.mcp.board:app()", "--workers", "2", "--bind", "127.0.0.1:{port}"),
    *("--worker-class", "uvicorn_worker.UvicornWorker", "--log-level", "warning"),
)
GRANIAN = (
    *("granian", "tests.mcp.board:app", "--factory", "--interface", "asgi", "--workers", "2"),
    *("--port", "{port}", "--log-level", "warning"),
)


HYPERCORN = ("hypercorn", "tests.mcp.board:app()", "--workers", "0", "--bind", "127.0.0.1:{port}")
"""Workers of it hear of no signal; with none, it serves in the process that does."""


@pytest.mark.parametrize(
    ("command", "workers"),
    [(UVICORN, 2), (GUNICORN, 2), (GRANIAN, 2), (HYPERCORN, 1)],
    ids=["uvicorn", "gunicorn", "granian", "hypercorn"],
)
async def test_every_worker_of_a_server_ends_its_streams_gracefully(
    command: tuple[str, ...], workers: int, tmp_path: Path
) -> None:
    """The supervisor passes the signal on to them."""
    with served_by(*command, workers=workers, started=tmp_path) as (process, url):
        async with listening(url, 20) as streams:
            before = monotonic()
            process.terminate()
            await ends_gracefully(streams)
            await gone(process)
            print(f"{command[0]}: {monotonic() - before:.2f} s")  # noqa: T201
            assert monotonic() - before < DRAIN + 2  # the supervisor's own turn


async def test_a_drain_by_hand_comes_before_a_server_that_is_stopped_by_hand() -> None:
    """As the docs say of hypercorn: in its trigger, since it leaves the lifespan only after the streams."""
    subscriptions = McpSubscriptions(MemoryBus(), drain_on_signals=False)
    mcp = build("board", subscriptions)
    stop = anyio.Event()

    async def stopped() -> None:
        await stop.wait()
        assert await subscriptions.drain() == 0

    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    config = hypercorn.Config()
    config.bind = [f"fd://{listener.detach()}"]
    server = cast("Any", hypercorn.asyncio)  # its types are not those of Starlette
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: server.serve(mcp.streamable_http_app(), config, shutdown_trigger=stopped))
        async with listening(url, 20) as streams:
            stop.set()
            await ends_gracefully(streams)


async def test_a_signal_over_stdio_ends_the_streams_before_the_process() -> None:
    """There it would end at once."""
    code = f"import os; os.environ.update({{'{BUS}': '{MEMORY}', '{STDIO}': '1', '{INSTALL}': '1'}})"
    script = (
        f"{code}; print(os.getpid(), file=open(os.environ['PID_FILE'], 'w')); import tests.mcp.board as b; b._main()"
    )
    pid_file = ROOT / f".pid-{os.getpid()}"
    try:
        parameters = StdioServerParameters(
            command=sys.executable, args=["-c", script], cwd=ROOT, env={"PID_FILE": str(pid_file)}
        )
        async with Client(stdio_client(parameters)) as client, client.listen(tools_list_changed=True) as stream:
            os.kill(int(pid_file.read_text()), signal.SIGTERM)
            with anyio.fail_after(LIMIT):
                assert [event async for event in stream] == []
    finally:
        pid_file.unlink(missing_ok=True)


# The chain


async def test_handlers_are_chained_to_and_put_back(anyio_backend_name: str) -> None:
    """Also where somebody has chained on top meanwhile: then it passes the signal on, and no more."""
    heard: list[str] = []

    def their_own(signum: int, frame: object) -> None:
        heard.append("theirs")

    before = signal.signal(signal.SIGTERM, their_own)
    theirs = signal.getsignal(signal.SIGTERM)
    try:
        drained = anyio.Event()

        async def nothing() -> None: ...

        chain = SignalChain(drained.set, nothing)
        signal.raise_signal(signal.SIGTERM)
        assert heard == ["theirs"]
        with anyio.fail_after(LIMIT):
            await drained.wait()
        chain.take_back()
        assert signal.getsignal(signal.SIGTERM) is theirs

        drained = anyio.Event()
        chain = SignalChain(drained.set, nothing)
        ours: Any = signal.getsignal(signal.SIGTERM)

        def on_top(*args: Any) -> None:
            heard.append("on top")
            ours(*args)

        signal.signal(signal.SIGTERM, on_top)
        chain.take_back()
        assert signal.getsignal(signal.SIGTERM) is on_top
        signal.raise_signal(signal.SIGTERM)
        assert heard == ["theirs", "on top", "theirs"]
        await anyio.sleep(0.01)
        assert not drained.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("ours", [True, False], ids=["turned off", "no streams"])
async def test_signals_are_left_alone_where_that_is_asked_for(ours: bool) -> None:
    """Where the streams are the SDK's there is nothing to drain."""
    subscriptions = McpSubscriptions(MemoryBus(), drain_on_signals=not ours)
    mcp = build("board", subscriptions, sdk_streams=not ours)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with Client(mcp):
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_the_last_lifespan_that_is_left_puts_the_handlers_back() -> None:
    """Over stdio and in memory there are several, in any order."""
    subscriptions = McpSubscriptions(MemoryBus())
    subscriptions.install(build("board", subscriptions))
    before = signal.getsignal(signal.SIGTERM)
    first, second = subscriptions.lifespan(), subscriptions.lifespan()
    await first.__aenter__()
    chained = signal.getsignal(signal.SIGTERM)
    assert chained != before
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) == chained
    await second.__aexit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) == before


FORK = """
import os, signal, time, anyio
from notification_bus import MemoryBus
from notification_bus.mcp import McpSubscriptions
from tests.mcp.board import build

async def main():
    subscriptions = McpSubscriptions(MemoryBus())
    subscriptions.install(build("board", subscriptions))
    async with subscriptions.lifespan():
        child = os.fork()
        if not child:
            time.sleep(60)
        time.sleep(0.5)  # what reaches a child in the middle of its fork is lost to Python
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep(60)

anyio.run(main, backend=%r)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_process_that_nobody_looks_after_dies_of_its_signal_and_so_does_its_child(backend: str) -> None:
    """The handler drains and then lets the signal have its way; in a fork's child there is nothing to drain."""
    with anyio.fail_after(LIMIT):
        done = await anyio.run_process([sys.executable, "-c", FORK % backend], check=False, cwd=ROOT)
    assert done.stdout.split() == [b"-15"]
    assert done.returncode == -signal.SIGTERM
