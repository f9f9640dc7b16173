"""Raw access to a NATS subject, for the contract kit: nats-py's own client, and no code of the bus."""

# ruff: noqa: SLF001  # one distribution

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

import anyio
from nats.aio.client import Client
from nats.errors import MaxPayloadError

from notification_bus.url import with_options
from notification_bus_nats._bus import NatsBus, subject_of

if TYPE_CHECKING:
    from nats.aio.msg import Msg

__all__ = ["NatsWire"]

_PATIENCE: Final = 5.0
"""Seconds for a healthy server to answer."""

_SPREAD: Final = 0.05
"""Seconds in which the other servers of a cluster learn of a new interest."""


class Seen:
    """What was on a channel."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def hear(self, message: "Msg") -> None:
        """Note a message."""
        self.bodies.append(message.data)


class NatsWire:
    """A `notification_bus.testing.Wire`.

    Args:
        bus: Whose servers and credentials to use; only its settings are.
    """

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    @classmethod
    def from_url(cls, url: str) -> Self:
        """For a URL as `NatsBus.from_url` reads it, without a channel."""
        return cls(NatsBus.from_url(with_options(url, channel="wire")))

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        bus, client = self._bus, Client()
        server = bus._pool.named[0]
        settings = bus._settings_for(server)
        try:
            with anyio.fail_after(_PATIENCE):
                await client.connect(server.url, allow_reconnect=False, error_cb=_quiet, **settings)
            yield client
        finally:
            with anyio.move_on_after(_PATIENCE, shield=True):
                await client.close()

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes."""
        async with self._connected() as client:
            try:
                await client.publish(subject_of(channel), body)
            except MaxPayloadError as exc:
                raise ValueError(f"the server takes at most {client.max_payload} bytes") from exc
            await _settle(client)

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Seen]:
        """Watch the channel."""
        seen = Seen()
        async with self._connected() as client:
            await client.subscribe(  # pyright: ignore[reportUnknownMemberType]
                subject_of(channel), cb=seen.hear, pending_msgs_limit=0, pending_bytes_limit=0
            )
            await _settle(client)
            if len(client.servers) > 1:
                await asyncio.sleep(_SPREAD)
            yield seen

    async def version(self) -> str:
        """The server's name and version."""
        async with self._connected() as client:
            version = client.connected_server_version
            return f"nats-server {version.major}.{version.minor}.{version.patch}"


async def _settle(client: Client) -> None:
    """Wait until the server has everything: a flush alone overtakes what is still buffered."""
    while client.pending_data_size:  # noqa: ASYNC110  # nothing announces it
        await asyncio.sleep(0)
    await client.flush()


async def _quiet(_error: Exception) -> None:
    """Errors of the connection reach the caller; nats-py's default would log them as well."""
