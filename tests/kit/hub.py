"""A broker in memory: channels without history, as those of Redis, NATS and Postgres are, and a bus on it.

Nothing is ever wrong with it. Faults come from a `FaultyLink` between a bus and its connections.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from threading import Lock
from typing import ClassVar, Final, Unpack

import anyio
from anyio.lowlevel import checkpoint

from notification_bus import BrokerBus, BrokerConnection, SendRefusedError
from notification_bus._loops import call_soon, current_loop
from notification_bus.notification import DEFAULT_MAX_BODY
from notification_bus.options import OptionValues

__all__ = ["Hub", "HubBus", "HubConnection", "Observation", "Relay"]

Relay = Callable[[str, bytes], None]
"""Called with every body on every channel: the way to a hub in another process."""


class Observation:
    """The bodies that a channel carried while it was watched."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []


class Hub:
    """A broker for asyncio and trio: at most once, no history, no acknowledgments.

    It is bound to no event loop, and its clients may come from several, in several threads. It is a
    `notification_bus.testing.Wire`.

    Args:
        max_body: Bytes of the largest body that it takes.
    """

    def __init__(self, *, max_body: int = DEFAULT_MAX_BODY) -> None:
        self.max_body: Final = max_body
        self.open: Final[set[HubConnection]] = set()
        """Connections that their clients have not closed."""
        self._lock = Lock()
        self._listeners: dict[str, list[Callable[[bytes], None]]] = {}
        self._relays: list[Relay] = []

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.open)

    async def connect(self, channel: str) -> "HubConnection":
        """A new connection, subscribed to the channel."""
        await checkpoint()
        connection = HubConnection(self, channel)
        connection.subscribe()
        return connection

    async def inject(self, channel: str, body: bytes) -> None:
        """Publish these very bytes, as a stranger would."""
        self.publish(channel, body)
        await checkpoint()

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observation]:
        """Watch the channel, ready once entered."""
        observation = Observation()
        self.listen(channel, observation.bodies.append)
        try:
            yield observation
        finally:
            self.unlisten(channel, observation.bodies.append)

    def publish(self, channel: str, body: bytes, *, came_by: Relay | None = None) -> None:
        """Hand a body to everything that listens at this moment, and to the other relays."""
        with self._lock:
            listeners = tuple(self._listeners.get(channel, ()))
            relays = tuple(self._relays)
        for listener in listeners:
            listener(body)
        for relay in relays:
            if relay != came_by:
                relay(channel, body)

    def listen(self, channel: str, listener: Callable[[bytes], None]) -> None:
        """Call a function with every body from now on; twice where it listens twice."""
        with self._lock:
            self._listeners.setdefault(channel, []).append(listener)

    def unlisten(self, channel: str, listener: Callable[[bytes], None]) -> None:
        """Call that function no more, however often it listened."""
        with self._lock:
            self._listeners[channel] = [other for other in self._listeners.get(channel, ()) if other != listener]

    def add_relay(self, relay: Relay) -> None:
        """Tell a relay of everything from now on."""
        with self._lock:
            self._relays.append(relay)

    def remove_relay(self, relay: Relay) -> None:
        """Tell a relay nothing more."""
        with self._lock:
            if relay in self._relays:
                self._relays.remove(relay)


class HubConnection(BrokerConnection):
    """A client's connection, at first without a subscription."""

    def __init__(self, hub: Hub, channel: str) -> None:
        self.max_body: int = hub.max_body
        self._hub: Final = hub
        self._channel: Final = channel
        self._loop = current_loop()
        self._inbox: deque[bytes] = deque()
        self._changed = anyio.Event()
        self._closed = False
        hub.open.add(self)

    def subscribe(self) -> None:
        """Subscribe. As with NATS, a connection that subscribes twice is sent two copies."""
        self._hub.listen(self._channel, self._hear)

    def unsubscribe(self) -> None:
        """End the subscription, however often it was made."""
        self._hub.unlisten(self._channel, self._hear)

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Publish bodies, all of them or none."""
        await self._reach()
        if (size := max(map(len, bodies), default=0)) > self.max_body:
            raise SendRefusedError(f"a body has {size} bytes, and the hub takes at most {self.max_body}")
        for body in bodies:
            self._hub.publish(self._channel, body)

    async def check(self) -> None:
        await self._reach()

    async def _reach(self) -> None:
        await checkpoint()
        if self._closed:
            raise ConnectionResetError("the connection to the hub has been closed")

    async def receive(self) -> AsyncGenerator[Sequence[bytes]]:
        while not self._closed:
            if self._inbox:
                bodies = list(self._inbox)
                self._inbox.clear()
                yield bodies
            else:
                self._changed = anyio.Event()
                await self._changed.wait()

    async def aclose(self) -> None:
        self._closed = True
        self._end()
        self._changed.set()
        await checkpoint()

    def _hear(self, body: bytes) -> None:
        # In the client's own loop, for the publisher may be in another thread's.
        if not call_soon(self._loop, partial(self._put, body)):
            self._end()  # a loop that ended took the client with it, as the end of a process does

    def _put(self, body: bytes) -> None:
        self._inbox.append(body)
        self._changed.set()

    def _end(self) -> None:
        self.unsubscribe()
        self._hub.open.discard(self)


class HubBus(BrokerBus):
    """A `BrokerBus` on a hub: the smallest adapter there is."""

    broker: ClassVar[str] = "hub"

    def __init__(self, hub: Hub, channel: str, **options: Unpack[OptionValues]) -> None:
        super().__init__("hub://", channel=channel, **options)
        self.max_body = hub.max_body
        self._hub = hub

    async def connect(self) -> BrokerConnection:
        return await self._hub.connect(self.channel)
