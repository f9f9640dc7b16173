"""NatsBus keeps the whole contract, on every server version that is here."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from notification_bus.testing import BrokerHarness, Observed, url_harness
from notification_bus.testing.contract import BusContract
from notification_bus_nats._bus import subject_of
from tests.brokers import Server
from tests.brokers.wire import WitnessWire


class SubjectWire(WitnessWire):
    """Raw clients on the subject of a channel."""

    async def inject(self, channel: str, body: bytes) -> None:
        await super().inject(subject_of(channel), body)

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observed]:
        async with super().observe(subject_of(channel)) as observed:
            yield observed


class TestNatsBusKeepsTheContract(BusContract):
    strict = True

    @pytest.fixture
    def harness(self, each_server: Server) -> BrokerHarness:
        return url_harness(
            each_server.url,
            wire=SubjectWire("nats", each_server.url),
            broker=f"nats-server {each_server.version}",
            max_body=1_048_576,
        )
