"""Raw access to a PostgreSQL channel, for the contract kit: LISTEN and NOTIFY by asyncpg, and no code of the bus."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

import anyio
import asyncpg

from notification_bus_postgres._bus import PostgresBus

if TYPE_CHECKING:
    from notification_bus_postgres._servers import Connection, FactoryServer, Hosts

__all__ = ["PostgresWire"]

_PATIENCE: Final = 5.0
"""Seconds for a healthy server to answer."""


class Seen:
    """What was on a channel."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        """Note a notification."""
        self.bodies.append(str(payload).encode())


class PostgresWire:
    """A `notification_bus.testing.Wire`.

    Args:
        bus: Whose servers to use; only its settings are.
    """

    def __init__(self, bus: PostgresBus) -> None:
        self._publishing = bus._publishing  # noqa: SLF001  # one distribution
        self._listening = bus._listening  # noqa: SLF001  # as above

    @classmethod
    def from_url(cls, url: str) -> Self:
        """For a URL as `PostgresBus.from_url` reads it, without a channel."""
        return cls(PostgresBus.from_url(f"{url}{'&' if '?' in url else '?'}channel=wire"))

    @asynccontextmanager
    async def _connected(self, server: "Hosts | FactoryServer") -> AsyncGenerator["Connection"]:
        with anyio.fail_after(_PATIENCE):
            connection, _ = await server.attach("wire", _PATIENCE)
        try:
            yield connection
        finally:
            with anyio.move_on_after(_PATIENCE, shield=True):
                await connection.close()

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes, which must be text, as all that PostgreSQL carries.

        Raises:
            ValueError: They are not, or are too many.
        """
        text = body.decode()
        async with self._connected(self._publishing) as connection:
            try:
                await connection.execute("SELECT pg_notify($1, $2)", channel, text)
            except asyncpg.DataError as exc:
                raise ValueError(f"the server does not carry this: {exc}") from exc

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Seen]:
        """Watch the channel."""
        seen = Seen()
        async with self._connected(self._listening) as connection:
            await connection.add_listener(channel, seen.hear)
            try:
                yield seen
            finally:
                if not connection.is_closed():
                    await connection.remove_listener(channel, seen.hear)

    async def version(self) -> str:
        """The server's name and version."""
        async with self._connected(self._publishing) as connection:
            return f"PostgreSQL {await connection.fetchval('SHOW server_version')}"
