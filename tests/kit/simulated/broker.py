"""The simulated broker: channels that forget, as those of Redis, NATS and Postgres do, and a wire to look at."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from anyio.lowlevel import checkpoint

from tests.kit.simulated.link import SimulatedLink

if TYPE_CHECKING:
    from tests.kit.simulated.connection import SimulatedConnection

__all__ = ["Observation", "Relay", "SimulatedBroker"]


class Observation:
    """The bodies that a channel carried while it was watched."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []


class Relay(Protocol):
    """Hears of every body on every channel: the way to a broker in another process."""

    def relay(self, channel: str, body: bytes) -> None:
        """A body was published, and not by this relay."""
        ...


class SimulatedBroker:
    """A broker inside this process, for asyncio and trio: at most once, no history, no acknowledgments.

    It is bound to no event loop, and its clients may come from several, in several threads. It is a
    `notification_bus.testing.Wire`.

    Args:
        max_body: Bytes of the largest body that it takes; `None` for no limit.
    """

    def __init__(self, *, max_body: int | None = None) -> None:
        self.max_body = max_body
        self._lock = Lock()
        self._subscribers: dict[str, Counter[SimulatedConnection]] = {}
        self._observations: dict[str, list[Observation]] = {}
        self._relays: list[Relay] = []
        self._open: set[SimulatedConnection] = set()

    @property
    def connections(self) -> int:
        """Connections that their clients have not closed and not lost."""
        return len(self._open)

    @asynccontextmanager
    async def link(self) -> AsyncGenerator[SimulatedLink, None]:
        """A link for one instance, which ends with the context."""
        link = SimulatedLink(self)
        try:
            yield link
        finally:
            await link.aclose()

    async def connect(self, link: SimulatedLink | None = None) -> "SimulatedConnection":
        """A new connection: through that link, or one with which nothing is ever wrong.

        Raises:
            ConnectionRefusedError: The link refuses connections.
        """
        return await (link or SimulatedLink(self)).connect()

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes, as a stranger would."""
        self.publish(channel, body)
        await checkpoint()

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observation, None]:
        """Watch the channel, ready once entered."""
        observation = Observation()
        with self._lock:
            self._observations.setdefault(channel, []).append(observation)
        try:
            yield observation
        finally:
            with self._lock:
                self._observations[channel].remove(observation)

    def publish(self, channel: str, body: bytes, *, came_by: Relay | None = None) -> None:
        """Hand a body to whoever is subscribed at this moment, and to the other relays."""
        with self._lock:
            observations = tuple(self._observations.get(channel, ()))
            subscribers = tuple(self._subscribers.get(channel, Counter()).elements())
            relays = tuple(self._relays)
        for observation in observations:
            observation.bodies.append(body)
        for connection in subscribers:
            connection.send_down(body)
        for relay in relays:
            if relay is not came_by:
                relay.relay(channel, body)

    def add_relay(self, relay: Relay) -> None:
        """Tell a relay of everything from now on."""
        with self._lock:
            self._relays.append(relay)

    def remove_relay(self, relay: Relay) -> None:
        """Tell a relay nothing more."""
        with self._lock:
            if relay in self._relays:
                self._relays.remove(relay)

    # What follows is what the requests of a connection do here, once the link has carried them. Each returns why the
    # broker does not do it, or None.

    def accept(self, connection: "SimulatedConnection", channel: str, bodies: tuple[bytes, ...]) -> str | None:
        """Publish a client's bodies: all of them or none."""
        if connection.link.is_denied:
            return f"no permission to publish on {channel!r}"
        if self.max_body is not None and (size := max(map(len, bodies), default=0)) > self.max_body:
            return f"a body has {size} bytes, and the simulated broker takes at most {self.max_body}"
        for body in bodies:
            self.publish(channel, body)
        return None

    def add_subscriber(self, connection: "SimulatedConnection", channel: str) -> str | None:
        """Subscribe a connection. As with NATS, one that subscribes twice is sent two copies."""
        with self._lock:
            self._subscribers.setdefault(channel, Counter())[connection] += 1
        return None

    def remove_subscriber(self, connection: "SimulatedConnection", channel: str) -> str | None:
        """End a connection's subscription, however often it was made."""
        with self._lock:
            self._subscribers.get(channel, Counter()).pop(connection, None)
        return None

    def forget(self, connection: "SimulatedConnection") -> None:
        """The connection is over, as the broker sees it."""
        with self._lock:
            for subscribers in self._subscribers.values():
                subscribers.pop(connection, None)
            self._open.discard(connection)
        connection.link.drop(connection)

    def count_opened(self, connection: "SimulatedConnection") -> None:
        """A client has opened a connection."""
        self._open.add(connection)

    def count_closed(self, connection: "SimulatedConnection") -> None:
        """A client has closed a connection, or learnt of its end."""
        self._open.discard(connection)
