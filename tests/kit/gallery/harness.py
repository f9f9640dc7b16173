"""The reference bus and each broken one, made ready for the kit."""

from collections.abc import Callable
from typing import Final

from notification_bus.testing.harness import Capabilities
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.simulated import SimulatedBroker, SimulatedHarness, SimulatedLink

__all__ = ["CAPABILITIES", "gallery_harness"]

_MAX_BODY: Final = 8192

CAPABILITIES: Final = Capabilities(
    buffer=16,
    outbox=32,
    max_body=_MAX_BODY,
    ready_timeout=3.0,
    close_timeout=0.5,
    liveness=2.0,
    end_to_end=True,
    backends=("asyncio", "trio"),
    drop_logger="notification_bus.gallery",
)
"""Sizes and times of the buses of the gallery: small, so that a check is quick, and generous to a busy machine."""


def gallery_harness(
    bus: type[ReferenceBus] = ReferenceBus, *, broker: SimulatedBroker | None = None
) -> SimulatedHarness:
    """A harness for a bus of the gallery, by default the reference bus."""

    def construct(link: SimulatedLink, channel: str) -> ReferenceBus:
        return bus(
            link,
            channel,
            max_body=_MAX_BODY,
            buffer=16,
            outbox=32,
            probe_interval=0.2,
            probe_timeout=1.0,
            ready_timeout=3.0,
            close_timeout=0.5,
            backoff_cap=0.2,
        )

    return SimulatedHarness(construct, CAPABILITIES, broker=broker, child=_child_of(bus.__name__))


def _child_of(name: str) -> Callable[[int], str]:
    return lambda port: f"tests.kit.gallery.child:{name}_at_{port}"
