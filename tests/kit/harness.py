"""A harness for every bus that runs on a hub: `HubBus`, the reference bus and the broken ones."""

from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Final

from notification_bus.testing import Capabilities, FaultyLink, Harness, Link
from tests.kit.bridge import listen
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.hub import Hub, HubBus

__all__ = ["HubHarness"]


class HubHarness(Harness):
    """Every hook of the kit. Sizes and times are small, so that a check is quick, and generous to a busy machine.

    Args:
        bus: The class to build, from a hub, a channel and options.
        hub: The broker; by default a new one.
    """

    def __init__(self, bus: type[HubBus | ReferenceBus] = ReferenceBus, *, hub: Hub | None = None) -> None:
        self.hub: Final = hub or Hub(max_body=8192)
        capabilities = Capabilities(
            buffer=16,
            outbox=32,
            max_body=self.hub.max_body,
            ready_timeout=3.0,
            close_timeout=0.5,
            liveness=2.0,
            end_to_end=True,
            backends=("asyncio", "trio"),
            drop_logger=f"notification_bus.{bus.broker}",
        )
        super().__init__(capabilities=capabilities, wire=self.hub, broker="hub")
        self._bus: Final = bus

    @cached_property
    def child(self) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """How another process builds the same bus."""
        return f"tests.kit.child:{self._bus.__name__}_at_{listen(self.hub)}"

    def build(self, channel: str, link: Link | None = None) -> HubBus | ReferenceBus:
        """A bus on that channel, not started."""
        bus = self._bus(
            self.hub,
            channel,
            buffer=16,
            outbox=32,
            probe_interval=0.2,
            probe_timeout=1.0,
            ready_timeout=3.0,
            close_timeout=0.5,
            backoff_cap=0.2,
        )
        if link is not None:
            if not isinstance(link, FaultyLink):
                raise TypeError(f"this harness has links of its own, and was given a {type(link).__name__}")
            link.lead(bus)
        return bus

    def link(self) -> AbstractAsyncContextManager[FaultyLink]:
        """A new link for one instance."""
        return FaultyLink.open()
