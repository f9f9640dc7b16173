"""How long from one process to another at a steady rate: the bus against the broker's own client as documented.

    uv run python -m benchmarks.latency [redis|nats|postgres] [--rate 200] [--count 2000]

One publishing process and one receiving process hold all sides, which take turns in one run. The time goes from before
the value is built and published in the one process to the other having it read: a `BusNotification`, and for the raw
client a dictionary by way of `json`. Both were started before; the first tenth warms up.

`replica` is the raw client with a publisher that is subscribed as well, as every instance of a bus is: the broker then
serves two, and on a small machine the publisher works while the receiver wants to.

Microseconds; the ratio of the medians is the figure, and the exit code is 1 where the aim is missed.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from multiprocessing.connection import Connection
from statistics import median, quantiles
from time import monotonic
from typing import Any, Final

import anyio
import anyio.to_thread

from benchmarks.support import Raw, add_broker_argument, connect_raw, open_bus_on, started
from notification_bus import BusNotification

AIM: Final = 1.1
"""Of the raw client's median."""

_METHOD: Final = "notifications/resources/updated"
_URI: Final = "board://sprint/tasks/1234567890/some-longer-path"
_LAST: Final = 5.0
"""Seconds that the last arrival may take."""

Times = dict[str, list[float]]


def receiver(kind: str, url: str, count: int, pipe: Connection) -> None:
    times: Times = {"bus": [], "raw": [], "replica": []}

    def note(side: str, params: Any) -> None:
        times[side].append(monotonic() - params["at"])

    async def drain(subscription: Any) -> None:
        async for notification in subscription:
            note("bus", notification.params)

    def note_raw(side: str, body: bytes) -> None:
        note(side, json.loads(body)["params"])

    async def run() -> None:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            bus = await stack.enter_async_context(open_bus_on(url, "bench-bus"))
            subscription = await stack.enter_async_context(bus.subscribe())
            tasks.start_soon(drain, subscription)
            for side in ("raw", "replica"):
                raw = await stack.enter_async_context(connect_raw(kind, url, f"bench-{side}"))
                tasks.start_soon(raw.listen, partial(note_raw, side))
            await anyio.sleep(1)  # not every client says when it is subscribed
            pipe.send("ready")
            await anyio.to_thread.run_sync(pipe.recv)
            with anyio.move_on_after(_LAST):
                while min(map(len, times.values())) < count:
                    await anyio.sleep(0.01)
            pipe.send(times)
            tasks.cancel_scope.cancel()

    asyncio.run(run())


def ignore(_body: bytes) -> None:
    """What a publisher does with what it hears."""


async def publish(kind: str, url: str, rate: float, count: int) -> None:
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        bus = await stack.enter_async_context(open_bus_on(url, "bench-bus"))
        raw = await stack.enter_async_context(connect_raw(kind, url, "bench-raw"))
        replica = await stack.enter_async_context(connect_raw(kind, url, "bench-replica"))
        tasks.start_soon(replica.listen, ignore)
        await bus.wait_ready()

        async def by_bus(at: float) -> None:
            await bus.publish(BusNotification(_METHOD, {"uri": _URI, "at": at}))

        async def by_raw(client: Raw, at: float) -> None:
            await client.publish(json.dumps({"method": _METHOD, "params": {"uri": _URI, "at": at}}).encode())

        sides: list[Callable[[float], Awaitable[None]]] = [by_bus, partial(by_raw, raw), partial(by_raw, replica)]
        for _ in range(count):
            for side in sides:
                at = monotonic()
                await side(at)
                await anyio.sleep(max(0.0, at + 1 / rate / len(sides) - monotonic()))
        tasks.cancel_scope.cancel()


def measure(kind: str, url: str, rate: float, count: int) -> Times:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=receiver, args=(kind, url, count, theirs))
    process.start()
    assert ours.recv() == "ready"
    asyncio.run(publish(kind, url, rate, count))
    ours.send("all published")
    times: Times = ours.recv()
    process.join()
    return times


def main() -> int:
    """Measure, print, and say by the exit code whether the aim was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_argument(parser)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--count", type=int, default=2000)
    arguments = parser.parse_args()
    count: int = arguments.count
    with started(arguments.broker) as server:
        print(f"{server.flavour} {server.version}, {arguments.rate:g}/s, {count} of each")
        times = measure(arguments.broker, server.url, arguments.rate, count)
    medians = dict[str, float]()
    for side, measured in times.items():
        measured_warm = measured[count // 10 :]
        medians[side] = median(measured_warm)
        tail = quantiles(measured_warm, n=100)[98]
        print(f"  {side:8} p50 {medians[side] * 1e6:8.1f} µs   p99 {tail * 1e6:8.1f} µs   lost {count - len(measured)}")
    print(f"  bus to replica: {medians['bus'] / medians['replica']:.2f}")
    ratio = medians["bus"] / medians["raw"]
    reached = ratio <= AIM and len(times["bus"]) == count
    print(f"  bus to raw: {ratio:.2f}, aim {AIM:g}{'' if reached else ': missed'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
