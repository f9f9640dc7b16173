"""Harnesses for child processes: `child:ReferenceBus_at_40123` is that bus, on a broker that has joined that port."""

from tests.kit.gallery import find_bus, gallery_harness
from tests.kit.simulated import SimulatedBroker, SimulatedHarness
from tests.kit.simulated.bridge import join


def __getattr__(name: str) -> SimulatedHarness:
    # A name is all that one process gives another to find a harness by, so the name carries the port.
    bus, found, port = name.partition("_at_")
    if not found:
        raise AttributeError(name)
    broker = SimulatedBroker()
    join(broker, int(port))
    return gallery_harness(find_bus(bus), broker=broker)
