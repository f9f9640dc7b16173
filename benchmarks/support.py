"""What the benchmarks share: a server of their own, a bus on it, and the broker's client used raw."""

import argparse
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from notification_bus import OpenableBus, open_bus
from tests.brokers import KINDS, Provider, Server
from tests.brokers._base import Kind

_BATCH: Final = 200
"""Bodies that a raw client sends at once, where its documentation shows a way to."""


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
    publish_all: Callable[[Sequence[bytes]], Awaitable[object]]
    """The quickest way that the documentation shows for many; returns when the client has handed over all."""
    listen: Callable[[Callable[[bytes], None]], Coroutine[Any, Any, None]]


def batches(bodies: Sequence[bytes]) -> Generator[Sequence[bytes]]:
    for start in range(0, len(bodies), _BATCH):
        yield bodies[start : start + _BATCH]


@asynccontextmanager
async def connect_raw(kind: str, url: str, channel: str) -> AsyncGenerator[Raw]:
    """Connect the raw client; `listen` starts delivering to a callback."""
    match kind:
        case "redis":
            import redis.asyncio

            client: Any = redis.asyncio.Redis.from_url(url)
            pubsub: Any = client.pubsub()

            async def publish_all(bodies: Sequence[bytes]) -> None:
                for batch in batches(bodies):
                    pipeline = client.pipeline(transaction=False)
                    for body in batch:
                        pipeline.publish(channel, body)
                    await pipeline.execute()

            async def listen(callback: Callable[[bytes], None]) -> None:
                await pubsub.subscribe(channel)
                async for message in pubsub.listen():
                    if message["type"] == "message":
                        callback(message["data"])

            try:
                yield Raw(lambda body: client.publish(channel, body), publish_all, listen)
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

            async def publish_all_nats(bodies: Sequence[bytes]) -> None:
                for body in bodies:
                    await connection.publish(channel, body)
                await connection.flush()

            yield Raw(lambda body: connection.publish(channel, body), publish_all_nats, listen_nats)
            await connection.close()
        case "postgres":
            import asyncpg

            publishing: Any = await asyncpg.connect(url)
            listening: Any = await asyncpg.connect(url)

            async def publish_all_postgres(bodies: Sequence[bytes]) -> None:
                query = "SELECT pg_notify($1, body) FROM unnest($2::text[]) AS body"
                for batch in batches(bodies):
                    await publishing.execute(query, channel, [body.decode() for body in batch])

            async def listen_postgres(callback: Callable[[bytes], None]) -> None:
                def on_notification(_connection: object, _pid: int, _channel: str, payload: str) -> None:
                    callback(payload.encode())

                await listening.add_listener(channel, on_notification)

            yield Raw(
                lambda body: publishing.execute("SELECT pg_notify($1, $2)", channel, body.decode()),
                publish_all_postgres,
                listen_postgres,
            )
            await publishing.close()
            await listening.close()
        case _:
            raise ValueError(kind)


@asynccontextmanager
async def connect_broadcaster(kind: str, url: str, channel: str) -> AsyncGenerator[Raw]:
    """Connect the library `broadcaster`, from the group `bench`."""
    from broadcaster import Broadcast

    backend: Any = None
    if kind == "redis":
        import redis.asyncio
        from broadcaster._backends.redis import RedisBackend

        # With redis-py 8 on Python 3.11, and its time-out of 5 s by default, `broadcaster` receives nothing.
        backend = RedisBackend(url)
        backend._conn = redis.asyncio.Redis.from_url(url, socket_timeout=None)
        backend._pubsub = backend._conn.pubsub()
    async with Broadcast(url, backend=backend) as broadcast:

        async def publish_all(bodies: Sequence[bytes]) -> None:
            for body in bodies:
                await broadcast.publish(channel, body.decode())

        async def listen(callback: Callable[[bytes], None]) -> None:
            subscriber: Any
            async with broadcast.subscribe(channel) as subscriber:
                async for event in subscriber:
                    callback(event.message.encode())

        yield Raw(lambda body: broadcast.publish(channel, body.decode()), publish_all, listen)
