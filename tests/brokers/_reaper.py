"""Kills what a vanished owner left running. Run as a script it waits for its standard input to close.

`atexit` does not run when a process is killed, nor when pytest-timeout ends it: then the closing of a pipe is the only
sign left. Standard library only, so that it starts quickly and in any interpreter.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["children", "freeze_tree", "gone", "kill_tree", "release_memory", "state"]

_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self" / "stat").exists()


def _stat(pid: int) -> tuple[int, str] | None:
    """The parent's id and the state letter of a process, if there is such a one."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command's name stands in brackets and may itself hold brackets and blanks.
    letter, parent = text.rpartition(")")[2].split()[:2]
    return int(parent), letter


def _listing(*options: str) -> list[tuple[int, int, str]]:
    """The same of many processes, their ids first, where there is no /proc."""
    command = ["ps", *options, "-o", "pid=,ppid=,state="]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    rows = [line.split()[:3] for line in answer.stdout.splitlines()]
    return [(int(pid), int(parent), letters[:1]) for pid, parent, letters in rows]


def children(pid: int) -> list[int]:
    """The ids of the running direct children of a process. Zombies are not running."""
    if _HAS_PROC:
        pids = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
        rows = [(child, *stat) for child in pids if (stat := _stat(child)) is not None]
    else:
        rows = _listing("-A")
    return [child for child, parent, letter in rows if parent == pid and letter != "Z"]


def state(pid: int) -> str | None:
    """The state letter of a process ("T" is stopped, "Z" is dead and not collected), or None for no such process."""
    if _HAS_PROC:
        stat = _stat(pid)
        return None if stat is None else stat[1]
    return next((letter for found, _, letter in _listing("-p", str(pid)) if found == pid), None)


def gone(pid: int) -> bool:
    return state(pid) in {None, "Z"}


def freeze_tree(pid: int) -> list[int]:
    """SIGSTOP a process and its children, and return the ids of all when they stand still.

    The parent first: one that goes on running would fork more. The children of a postmaster are in sessions of their
    own, so that no signal to a group reaches them.
    """
    _stop(pid)
    family = [pid, *children(pid)]
    for member in family[1:]:
        _stop(member)
    return family


def _stop(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while state(pid) not in {"T", "t", "Z", None}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} did not stop within 5 s")
        time.sleep(0.001)


def kill_tree(pid: int) -> list[int]:
    """SIGKILL a process and its children, and return the ids of all."""
    family = freeze_tree(pid)
    for member in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    return family


def release_memory(data: Path) -> None:
    """Remove what a killed postmaster left, a System V segment and a lock file, when all its processes are gone."""
    lock = data / "postmaster.pid"
    with contextlib.suppress(OSError, IndexError, ValueError):
        segment = int(lock.read_text("utf-8").splitlines()[6].split()[1])
        ctypes.CDLL(None).shmctl(segment, 0, None)  # 0 is IPC_RMID
    lock.unlink(missing_ok=True)


def _main() -> None:
    pids: set[int] = set()
    root = Path(sys.argv[1])
    for line in sys.stdin:
        verb, _, pid = line.partition(" ")
        (pids.add if verb == "add" else pids.discard)(int(pid))
    family = [member for pid in pids for member in kill_tree(pid)]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not all(map(gone, family)):
        time.sleep(0.01)
    for lock in root.glob("*/data/postmaster.pid"):
        release_memory(lock.parent)
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    _main()
