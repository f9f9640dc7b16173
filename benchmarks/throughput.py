"""How many notifications a second go from one process to another: the bus, with and without frames, and its rivals.

    uv run python -m benchmarks.throughput [redis|nats|postgres] [--count 40000] [--rounds 5]

Each side is a publishing and a receiving process of its own, on one server, and the sides take turns in one run. The
publisher hands over `count` different bodies of about a hundred bytes as fast as it can; the time goes from its first
call to the last arrival. A round counts only what arrived: what did not is in the column `lost`, and fails the run.

* `bus` has its default settings, but for an outbox that holds the whole burst; `frames` writes frames beside that. Both
  yield decoded notifications.
* `raw` is the broker's own client as documented, told to make batches of 200 where it can: a redis-py pipeline to
  `listen()`, nats-py's `publish` and one `flush` to a callback, asyncpg's `unnest` to a listener. It yields bytes.
* `replica` is `raw` with a publisher that is subscribed as well, as every instance of a bus is: it must hear what it
  publishes. What `bus` has to match is `raw`; what a server would write by itself is `replica`.
* `broadcaster` is the library of that name, a tenth of the count. It has no NATS. With redis-py 8 on Python 3.11 it
  receives nothing, so its client gets `socket_timeout=None` here.

Medians of the rounds, and ratios to the aims; the exit code is 1 where one is missed. The rates depend on the machine.
"""

import argparse
import asyncio
import multiprocessing
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from statistics import median
from time import monotonic, process_time
from typing import Any, Final

import anyio
import anyio.to_thread

from benchmarks.support import Raw, add_broker_argument, connect_broadcaster, connect_raw, open_bus_on, started
from notification_bus import BusNotification

_SILENCE: Final = 5.0
"""Seconds without an arrival after which the rest of a round is lost."""

AIMS: Final[dict[str, dict[tuple[str, str], float]]] = {
    "redis": {
        ("bus", "raw"): 1.0,
        ("bus", "broadcaster"): 12.0,
        ("frames", "broadcaster"): 30.0,
    },
    "nats": {
        ("bus", "raw"): 1.0,
        ("frames", "raw"): 2.5,
    },
    "postgres": {
        ("bus", "raw"): 0.8,
        ("bus", "broadcaster"): 30.0,
        ("frames", "broadcaster"): 25.0,
    },
}

Publish = Callable[[], Awaitable[object]]


