"""The parent's side of a child process with an instance of the bus; the child's side is `child.py`."""

import os
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, Process

from notification_bus.errors import MalformedBodyError
from notification_bus.notification import BusNotification

__all__ = ["FLOOD", "SPEC", "Child", "start_child"]

FLOOD: Final = "notifications/contract/flood"
"""The method of what a flooding child publishes; `n` counts, and `pad` has `size` characters."""

SPEC: Final = "NOTIFICATION_BUS_CONTRACT_CHILD"
"""The environment variable in which the child finds what it is to build."""

_KEPT: Final = 20


class Child:
    """A child process, as its lines show it. It may be killed at any moment."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.ready = False
        """It has entered its subscription."""
        self.ended = False
        """It writes nothing any more."""
        self.received: Final[list[BusNotification]] = []
        """What its subscription yielded."""
        self._errors: deque[str] = deque(maxlen=_KEPT)

    async def publish(self, notification: BusNotification) -> None:
        """Have it publish (mode `talk`)."""
        assert self._process.stdin is not None  # noqa: S101  # it was started with a pipe
        await self._process.stdin.send(b"publish " + notification.encode() + b"\n")

    async def kill(self) -> None:
        """End it at once (SIGKILL), in the middle of whatever it does, and wait until it is gone."""
        self._process.kill()
        await self._process.wait()

    async def read(self) -> None:
        """Read its lines, to their end."""
        assert self._process.stdout is not None  # noqa: S101  # it was started with a pipe
        async for line in _lines(self._process.stdout):
            word, _, body = line.partition(" ")
            if word == "ready":
                self.ready = True
            elif word == "received":
                try:
                    self.received.append(BusNotification.decode(body))
                except MalformedBodyError as exc:  # the last line of a child that was killed
                    self._errors.append(f"a line that is no notification: {exc}")
        self.ended = True

    async def read_errors(self) -> None:
        """Keep the end of what it writes to stderr."""
        assert self._process.stderr is not None  # noqa: S101  # it was started with a pipe
        async for line in _lines(self._process.stderr):
            self._errors.append(line)

    def __str__(self) -> str:
        state = "ended" if self.ended else "running"
        errors = "\n      ".join(self._errors)
        return f"{state}, received {len(self.received)}" + (f"; stderr ends:\n      {errors}" if errors else "")


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[str]:
    rest = b""
    try:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass
    if rest:
        yield rest.decode("utf-8", "replace")


@asynccontextmanager
async def start_child(spec: str, channel: str, mode: str) -> AsyncGenerator[Child]:
    """Start a child process, and end it on leaving."""
    # The child must find what the parent finds, also what pytest or an author put on the path of this process.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109  # the very text of sys.path
    # A URL may hold a password, and everybody can read the arguments of a process.
    command = [sys.executable, "-m", "notification_bus.testing.child", "-", channel, mode]
    process = await anyio.open_process(
        command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, "PYTHONPATH": path, SPEC: spec}
    )
    child = Child(process)
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.read)
            tasks.start_soon(child.read_errors)
            try:
                yield child
            except anyio.get_cancelled_exc_class():
                raise
            # Kept out of the task group, which would wrap it: a failed check is to be reported as it is.
            except BaseException as exc:
                failure = exc
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
    if failure is not None:
        raise failure
