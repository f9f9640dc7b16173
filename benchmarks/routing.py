"""Routing and delivering on one node: `SubscriptionRegistry` against the MCP SDK's `InMemorySubscriptionBus`.

    python benchmarks/routing.py [--streams 10000] [--rounds 10] [--json]

Both sides hold the same open streams in one process and one run, each served by a task of its own that writes into
nothing: `ListenHandler` with a session whose `send_notification` returns at once, and a loop over `registry.listen`.
Without a bus behind the registry, as the SDK's has none.

* *work* is what `publish` does before it gives the event loop a turn, if it gives one: routing, and waking the readers.
  Measured by running the coroutine up to its first suspension, the same on both sides, less what an empty one takes.
* *delivered* goes from `publish` until every matching stream has been handed its message and waits for the next.

Medians of processor time, so that a neighbour on the machine costs nobody anything, are printed in microseconds. A
ratio is ours to theirs, so less is better; `reach` is the aim of PERFORMANCE.md, and the exit code is 1 where one is
missed.
"""

import argparse
import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any, cast

from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp_types import SubscriptionFilter as SdkFilter
from mcp_types import SubscriptionsListenRequestParams

from notification_bus.notification import BusNotification
from notification_bus.subscriptions import SubscriptionFilter, SubscriptionRegistry
from notification_bus.subscriptions._mailbox import Mailbox

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_TURNS = 5
"""Turns of the event loop in which a stream that has sent comes to wait for the next notification, and to spare."""

_REPEATS = 5
"""Measurements of one side before it is the other's turn: the first of them meets the other's data in the caches."""

Publish = Callable[[], Coroutine[Any, Any, None]]


class Sink:
    """Counts what streams have been handed, and tells when it was enough."""

    def __init__(self) -> None:
        self.count = 0
        self.wanted = 0
        self.reached = asyncio.Event()

    def expect(self, count: int) -> None:
        self.wanted = self.count + count
        self.reached.clear()

    async def send_notification(self, notification: object, related_request_id: object = None) -> None:
        self.count += 1
        if self.count == self.wanted:
            self.reached.set()

    async def wait(self) -> None:
        """Wait until it was enough, and every stream waits again: what one side has still to do is not the other's."""
        async with asyncio.timeout(60):
            await self.reached.wait()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


@dataclass
class FakeContext:
    request_id: int
    session: Sink


@dataclass
class Figure:
    measure: str
    ours: float
    theirs: float
    reach: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def of(position: int, *, same: bool) -> dict[str, Any]:
    return {"toolsListChanged": True} if same else {"resourceSubscriptions": [f"board://tasks/{position}"]}


async def open_ours(streams: int, *, same: bool) -> tuple[Sink, SubscriptionRegistry, list[asyncio.Task[None]]]:
    sink, registry = Sink(), SubscriptionRegistry(max_streams=streams + 1)
    await registry.__aenter__()

    async def serve(position: int) -> None:
        asked = SubscriptionFilter.from_wire(of(position, same=same))
        async with registry.listen(position, asked) as stream:
            async for message in stream:
                await sink.send_notification(message)

    sink.expect(streams)
    tasks = [asyncio.create_task(serve(position)) for position in range(streams)]
    await sink.wait()
    return sink, registry, tasks


async def open_theirs(streams: int, *, same: bool) -> tuple[Sink, InMemorySubscriptionBus, list[asyncio.Task[Any]]]:
    sink, bus = Sink(), InMemorySubscriptionBus()
    handler = ListenHandler(bus, max_subscriptions=streams + 1)

    async def serve(position: int) -> None:
        asked = SdkFilter.model_validate(of(position, same=same))
        context = cast("ServerRequestContext[Any, Any]", FakeContext(position, sink))
        await handler(context, SubscriptionsListenRequestParams(notifications=asked))

    sink.expect(streams)
    tasks = [asyncio.create_task(serve(position)) for position in range(streams)]
    await sink.wait()
    return sink, bus, tasks


