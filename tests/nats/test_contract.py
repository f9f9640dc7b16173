"""NatsBus keeps the whole contract, on every server version that is here."""

import pytest

from notification_bus.testing import Harness, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import Server
from tests.brokers.wires import NatsWire


class TestNatsBusKeepsTheContract(BusContract):
    strict = True

    @pytest.fixture
    def harness(self, each_server: Server) -> Harness:
        return url_harness(
            each_server.url,
            wire=NatsWire(each_server.url),
            broker=f"nats-server {each_server.version}",
            max_body=1_048_576,
        )
