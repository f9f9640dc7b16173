"""A harness of which a test replaces one member, and what is found out about it."""

from typing import Any

from notification_bus.testing import Capabilities, Examination, examine_harness
from tests.kit.gallery import ReferenceBus, gallery_harness
from tests.kit.simulated import SimulatedHarness

__all__ = ["PATIENCE", "Harness", "found", "the_only"]

PATIENCE = 1.5
"""Seconds to wait for what must come, here."""


class Harness:
    """That of the reference bus, for a test to replace one member of."""

    def __init__(self, bus: type[ReferenceBus] = ReferenceBus) -> None:
        self.honest: SimulatedHarness = gallery_harness(bus)
        self.capabilities: Capabilities = self.honest.capabilities
        self.wire: Any = self.honest.wire
        self.link: Any = self.honest.link
        self.instance: Any = self.honest.instance
        self.build: Any = self.honest.build
        self.child: Any = None


def found(harness: object, backend: str = "asyncio") -> Examination:
    return examine_harness(harness, backend=backend, patience=PATIENCE)  # type: ignore[arg-type]


def the_only(examination: Examination, member: str) -> str:
    """The text of the one fault that there is."""
    assert [fault.member for fault in examination.faults] == [member], str(examination)
    text = str(examination)
    assert text.startswith("the harness, not the bus: ")
    return text