class Tally:
    """Counts arrivals, and when the last one was."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        self.gaps: Callable[[], int] = lambda: 0

    def body(self, _body: bytes) -> None:
        self.count += 1
        self.last = monotonic()

    async def drain(self, subscription: AsyncIterator[BusNotification]) -> None:
        async for _ in subscription:
            self.count += 1
            self.last = monotonic()


@dataclass
class Side:
    """One way to publish and to receive, and what came of it."""

    name: str
    count: int
    rates: list[float] = field(default_factory=list[float])
    publishing: list[float] = field(default_factory=list[float])
    receiving: list[float] = field(default_factory=list[float])
    lost: int = 0

    @property
    def rate(self) -> float:
        return median(self.rates)


def notifications(count: int) -> list[BusNotification]:
    """All different, so that nothing is cheaper here for being the same again."""
    return [
        BusNotification.resource_updated(f"board://sprint/tasks/{number:010}/some-longer-path")
        for number in range(count)
    ]


def connect(side: Side, kind: str, url: str) -> AbstractAsyncContextManager[Raw]:
    return (connect_broadcaster if side.name == "broadcaster" else connect_raw)(kind, url, side.name)


@asynccontextmanager
async def publishing(side: Side, kind: str, url: str) -> AsyncGenerator[Publish]:
    """What publishes all of a round, and returns when the client has taken it."""
    values = notifications(side.count)
    bodies = [value.encode() for value in values]
    if side.name in {"bus", "frames"}:
        options = {"outbox": side.count, "frames": str(side.name == "frames").lower()}
        async with open_bus_on(url, side.name, **options) as bus:
            await bus.wait_ready()

            async def publish() -> None:
                for value in values:
                    await bus.publish(value)

            yield publish
    else:
        async with connect(side, kind, url) as raw, anyio.create_task_group() as tasks:
            if side.name == "replica":
                tasks.start_soon(raw.listen, Tally().body)

            async def publish_raw() -> None:
                await raw.publish_all(bodies)

            yield publish_raw
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def receiving(side: Side, kind: str, url: str) -> AsyncGenerator[Tally]:
    """What counts the arrivals, subscribed."""
    tally = Tally()
    async with anyio.create_task_group() as tasks:
        if side.name in {"bus", "frames"}:
            async with open_bus_on(url, side.name) as bus, bus.subscribe() as subscription:
                tally.gaps = lambda: bus.stats().gaps
                tasks.start_soon(tally.drain, subscription)
                yield tally
        else:
            async with connect(side, kind, url) as raw:
                tasks.start_soon(raw.listen, tally.body)
                await anyio.sleep(1)  # not every client says when it is subscribed
                yield tally
                tasks.cancel_scope.cancel()


def publisher(side: Side, kind: str, url: str, pipe: Connection) -> None:
    async def run() -> None:
        async with publishing(side, kind, url) as publish:
            pipe.send("ready")
            while await anyio.to_thread.run_sync(pipe.recv):
                began, worked = monotonic(), process_time()
                await publish()
                pipe.send(began)
                await anyio.to_thread.run_sync(pipe.recv)
                pipe.send(process_time() - worked)

    asyncio.run(run())


def receiver(side: Side, kind: str, url: str, pipe: Connection) -> None:
    async def run() -> None:
        async with receiving(side, kind, url) as tally:
            pipe.send("ready")
            while await anyio.to_thread.run_sync(pipe.recv):
                tally.count, tally.last, worked, gaps = 0, monotonic(), process_time(), tally.gaps()
                pipe.send("counting")
                while tally.count < side.count and monotonic() - tally.last < _SILENCE:
                    await anyio.sleep(0.01)
                pipe.send((tally.count - (tally.gaps() - gaps), tally.last, process_time() - worked))

    asyncio.run(run())


class Pair:
    """The two processes of one side."""

    def __init__(self, side: Side, kind: str, url: str) -> None:
        self.side = side
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = list[Any]()
        for target in (receiver, publisher):
            ours, theirs = context.Pipe()
            process = context.Process(target=target, args=(side, kind, url, theirs))
            process.start()
            theirs.close()
            assert ours.recv() == "ready"
            self._pipes.append(ours)
            self._processes.append(process)

    def round(self, *, warm_up: bool) -> None:
        receiver_, publisher_ = self._pipes
        receiver_.send(True)
        assert receiver_.recv() == "counting"
        publisher_.send(True)
        began = publisher_.recv()
        count, last, receiving_ = receiver_.recv()
        publisher_.send(True)
        publishing_ = publisher_.recv()
        self.side.lost += self.side.count - count
        if not warm_up:
            self.side.rates.append(count / (last - began) if count else 0.0)
            self.side.publishing.append(publishing_ / self.side.count)
            self.side.receiving.append(receiving_ / self.side.count)

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join()


def measure(kind: str, url: str, count: int, rounds: int) -> dict[str, Side]:
    names = [*dict.fromkeys(name for pair in AIMS[kind] for name in pair), "replica"]
    pairs = [Pair(Side(name, count // 10 if name == "broadcaster" else count), kind, url) for name in names]
    for number in range(rounds + 1):
        for pair in pairs:
            pair.round(warm_up=number == 0)
    for pair in pairs:
        pair.end()
    return {pair.side.name: pair.side for pair in pairs}


def report(kind: str, sides: dict[str, Side]) -> bool:
    """Print, and say whether every aim was reached."""
    reached = True
    for side in sides.values():
        work = f"{median(side.publishing) * 1e6:6.1f} µs to publish {median(side.receiving) * 1e6:6.1f} µs to receive"
        print(f"  {side.name:12} {side.rate / 1000:8.1f} k/s {work}   lost {side.lost}")
        reached = reached and (side.lost == 0 or side.name not in {"bus", "frames"})
    for (ours, theirs), aim in {**AIMS[kind], ("bus", "replica"): 0.0}.items():
        ratio = median(a / b for a, b in zip(sides[ours].rates, sides[theirs].rates, strict=True))
        if not aim:
            print(f"  {ours} to {theirs}: {ratio:.2f}")
            continue
        reached = reached and ratio >= aim
        print(f"  {ours} to {theirs}: {ratio:.2f}, aim {aim:g}{'' if ratio >= aim else ': missed'}")
    return reached


def main() -> int:
    """Measure, print, and say by the exit code whether every aim was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_argument(parser)
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with started(arguments.broker) as server:
        print(f"{server.flavour} {server.version}, {arguments.rounds} rounds of {arguments.count}")
        sides = measure(arguments.broker, server.url, arguments.count, arguments.rounds)
    return 0 if report(arguments.broker, sides) else 1


if __name__ == "__main__":
    sys.exit(main())
