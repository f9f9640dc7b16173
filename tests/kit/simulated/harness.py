"""A harness for any bus that can be built on the simulated broker."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from types import TracebackType
from typing import Final, Protocol, Self

from notification_bus.bus import NotificationBus
from notification_bus.testing.harness import Capabilities, Link
from tests.kit.simulated.bridge import listen
from tests.kit.simulated.broker import SimulatedBroker
from tests.kit.simulated.link import SimulatedLink

__all__ = ["ContextBus", "SimulatedHarness"]


class ContextBus(NotificationBus, Protocol):
    """A bus that is entered before use, which is all that a harness needs of it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> bool | None: ...


class SimulatedHarness:
    """Faults and wire for nothing: give a function that builds a bus on a link and a channel.

        harness = SimulatedHarness(lambda link, channel: MyBus(link, channel, buffer=16), Capabilities(buffer=16))

    Args:
        construct: Builds a bus, and opens nothing yet.
        capabilities: What the bus says of itself.
        broker: The broker to run on; by default one of its own.
        child: For the checks that need a process: given the port at which the broker can be joined, how another process
            finds the same harness on a broker that has joined it.
    """

    def __init__(
        self,
        construct: Callable[[SimulatedLink, str], ContextBus],
        capabilities: Capabilities,
        *,
        broker: SimulatedBroker | None = None,
        child: Callable[[int], str] | None = None,
    ) -> None:
        self.capabilities: Final = capabilities
        self.simulated: Final = broker or SimulatedBroker(max_body=capabilities.max_body)
        self.wire: Final = self.simulated
        self.broker: Final = "simulated broker"
        self._construct = construct
        self._child = child

    @cached_property
    def child(self) -> str | None:
        """How another process builds the same bus."""
        return None if self._child is None else self._child(listen(self.simulated))

    def build(self, channel: str) -> ContextBus:
        """A bus on that channel, not started."""
        return self._construct(SimulatedLink(self.simulated), channel)

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[ContextBus, None]:
        """A started bus on that channel."""
        if link is not None and not isinstance(link, SimulatedLink):
            raise TypeError(f"a bus on the simulated broker needs a link of its kind, not {type(link).__name__}")
        async with self._construct(link or SimulatedLink(self.simulated), channel) as bus:
            yield bus

    def link(self) -> AbstractAsyncContextManager[SimulatedLink]:
        """A new link for one instance."""
        return self.simulated.link()
