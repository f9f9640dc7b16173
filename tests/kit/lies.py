"""A harness of which a test replaces one member, and what is found out about it."""

from typing import Any

from notification_bus import testing
from notification_bus.testing import Examination, examine_harness
from tests.kit.gallery import ReferenceBus
from tests.kit.harness import HubHarness

__all__ = ["PATIENCE", "Harness", "found", "the_only"]

PATIENCE = 1.5
"""Seconds to wait for what must come, here."""


class Harness(testing.Harness):
    """That of the reference bus, for a test to replace one member of."""

    wire: Any

    def __init__(self, bus: type[ReferenceBus] = ReferenceBus) -> None:
        self.honest: Any = HubHarness(bus)
        super().__init__(self.honest.build, self.honest.capabilities, link=self.honest.link, wire=self.honest.wire)

    def replace(self, **members: Any) -> None:
        """Have other members, of any type; `None` for a hook that is not there."""
        for name, value in members.items():
            setattr(self, f"_{name}" if value is None and name in ("link", "build") else name, value)


def found(harness: testing.Harness, backend: str = "asyncio") -> Examination:
    return examine_harness(harness, backend=backend, patience=PATIENCE)


def the_only(examination: Examination, id_: str) -> str:
    """The text of the one fault that there is, found by that check."""
    assert [fault.id for fault in examination.faults] == [id_], str(examination)
    text = str(examination)
    assert text.startswith("the harness, not the bus: ")
    return text
