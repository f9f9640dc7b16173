"""RedisBus keeps the whole contract, on every server that is here."""

import pytest

from notification_bus.testing import BrokerHarness, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import Provider
from tests.brokers.wire import WitnessWire


class TestRedisBusKeepsTheContract(BusContract):
    """On the session's shared server."""

    strict = True

    @pytest.fixture
    def harness(self, brokers: Provider) -> BrokerHarness:
        server = brokers.get("redis")
        return url_harness(
            server.url,
            wire=WitnessWire("redis", server.url),
            broker=f"{server.flavour} {server.version}",
            max_body=1_048_576,
        )
