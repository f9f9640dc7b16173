"""Harnesses for child processes: `child:ReferenceBus_at_40123` is that bus, on a hub that has joined that port."""

from tests.kit.bridge import join
from tests.kit.gallery import find_bus
from tests.kit.harness import HubHarness
from tests.kit.hub import Hub, HubBus


def __getattr__(name: str) -> HubHarness:
    # A name is all that one process gives another to find a harness by, so the name carries the port.
    bus, found, port = name.partition("_at_")
    if not found:
        raise AttributeError(name)
    hub = Hub(max_body=8192)
    join(hub, int(port))
    return HubHarness(HubBus if bus == HubBus.__name__ else find_bus(bus), hub=hub)
