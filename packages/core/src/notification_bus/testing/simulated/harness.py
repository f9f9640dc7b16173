"""A harness for any bus that can be built on the simulated broker."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from notification_bus.bus import NotificationBus
from notification_bus.testing.harness import Capabilities, Link
from notification_bus.testing.simulated.broker import SimulatedBroker
from notification_bus.testing.simulated.link import SimulatedLink

__all__ = ["SimulatedHarness"]


class SimulatedHarness:
    """Faults and wire for nothing: give a function that builds a bus on a link and a channel.

    Args:
        build: Builds a bus, and opens nothing yet.
        capabilities: What the bus says of itself.
        broker: The broker to run on; by default one of its own.
    """

    def __init__(
        self,
        build: Callable[[SimulatedLink, str], AbstractAsyncContextManager[NotificationBus]],
        capabilities: Capabilities,
        broker: SimulatedBroker | None = None,
    ) -> None:
        self.capabilities: Final = capabilities
        self.broker: Final = broker or SimulatedBroker(max_body=capabilities.max_body)
        self.wire: Final = self.broker
        self.child: str | None = None
        self._build = build

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus, None]:
        """A started bus on that channel."""
        if link is not None and not isinstance(link, SimulatedLink):
            raise TypeError(f"a bus on the simulated broker needs a SimulatedLink, not {type(link).__name__}")
        async with self._build(link or SimulatedLink(self.broker), channel) as bus:
            yield bus

    def link(self) -> AbstractAsyncContextManager[SimulatedLink]:
        """A new link for one instance."""
        return self.broker.link()
