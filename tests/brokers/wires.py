"""Wires for the contract kit that share no code with the adapters: raw clients, one for each use."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from notification_bus.testing import Observed
from notification_bus_nats._bus import subject_of
from tests.brokers._base import Kind
from tests.brokers._witness import witness

__all__ = ["NatsWire", "PostgresWire", "RedisWire"]


class _WitnessWire:
    kind: Kind

    def __init__(self, url: str) -> None:
        self._url = url

    def name_of(self, channel: str) -> str:
        """The name of the channel on the broker."""
        return channel

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these bytes unchanged."""
        async with witness(self.kind, self._url, self.name_of(channel)) as raw:
            await raw.publish(body)

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observed]:
        """Watch the channel."""
        async with witness(self.kind, self._url, self.name_of(channel)) as raw:
            yield raw


class RedisWire(_WitnessWire):
    kind = "redis"


class NatsWire(_WitnessWire):
    kind = "nats"

    def name_of(self, channel: str) -> str:
        return subject_of(channel)


class PostgresWire(_WitnessWire):
    kind = "postgres"

    async def inject(self, channel: str, body: bytes) -> None:
        if b"\0" in body or len(body) > 7999:
            raise ValueError("NOTIFY carries text without NUL, of at most 7,999 bytes")
        body.decode()  # raises a ValueError as well
        await super().inject(channel, body)
