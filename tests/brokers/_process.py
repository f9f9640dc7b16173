"""Processes that belong to this one: where they live, which port they take, and that none of them outlives it."""

import atexit
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.brokers import _reaper
from tests.brokers._base import START_TIMEOUT, BrokerStartError

__all__ = ["Process", "Workspace", "free_port", "unprivileged", "until", "workspace"]

_POLL = 0.005
"""Seconds between two looks at a condition."""


def until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: It did not come true within `timeout` seconds; names `what` was waited for.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s in vain for {what}")
        time.sleep(_POLL)


def free_port() -> int:
    """A free loopback port that no outgoing connection is ever given.

    A server that is down must find its port free when it comes back. A port of the system's ephemeral range could be
    taken meanwhile by any outgoing connection, even by the client that knocks at it, which then reaches itself.
    """
    try:
        ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    except OSError:
        ephemeral = 32768
    for _ in range(1000):
        port = random.randrange(10240, max(ephemeral, 16384))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise BrokerStartError("found no free port in 1000 tries")


@cache
def unprivileged() -> str | None:
    """The user to run as what refuses to run as root; None when this is no root process."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise BrokerStartError("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody")


class Workspace:
    """A folder for data and logs, and a helper process that clears everything when this process vanishes."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="nb-"))
        self.root.chmod(0o711)  # the user that PostgreSQL runs as passes through
        self._owner = os.getpid()
        self._count = 0
        self._running: dict[int, Process] = {}
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", _reaper.__file__, str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt typed at the terminal is for the owner
        )
        atexit.register(self.close)

    def folder(self, name: str) -> Path:
        self._count += 1
        path = self.root / f"{name}-{self._count}"
        path.mkdir()
        return path

    def add(self, process: "Process") -> None:
        self._running[process.pid] = process
        self._tell(f"add {process.pid}")

    def remove(self, process: "Process") -> None:
        if self._running.pop(process.pid, None) is not None:
            self._tell(f"remove {process.pid}")

    def _tell(self, line: str) -> None:
        assert self._reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._reaper.stdin.write(f"{line}\n".encode())
            self._reaper.stdin.flush()

    def close(self) -> None:
        if os.getpid() != self._owner:  # a forked child runs these handlers too
            return
        for process in list(self._running.values()):
            process.kill()
        assert self._reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._reaper.stdin.close()
        self._reaper.wait()
        shutil.rmtree(self.root, ignore_errors=True)


@cache
def workspace() -> Workspace:
    """The workspace of this process, made at the first use."""
    return Workspace()


class Process:
    """A running server process with its log. Started in a session of its own."""

    def __init__(self, command: Sequence[str], log: Path, *, user: str | None = None) -> None:
        self.log = log
        self.name = Path(command[0]).name
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                start_new_session=True,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
            )
        self.pid = self._popen.pid
        workspace().add(self)

    def exited(self) -> bool:
        return self._popen.poll() is not None

    def tail(self) -> str:
        """The end of the log, for an error's text."""
        return self.log.read_text("utf-8", "replace")[-2000:].strip() or "(the log is empty)"

    def await_start(self, answers: Callable[[], bool]) -> None:
        """Wait until the server answers; kill it when it does not.

        Raises:
            BrokerStartError: It ended, or does not answer in time. Holds the end of its log.
        """
        try:
            until(lambda: self.exited() or answers(), START_TIMEOUT, f"an answer of {self.name}")
        except TimeoutError as error:
            self.kill()
            raise BrokerStartError(f"{error}; its log ends:\n{self.tail()}") from None
        if self.exited():
            self.kill()
            raise BrokerStartError(
                f"{self.name} ended at start with code {self._popen.returncode}; its log ends:\n{self.tail()}"
            )

    def freeze(self) -> None:
        """Stop this process and its children; returns when all stand still."""
        _reaper.freeze_tree(self.pid)

    def thaw(self) -> None:
        """Continue the children, then the parent."""
        for pid in [*_reaper.children(self.pid), self.pid]:
            os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL this process and its children; returns when all are gone."""
        if self._popen.returncode is None:
            family = _reaper.kill_tree(self.pid)
            self._popen.wait()
            until(lambda: all(map(_reaper.gone, family[1:])), 10, f"the end of the children of {self.name}")
        workspace().remove(self)
