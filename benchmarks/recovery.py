"""How long after a broker accepts connections again the first notification is delivered.

    uv run python -m benchmarks.recovery [redis|nats|postgres] [--rounds 15] [--down 1.0]

Each round kills the server, leaves it down for a while (and a random bit, so that the rounds meet the back-off at
different places), and starts it on the same port. Seconds, with the settings that a user gets by default.
"""

import argparse
import random
import socket
import threading
from contextlib import suppress
from statistics import median
from time import perf_counter

import anyio

from benchmarks.support import add_broker_argument, open_bus_on, started
from notification_bus import GAP, BusNotification
from tests.brokers import Server


async def restarted(server: Server) -> float:
    """Start the server; when its port accepted, seen from outside of the event loop."""
    begun = threading.Event()
    accepted: list[float] = []

    def watch() -> None:
        begun.set()
        while not accepted:
            with suppress(OSError):
                socket.create_connection((server.host, server.port), timeout=1).close()
                accepted.append(perf_counter())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun.wait()
    await anyio.to_thread.run_sync(server.restart)
    await anyio.to_thread.run_sync(watcher.join)
    return accepted[0]


async def measure(server: Server, rounds: int, down: float) -> list[float]:
    times: list[float] = []
    async with open_bus_on(server.url, "bench", buffer=100_000) as bus, bus.subscribe() as subscription:
        for _ in range(rounds):
            server.kill()
            await anyio.sleep(down + random.random())
            delivered = anyio.Event()
            at = 0.0

            async def watch(delivered: anyio.Event = delivered) -> None:
                nonlocal at
                async for notification in subscription:
                    if notification != GAP:
                        at = perf_counter()
                        delivered.set()
                        return

            async def publish(delivered: anyio.Event = delivered) -> None:
                while not delivered.is_set():
                    await bus.publish(BusNotification.tools_list_changed())
                    await anyio.sleep(0.01)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                tasks.start_soon(publish)
                times.append(-await restarted(server))
                await delivered.wait()
            times[-1] += at
            # Quiet before the next round: what is left from this one must not count as delivered in it.
            marker = BusNotification("bench/marker", {"round": len(times)})
            await bus.publish(marker)
            async for notification in subscription:
                if notification == marker:
                    break
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_broker_argument(parser)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--down", type=float, default=1.0)
    arguments = parser.parse_args()
    with started(arguments.broker) as server:
        times = anyio.run(measure, server, arguments.rounds, arguments.down)
        print(f"{server.flavour} {server.version}, {arguments.rounds} restarts")
    print(
        f"  first delivery after accepting: median {median(times):.3f} s, best {min(times):.3f}, worst {max(times):.3f}"
    )


if __name__ == "__main__":
    main()
