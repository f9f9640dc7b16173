"""A harness for every bus that runs on a hub: `HubBus`, the reference bus and the broken ones."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import Final

from notification_bus.testing import Capabilities, FaultyLink, Link
from tests.kit.bridge import listen
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.hub import Hub, HubBus

__all__ = ["HubHarness"]


class HubHarness:
    """Every hook of the kit. Sizes and times are small, so that a check is quick, and generous to a busy machine.

    Args:
        bus: The class to build, from a hub, a channel and options.
        hub: The broker; by default a new one.
    """

    def __init__(self, bus: type[HubBus | ReferenceBus] = ReferenceBus, *, hub: Hub | None = None) -> None:
        self.hub: Final = hub or Hub(max_body=8192)
        self.wire: Final = self.hub
        self.broker: Final = "hub"
        self.capabilities: Final = Capabilities(
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
        self._bus: Final = bus

    @cached_property
    def child(self) -> str:
        """How another process builds the same bus."""
        return f"tests.kit.child:{self._bus.__name__}_at_{listen(self.hub)}"

    def build(self, channel: str) -> HubBus | ReferenceBus:
        """A bus on that channel, not started."""
        return self._bus(
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

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[HubBus | ReferenceBus]:
        """A started bus on that channel."""
        bus = self.build(channel)
        if link is not None:
            if not isinstance(link, FaultyLink):
                raise TypeError(f"this harness has links of its own, and was given a {type(link).__name__}")
            link.lead(bus)
        async with bus:
            yield bus

    def link(self) -> AbstractAsyncContextManager[FaultyLink]:
        """A new link for one instance."""
        return FaultyLink.open()
