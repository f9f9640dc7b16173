"""What a request pays: the awaited cost of `bus.publish` against awaiting the round trip of the client as documented.

    uv run python -m benchmarks.publish_cost [redis|nats|postgres] [--rate 200] [--count 2000]

Both sides take turns in one run, at a steady rate, with a subscriber on the channel. Microseconds; the ratio of the
medians is the figure, the rest depends on the machine.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median, quantiles
from time import perf_counter

from benchmarks.support import add_broker_argument, connect_raw, open_bus_on, started
from notification_bus import BusNotification


async def measure(kind: str, url: str, rate: float, count: int) -> dict[str, list[float]]:
    notification = BusNotification.resource_updated("board://sprint/tasks/1234567890/some-longer-path")
    body = notification.encode()
    times: dict[str, list[float]] = {"bus.publish": [], "raw publish": []}
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus_on(url, "bench-bus"))
        subscription = await stack.enter_async_context(bus.subscribe())
        raw = await stack.enter_async_context(connect_raw(kind, url, "bench-raw"))

        async def drain() -> None:
            async for _ in subscription:
                pass

        drainer = asyncio.create_task(drain())
        sides: dict[str, Callable[[], Awaitable[object]]] = {
            "bus.publish": lambda: bus.publish(notification),
            "raw publish": lambda: raw.publish(body),
        }
        for number in range(count):
            for name, publish in sides.items():
                began = perf_counter()
                await publish()
                times[name].append(perf_counter() - began)
                await asyncio.sleep(max(0.0, 0.5 / rate - (perf_counter() - began)))
            if number == count // 10:  # the first tenth warms up
                for measured in times.values():
                    measured.clear()
        drainer.cancel()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_broker_argument(parser)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--count", type=int, default=2000)
    arguments = parser.parse_args()
    with started(arguments.broker) as server:
        times = asyncio.run(measure(arguments.broker, server.url, arguments.rate, arguments.count))
        print(f"{server.flavour} {server.version}, {arguments.rate:g}/s, {arguments.count} of each")
    for name, measured in times.items():
        tail = quantiles(measured, n=100)[98]
        print(f"  {name:12} p50 {median(measured) * 1e6:8.1f} µs   p99 {tail * 1e6:8.1f} µs")
    print(f"  ratio of the medians: 1/{median(times['raw publish']) / median(times['bus.publish']):.1f}")


if __name__ == "__main__":
    main()
