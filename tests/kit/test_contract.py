"""Two correct buses on the simulated broker pass the whole kit: what fails on a broken one is not the kit's mistake."""

import pytest

from notification_bus.testing import Timing
from notification_bus.testing.contract import BusContract
from tests.kit import simulated_bus
from tests.kit.gallery import gallery_harness
from tests.kit.simulated import SimulatedHarness

TIMING = Timing(outage=0.5, silence=0.02)
"""Nothing here has a client library whose patience must be outlasted, and nothing is carried later than at once."""


class TestReferenceBus(BusContract):
    strict = True
    backends = ("asyncio", "trio")
    timing = TIMING

    @pytest.fixture
    def harness(self) -> SimulatedHarness:
        return gallery_harness()


class TestBrokerBus(BusContract):
    strict = True
    backends = ("asyncio", "trio")
    timing = TIMING

    @pytest.fixture
    def harness(self) -> SimulatedHarness:
        return simulated_bus.harness()
