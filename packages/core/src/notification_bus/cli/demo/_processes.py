"""Processes of the demo's own: each ends with the demo, however that ends."""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import IO, Final, cast

from notification_bus.cli._command import CommandError, holding_signals
from notification_bus.cli.demo._find import Program
from notification_bus.cli.demo._order import Answer, Order
from notification_bus.testing._waiting import wait_for

__all__ = ["Replica", "broker", "replica"]

_START: Final = 60.0
"""Seconds that a process may take to start. Importing the SDK takes two on a good day, and more on a busy machine."""

_GRACE: Final = 3.0
"""Seconds that a process is given to end by itself."""


@contextmanager
def _folder() -> Generator[Path]:
    """A folder that is removed."""
    folder: tempfile.TemporaryDirectory[str] | None = None
    try:
        # A signal between the making and the noting would leave a folder that nobody knows.
        with holding_signals():
            folder = tempfile.TemporaryDirectory(prefix="notification-bus-demo-")
        yield Path(folder.name)
    finally:
        if folder is not None:
            with holding_signals():
                folder.cleanup()


@contextmanager
def _running(command: list[str], folder: Path) -> Generator[tuple["subprocess.Popen[str]", Path]]:
    """A process, and the file of its errors."""
    errors = folder / "errors.txt"
    process: subprocess.Popen[str] | None = None
    try:
        # A signal in the middle of Popen would leave a process that nobody knows.
        with errors.open("wb") as output, holding_signals():
            process = subprocess.Popen(  # noqa: S603  # a program that this package has found or is
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
                encoding="utf-8",
                # Ctrl-C goes to the whole group of the terminal: the demo alone must hear it, and end all in order.
                start_new_session=True,
            )
        yield process, errors
    finally:
        if process is not None:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    # Both halves even where a second Ctrl-C comes in the middle of the first.
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


class Replica:
    """A replica that is starting."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._line = ""
        self._said = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # In a thread, since reading a pipe with a time limit is nowhere else the same on every system.
        with contextlib.suppress(OSError, ValueError):
            self._line = cast("IO[str]", self._process.stdout).readline()
        self._said.set()

    def url(self) -> str:
        """Where it listens, as soon as it does.

        Raises:
            CommandError: It does not. Holds its reason.
        """
        if not wait_for(self._said, _START):
            raise CommandError(f"a replica has not started within {_START:g} s: {_tail(self._errors)}")
        if not self._line:
            raise CommandError(f"a replica ended at its start: {_tail(self._errors)}")
        answer: Answer = json.loads(self._line)
        if "port" not in answer:
            raise CommandError(f"a replica has no bus: {answer.get('error')}")
        return f"http://127.0.0.1:{answer['port']}"


@contextmanager
def replica(order: Order) -> Generator[Replica]:
    """Start a replica; it is ready when its `url()` says so."""
    with _folder() as folder:
        command = [sys.executable, "-m", "notification_bus.cli.demo._replica"]
        with _running(command, folder) as (process, errors):
            stdin = cast("IO[str]", process.stdin)
            with contextlib.suppress(OSError):  # it has ended already, and says why
                stdin.write(f"{json.dumps(order)}\n")
                stdin.flush()
            yield Replica(process, errors)


@contextmanager
def broker(program: Program) -> Generator[str]:
    """A broker on a port of its own, with nothing but a folder that is removed. Yields its URL."""
    with _folder() as folder:
        for attempts_left in (2, 1, 0):
            port = _free_port()
            command = [
                str(program.path),
                "--bind",
                "127.0.0.1",
                "--port",
                str(port),
                "--save",
                "",
                "--dir",
                str(folder),
            ]
            with _running(command, folder) as (process, errors):
                if _answers(process, port):
                    yield f"redis://127.0.0.1:{port}"
                    return
                # Somebody else may have taken the port in between.
                if not attempts_left:
                    raise CommandError(
                        f"{program.path} does not start: {_tail(errors)}; give the URL of a broker with --bus"
                    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _answers(process: "subprocess.Popen[str]", port: int) -> bool:
    deadline = monotonic() + _GRACE
    while process.poll() is None and monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5) as client:
            client.sendall(b"PING\r\n")
            if client.recv(5) == b"+PONG":
                return True
        # A refused connection answers at once; waiting for the process keeps this from being a busy loop.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    return False
