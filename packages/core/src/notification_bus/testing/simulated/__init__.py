"""A broker inside this process, and links to it on which every fault can be had at will."""

from notification_bus.testing.simulated.broker import Observation, SimulatedBroker
from notification_bus.testing.simulated.bus import SimulatedBus
from notification_bus.testing.simulated.connection import BrokerRefusedError, SimulatedConnection
from notification_bus.testing.simulated.harness import SimulatedHarness
from notification_bus.testing.simulated.link import SimulatedLink

__all__ = [
    "BrokerRefusedError",
    "Observation",
    "SimulatedBroker",
    "SimulatedBus",
    "SimulatedConnection",
    "SimulatedHarness",
    "SimulatedLink",
]
