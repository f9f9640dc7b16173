"""RedisBus keeps the whole contract, on every server that is here."""

import pytest

from notification_bus.testing import Harness, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import Server
from tests.brokers.wires import RedisWire


class TestRedisBusKeepsTheContract(BusContract):
    strict = True

    @pytest.fixture
    def harness(self, each_server: Server) -> Harness:
        return url_harness(
            each_server.url,
            wire=RedisWire(each_server.url),
            broker=f"{each_server.flavour} {each_server.version}",
            max_body=1_048_576,
        )
