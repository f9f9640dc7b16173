"""A broker inside this process, and links to it on which every fault can be had at will."""

from tests.kit.simulated.broker import Observation, SimulatedBroker
from tests.kit.simulated.bus import SimulatedBus
from tests.kit.simulated.connection import BrokerRefusedError, SimulatedConnection
from tests.kit.simulated.harness import SimulatedHarness
from tests.kit.simulated.link import SimulatedLink

__all__ = [
    "BrokerRefusedError",
    "Observation",
    "SimulatedBroker",
    "SimulatedBus",
    "SimulatedConnection",
    "SimulatedHarness",
    "SimulatedLink",
]