async def close(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def drive(publish: Publish) -> float:
    """Seconds that a coroutine takes up to its first suspension, or its end."""
    coroutine = publish()
    start = process_time()
    try:
        coroutine.send(None)
    except StopIteration:
        took = process_time() - start
    else:
        took = process_time() - start
    coroutine.close()
    return took


async def nothing() -> None:
    """What is left to measure where nothing is done: the clock, and the driving of a coroutine."""


_CLOCK = median(drive(nothing) for _ in range(1000))


async def work(publish: Publish, sink: Sink, matching: int) -> float:
    """Seconds that `publish` works before its first suspension, or its end."""
    sink.expect(matching)
    took = drive(publish) - _CLOCK
    await sink.wait()
    return took


async def delivered(publish: Publish, sink: Sink, matching: int) -> float:
    """Seconds from `publish` until all matching streams have been handed their message, and wait for the next."""
    sink.expect(matching)
    start = process_time()
    await publish()
    await sink.wait()
    return process_time() - start


async def compare(streams: int, rounds: int, *, same: bool) -> tuple[Figure, Figure]:
    matching = streams if same else 1
    middle = f"board://tasks/{streams // 2}"
    our_notification = BusNotification.tools_list_changed() if same else BusNotification.resource_updated(middle)
    their_event = ToolsListChanged() if same else ResourceUpdated(middle)
    our_sink, registry, our_tasks = await open_ours(streams, same=same)
    their_sink, bus, their_tasks = await open_theirs(streams, same=same)

    def ours() -> Coroutine[Any, Any, None]:
        return registry.publish(our_notification)

    def theirs() -> Coroutine[Any, Any, None]:
        return bus.publish(their_event)

    measured: dict[str, tuple[list[float], list[float]]] = {}
    gc.collect()
    gc.disable()
    try:
        measures: dict[str, Callable[[Publish, Sink, int], Awaitable[float]]] = {"work": work, "delivered": delivered}
        for name, measure in measures.items():
            our_times, their_times = measured.setdefault(name, ([], []))
            for _ in range(rounds):
                our_times.extend([await measure(ours, our_sink, matching) for _ in range(_REPEATS)])
                their_times.extend([await measure(theirs, their_sink, matching) for _ in range(_REPEATS)])
    finally:
        gc.enable()
    await close([*our_tasks, *their_tasks])
    await registry.aclose()
    kind = f"{matching} of {streams}"
    (ours_work, theirs_work), (ours_delivered, theirs_delivered) = measured["work"], measured["delivered"]
    return (
        Figure(f"work, {kind}", micro(ours_work), micro(theirs_work), 1.0 if same else 1 / 500),
        Figure(f"delivered, {kind}", micro(ours_delivered), micro(theirs_delivered), 1.0),
    )


def micro(seconds: list[float]) -> float:
    return median(seconds) * 1e6


async def buffer(rounds: int) -> Figure:
    """One item into a buffer that nobody waits at, and out again."""
    notification, items = BusNotification.tools_list_changed(), 2000
    mailbox, queue = Mailbox((0,), 0), asyncio.Queue[BusNotification]()
    ours, theirs = list[float](), list[float]()
    for _ in range(rounds):
        start = process_time()
        for _ in range(items):
            mailbox.put(0, notification)
        ours.append((process_time() - start) / items)
        mailbox.pop()
        start = process_time()
        for _ in range(items):
            queue.put_nowait(notification)
        theirs.append((process_time() - start) / items)
        while not queue.empty():
            queue.get_nowait()
    return Figure("one item into a buffer, against asyncio.Queue", micro(ours), micro(theirs), 1.0)


async def fan_out(rounds: int) -> Figure:
    """From one notification to a hundred waiting tasks that have it, per task."""
    notification, readers = BusNotification.tools_list_changed(), 100
    ours, theirs = list[float](), list[float]()

    async def measure(put: list[Callable[[], None]], read: list[Callable[[], Awaitable[object]]]) -> float:
        tasks = [asyncio.ensure_future(one()) for one in read]
        await asyncio.sleep(0)
        start = process_time()
        for one in put:
            one()
        await asyncio.gather(*tasks)
        return (process_time() - start) / readers

    async def take(mailbox: Mailbox) -> object:
        while (found := mailbox.pop()) is None:
            await mailbox.wait()
        return found

    for _ in range(rounds):
        mailboxes = [Mailbox((0,), 0) for _ in range(readers)]
        queues = [asyncio.Queue[BusNotification]() for _ in range(readers)]
        ours.append(
            await measure([partial(m.put, 0, notification) for m in mailboxes], [partial(take, m) for m in mailboxes])
        )
        theirs.append(await measure([partial(q.put_nowait, notification) for q in queues], [q.get for q in queues]))
    return Figure("one item to 100 waiting tasks, per task, against asyncio.Queue", micro(ours), micro(theirs), 1.0)


async def run(streams: int, rounds: int) -> list[Figure]:
    return [
        *await compare(streams, rounds, same=False),
        *await compare(streams, rounds, same=True),
        await buffer(rounds * 10),
        await fan_out(rounds * 10),
    ]


def main() -> int:
    """Measure, print, and say by the exit code whether every aim was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = asyncio.run(run(options.streams, options.rounds))
    if options.json:
        print(json.dumps([{**vars(figure), "ratio": figure.ratio} for figure in figures], indent=2))
    else:
        print(f"{'measure':<62}{'ours µs':>12}{'theirs µs':>12}{'ratio':>10}{'reach':>10}")
        for figure in figures:
            print(
                f"{figure.measure:<62}{figure.ours:>12.2f}{figure.theirs:>12.2f}{figure.ratio:>10.4f}{figure.reach:>10.4f}"
            )
    return 0 if all(figure.ratio <= figure.reach for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
