"""Another process with an instance of the bus, for the checks that need one.

    python -m notification_bus.testing.child SPEC CHANNEL MODE

SPEC is a URL for `open_bus`, or `package.module:name` of a harness or of what makes one (`load_harness`), or `-` where
that stands in the environment. It speaks lines, on stdin and stdout, and ends when its stdin does, so that it never
outlives who started it:

* it writes `ready` once its subscription is entered, and `received <body>` for every notification that it receives;
* MODE `talk`: it publishes the body of every line `publish <body>` that it reads, and then writes `published`;
* MODE `flood`: it publishes numbered notifications, each with a pad whose length is in it, until it is ended.
"""

import os
import queue
import sys
import threading
from contextlib import AbstractAsyncContextManager
from typing import Final, cast
from urllib.parse import quote

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.bus import NotificationBus
from notification_bus.errors import BusURLError
from notification_bus.notification import BusNotification
from notification_bus.testing._process import FLOOD, SPEC
from notification_bus.testing.specs import SpecError, load_harness
from notification_bus.url import open_bus

__all__ = ["main"]

_SIZES: Final = (0, 10, 300, 3000)
_POLL: Final = 0.005


def open_instance(spec: str, channel: str) -> tuple[AbstractAsyncContextManager[NotificationBus], str]:
    """An instance on that channel and the async library to run it on."""
    if "://" in spec:
        bus = open_bus(f"{spec}{'&' if '?' in spec else '?'}channel={quote(channel, safe='')}")
        return cast("AbstractAsyncContextManager[NotificationBus]", bus), "asyncio"
    harness = load_harness(spec)
    return harness.instance(channel), next(iter(harness.capabilities.backends))


class _Lines:
    """The lines of stdin, read by a thread: the only way that works for every kind of stdin on every system."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def next(self) -> str | None:
        """The next line, `None` at the end.

        Raises:
            queue.Empty: There is none yet.
        """
        return self._queue.get_nowait()


def _say(*words: str) -> None:
    print(*words, flush=True)  # noqa: T201  # stdout is the line to the parent


async def _receive(bus: NotificationBus, ready: anyio.Event) -> None:
    async with bus.subscribe() as stream:
        _say("ready")
        ready.set()
        async for notification in stream:
            _say("received", notification.encode().decode())


async def _talk(bus: NotificationBus, lines: _Lines) -> None:
    while True:
        try:
            line = lines.next()
        except queue.Empty:
            await anyio.sleep(_POLL)
            continue
        if line is None:
            return
        word, _, body = line.partition(" ")
        if word == "publish":
            await bus.publish(BusNotification.decode(body))
            _say("published")


async def _flood(bus: NotificationBus, lines: _Lines) -> None:
    number = 0
    while True:
        try:
            if lines.next() is None:
                return
        except queue.Empty:
            await checkpoint()
        for size in _SIZES:
            number += 1
            await bus.publish(BusNotification(FLOOD, {"n": number, "size": size, "pad": "x" * size}))
        # Enough to be in the middle of something at any moment, and not so much that peers do nothing else.
        await anyio.sleep(0.001)


async def _run(instance: AbstractAsyncContextManager[NotificationBus], mode: str) -> None:
    work = {"talk": _talk, "flood": _flood}[mode]
    lines = _Lines()
    ready = anyio.Event()
    async with instance as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, bus, ready)
        await ready.wait()
        await work(bus, lines)
        tasks.cancel_scope.cancel()


def main(arguments: list[str]) -> None:
    """Run as that process."""
    spec, channel, mode = arguments
    if spec == "-":
        spec = os.environ[SPEC]
    try:
        instance, backend = open_instance(spec, channel)
    except (BusURLError, SpecError) as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")
    anyio.run(_run, instance, mode, backend=backend)


if __name__ == "__main__":
    main(sys.argv[1:])
