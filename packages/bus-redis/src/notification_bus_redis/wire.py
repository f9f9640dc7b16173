"""Raw access to a Redis channel, for the contract kit: commands on redis-py's connections, and no code of the bus."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, Self, cast

import anyio
from redis.asyncio.connection import AbstractConnection

from notification_bus.url import with_options
from notification_bus_redis._bus import RedisBus

__all__ = ["RedisWire"]

_PATIENCE: Final = 5.0
"""Seconds for a healthy server to answer."""


class Seen:
    """What was on a channel."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []


class RedisWire:
    """A `notification_bus.testing.Wire`.

    Args:
        bus: Whose server to use; only its settings are.
    """

    def __init__(self, bus: RedisBus) -> None:
        self._make = bus._make

    @classmethod
    def from_url(cls, url: str) -> Self:
        """For a URL as `RedisBus.from_url` reads it, without a channel."""
        return cls(RedisBus.from_url(with_options(url, channel="wire")))

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[AbstractConnection]:
        connection = self._make()
        try:
            with anyio.fail_after(_PATIENCE):
                await connection.connect()
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes."""
        async with self._connection() as connection:
            await _ask(connection, "PUBLISH", channel, body)

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Seen]:
        """Watch the channel."""
        seen = Seen()

        async def read(connection: AbstractConnection) -> None:
            while True:
                reply = cast("list[bytes]", await connection.read_response(disable_decoding=True))
                seen.bodies.append(reply[2])

        async with self._connection() as connection:
            await _ask(connection, "SUBSCRIBE", channel)
            reader = asyncio.create_task(read(connection), name="watching a Redis channel")
            try:
                yield seen
            finally:
                reader.cancel()
                await asyncio.wait({reader})

    async def version(self) -> str:
        """The server's name and version."""
        async with self._connection() as connection:
            text = bytes(await _ask(connection, "INFO", "server")).decode(errors="replace")
        about = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if "valkey_version" in about:
            return f"Valkey {about['valkey_version']}"
        return f"Redis {about.get('redis_version', '')}".rstrip()


async def _ask(connection: AbstractConnection, *command: Any) -> Any:
    with anyio.fail_after(_PATIENCE):
        await connection.send_command(*command)
        return cast("Any", await connection.read_response(disable_decoding=True))
