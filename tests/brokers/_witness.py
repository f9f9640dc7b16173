"""Raw clients beside the bus: what they see and say passes none of its code. On asyncio, as their libraries are."""

import asyncio
import contextlib
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import anyio

from tests.brokers._base import Kind

if TYPE_CHECKING:
    import asyncpg
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from redis.asyncio import Redis
    from redis.asyncio.client import PubSub

__all__ = ["NatsWitness", "PostgresWitness", "RedisWitness", "Witness", "witness"]

_TIMEOUT = 5.0
"""Seconds for a healthy server to answer."""

_CLOSING = 2.0
"""Seconds that closing may take; the server may be frozen or dead by then."""


class Witness(ABC):
    """Hears and publishes on one channel. It never reconnects: a witness that has missed something says so."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.bodies: list[bytes] = []
        """Everything seen on the channel since entering, in the order of arrival, its own included."""
        self.failure: str | None = None
        """Why it hears nothing any more."""
        self._news = anyio.Event()

    @abstractmethod
    async def publish(self, body: bytes) -> None:
        """Publish as a stranger would; returns when the server has it."""

    async def wait_for(self, n: int, timeout: float = _TIMEOUT) -> list[bytes]:
        """Wait until `n` bodies or more were seen since entering, and return all of them.

        Raises:
            TimeoutError: They were not seen within `timeout` seconds.
            ConnectionError: They never will be: the connection is lost.
        """
        with anyio.move_on_after(timeout):
            while len(self.bodies) < n and self.failure is None:
                await self._news.wait()
        if len(self.bodies) >= n:
            return list(self.bodies)
        seen = f"saw {len(self.bodies)} of {n} bodies on {self.channel!r}, the last {self.bodies[-3:]!r}"
        if self.failure is not None:
            raise ConnectionError(f"the witness {seen}, then lost its connection: {self.failure}")
        raise TimeoutError(f"the witness {seen} within {timeout:g} s")

    def _saw(self, body: bytes) -> None:
        self.bodies.append(body)
        self._wake()

    def _failed(self, why: str) -> None:
        self.failure = self.failure or why
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class RedisWitness(Witness):
    def __init__(self, channel: str, client: "Redis") -> None:
        super().__init__(channel)
        self.client = client
        """For `CLIENT LIST`, `CLIENT KILL`, `ACL SETUSER` and the like; on connections of its own."""

    async def publish(self, body: bytes) -> None:
        with anyio.fail_after(_TIMEOUT):
            await self.client.publish(self.channel, body)  # pyright: ignore[reportUnknownMemberType]

    async def read(self, pubsub: "PubSub", confirmed: asyncio.Event) -> None:
        try:
            while True:
                message = cast("dict[str, Any]", await pubsub.get_message(timeout=None))
                if message["type"] == "message":
                    self._saw(cast("bytes", message["data"]))
                elif confirmed.is_set():
                    # The library has reconnected without a word, and a second confirmation is the only sign.
                    return self._failed("redis-py reconnected")
                else:
                    confirmed.set()
        # Whatever ends the reading, the witness is deaf from then on, and says so.
        except Exception as error:
            return self._failed(repr(error))


class NatsWitness(Witness):
    def __init__(self, channel: str, client: "Client") -> None:
        super().__init__(channel)
        self._client = client

    async def publish(self, body: bytes) -> None:
        with anyio.fail_after(_TIMEOUT):
            await self._client.publish(self.channel, body)
            await _settle(self._client)

    async def heard(self, message: "Msg") -> None:
        self._saw(message.data)

    async def closed(self) -> None:
        self._failed("the connection was closed")


class PostgresWitness(Witness):
    def __init__(self, channel: str, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        super().__init__(channel)
        self.connection = connection
        """For queries; not the one that listens."""
        self._turn = anyio.Lock()

    async def publish(self, body: bytes) -> None:
        async with self._turn:
            await self.connection.execute("SELECT pg_notify($1, $2)", self.channel, body.decode(), timeout=_TIMEOUT)

    def heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._saw(str(payload).encode())

    def ended(self, _connection: object) -> None:
        self._failed("the connection was closed")


@overload
def witness(
    kind: Literal["redis"], url: str, channel: str, *, ca: Path | None = None
) -> AbstractAsyncContextManager[RedisWitness]: ...
@overload
def witness(
    kind: Literal["nats"], url: str, channel: str, *, ca: Path | None = None
) -> AbstractAsyncContextManager[NatsWitness]: ...
@overload
def witness(
    kind: Literal["postgres"], url: str, channel: str, *, ca: Path | None = None
) -> AbstractAsyncContextManager[PostgresWitness]: ...
@overload
def witness(kind: Kind, url: str, channel: str, *, ca: Path | None = None) -> AbstractAsyncContextManager[Witness]: ...
def witness(kind: Kind, url: str, channel: str, *, ca: Path | None = None) -> AbstractAsyncContextManager[Witness]:
    """A witness on a channel, which it hears once entered.

    Args:
        kind: Which broker.
        url: The server's own address, not that of a proxy before it.
        channel: A Redis channel, a NATS subject, or the name that PostgreSQL listens to; taken literally.
        ca: The authority to trust when the URL demands TLS.
    """
    match kind:
        case "redis":
            return _redis(url, channel, ca)
        case "nats":
            return _nats(url, channel, ca)
        case "postgres":
            return _postgres(url, channel, ca)


@asynccontextmanager
async def _redis(url: str, channel: str, ca: Path | None) -> AsyncGenerator[RedisWitness]:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": _TIMEOUT,
    }
    if ca is not None:
        options["ssl_ca_certs"] = str(ca)
    client = Redis.from_url(url, **options)  # pyright: ignore[reportUnknownMemberType]
    pubsub = client.pubsub()  # pyright: ignore[reportUnknownMemberType]
    seen = RedisWitness(channel, client)
    confirmed = asyncio.Event()
    reader: asyncio.Task[None] | None = None
    try:
        with anyio.fail_after(_TIMEOUT):
            await pubsub.subscribe(channel)
            reader = asyncio.create_task(seen.read(pubsub, confirmed))
            while not confirmed.is_set() and not reader.done():
                await asyncio.wait({reader, asyncio.ensure_future(confirmed.wait())}, return_when="FIRST_COMPLETED")
        yield seen
    finally:
        with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
            if reader is not None:
                reader.cancel()
                await asyncio.wait({reader}, timeout=_CLOSING)
            with anyio.move_on_after(_CLOSING):
                await pubsub.aclose()
            with anyio.move_on_after(_CLOSING):
                await client.aclose()


@asynccontextmanager
async def _nats(url: str, channel: str, ca: Path | None) -> AsyncGenerator[NatsWitness]:
    from nats.aio.client import Client

    async def quiet(_error: Exception) -> None:
        """Errors of a connection reach the caller; the default would log them as errors of the test."""

    client = Client()
    seen = NatsWitness(channel, client)
    options: dict[str, Any] = {} if ca is None else {"tls": ssl.create_default_context(cafile=ca)}
    try:
        with anyio.fail_after(_TIMEOUT):
            await client.connect(url, allow_reconnect=False, error_cb=quiet, closed_cb=seen.closed, **options)
            await client.subscribe(  # pyright: ignore[reportUnknownMemberType]
                channel, cb=seen.heard, pending_msgs_limit=0, pending_bytes_limit=0
            )
            await _settle(client)
        yield seen
    finally:
        with anyio.move_on_after(_CLOSING, shield=True):
            await client.close()


async def _settle(client: "Client") -> None:
    """Wait until the server has everything: a flush alone overtakes what is still buffered, and proves nothing."""
    while client.pending_data_size:
        await asyncio.sleep(0)
    await client.flush()


@asynccontextmanager
async def _postgres(url: str, channel: str, ca: Path | None) -> AsyncGenerator[PostgresWitness]:
    import asyncpg

    options: dict[str, Any] = {} if ca is None else {"ssl": ssl.create_default_context(cafile=ca)}
    async with contextlib.AsyncExitStack() as closing:
        connections: list[asyncpg.Connection[asyncpg.Record]] = []
        for _ in range(2):
            connection = await asyncpg.connect(url, timeout=_TIMEOUT, **options)
            closing.callback(connection.terminate)
            connections.append(connection)
        listening, asking = connections
        seen = PostgresWitness(channel, asking)
        listening.add_termination_listener(seen.ended)
        await listening.add_listener(channel, seen.heard)
        yield seen
