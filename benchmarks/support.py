"""What the benchmarks share: a server of their own, a bus on it, and the broker's client used raw."""

import argparse
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from notification_bus import OpenableBus, open_bus
from tests.brokers import KINDS, Provider, Server
from tests.brokers._base import Kind


def add_broker_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", nargs="?", choices=KINDS, default="redis")


@contextmanager
def started(kind: str) -> Generator[Server]:
    """A server that nothing else uses."""
    with Provider("auto").dedicated(cast("Kind", kind)) as server:
        yield server


def open_bus_on(url: str, channel: str, **options: object) -> OpenableBus:
    query = "&".join(f"{name}={value}" for name, value in {"channel": channel, **options}.items())
    return open_bus(f"{url}?{query}")


@dataclass
class Raw:
    """The broker's own client, as its documentation uses it."""

    publish: Callable[[bytes], Awaitable[object]]
    flush: Callable[[], Awaitable[object]]
    listen: Callable[[Callable[[bytes], None]], Awaitable[object]]


@asynccontextmanager
async def connect_raw(kind: str, url: str, channel: str) -> AsyncGenerator[Raw]:
    """Connect the raw client; `listen` starts delivering to a callback."""
    match kind:
        case "redis":
            import redis.asyncio

            client: Any = redis.asyncio.Redis.from_url(url)
            pubsub: Any = client.pubsub()

            async def nothing() -> None: ...

            async def listen(callback: Callable[[bytes], None]) -> None:
                await pubsub.subscribe(channel)
                async for message in pubsub.listen():
                    if message["type"] == "message":
                        callback(message["data"])

            try:
                yield Raw(lambda body: client.publish(channel, body), nothing, listen)
            finally:
                await pubsub.aclose()
                await client.aclose()
        case "nats":
            import nats

            connection: Any = await nats.connect(url)

            async def listen_nats(callback: Callable[[bytes], None]) -> None:
                async def on_message(message: Any) -> None:
                    callback(message.data)

                await connection.subscribe(channel, cb=on_message)
                await connection.flush()

            yield Raw(lambda body: connection.publish(channel, body), connection.flush, listen_nats)
            await connection.close()
        case "postgres":
            import asyncpg

            publishing: Any = await asyncpg.connect(url)
            listening: Any = await asyncpg.connect(url)

            async def nothing_yet() -> None: ...

            async def listen_postgres(callback: Callable[[bytes], None]) -> None:
                def on_notification(_connection: object, _pid: int, _channel: str, payload: str) -> None:
                    callback(payload.encode())

                await listening.add_listener(channel, on_notification)

            yield Raw(
                lambda body: publishing.execute("SELECT pg_notify($1, $2)", channel, body.decode()),
                nothing_yet,
                listen_postgres,
            )
            await publishing.close()
            await listening.close()
        case _:
            raise ValueError(kind)
