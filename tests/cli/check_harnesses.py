"""What the tests of `notification-bus check` have checked."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NoReturn

import anyio
from sniffio import current_async_library

from notification_bus import MemoryBus, NotificationBus
from notification_bus.testing import Capabilities, Harness
from tests.kit.gallery import find_bus
from tests.kit.harness import HubHarness
from tests.kit.hub import HubBus

PASSWORD = "hunter2"
_numbers = count()

harness = HubHarness()


def drops_silently() -> HubHarness:
    """Fails one check of the group `slow`."""
    return HubHarness(find_bus("DropsSilently"))


def make_bus(channel: str) -> HubBus:
    """A `BrokerBus`, for which a harness is made."""
    return HubBus(harness.hub, channel)


class Bare(Harness):
    """The least that a harness can be."""

    capabilities = Capabilities(buffer=16)

    @asynccontextmanager
    async def instance(self, channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel, buffer=16) as bus:
            yield bus


class Apart(Bare):
    """A harness that lies."""

    @asynccontextmanager
    async def instance(self, channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(f"{channel}-{next(_numbers)}", buffer=16) as bus:
            yield bus


class Away(Bare):
    """A harness whose broker is away."""

    @asynccontextmanager
    async def instance(self, channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        raise ConnectionRefusedError("nothing listens at localhost:9092")
        yield


class FailsOnTrio(Bare):
    """Fails one check on trio only."""

    capabilities = Capabilities(buffer=16, backends=("asyncio", "trio"))

    @asynccontextmanager
    async def instance(self, channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel, buffer=16) as bus:
            if "deliver-echo" in channel and current_async_library() == "trio":
                raise ValueError("not on trio")
            yield bus


class Odd(Bare):
    """A bus whose errors hold what a terminal must not be sent."""

    @asynccontextmanager
    async def instance(self, channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel, buffer=16) as bus:
            if "deliver-echo" in channel:
                raise ValueError("[bold]\x1b[2J\x00 \ud800 ü")
            yield bus


def breaks() -> NoReturn:
    """No harness."""
    raise RuntimeError("no licence")


class Slow(Bare):
    """Takes its time, with a file open meanwhile that it removes."""

    @asynccontextmanager
    async def instance(self, channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        if "-harness-" not in channel and "header" not in channel:
            async with await anyio.open_process(["sleep", "1000"]) as process:
                try:
                    await anyio.sleep(1000)
                finally:
                    process.kill()
        async with MemoryBus(channel, buffer=16) as bus:
            yield bus


number = 7
