"""The contract kit's way to the channel: the witnesses."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from notification_bus.testing import Observed
from tests.brokers._base import Kind
from tests.brokers._witness import witness

__all__ = ["WitnessWire"]


class WitnessWire:
    """A `Wire` of raw clients, one for each use."""

    def __init__(self, kind: Kind, url: str) -> None:
        self._kind: Kind = kind
        self._url = url

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes."""
        async with witness(self._kind, self._url, channel) as raw:
            await raw.publish(body)

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observed]:
        """Watch the channel."""
        async with witness(self._kind, self._url, channel) as raw:
            yield raw
