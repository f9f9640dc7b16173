"""Broken in who gets what, how often and in what order."""

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from random import uniform
from typing import ClassVar
from weakref import WeakSet

import anyio

from notification_bus._backend import BackgroundTask
from notification_bus.notification import BusNotification
from notification_bus.testing.gallery.mutant import broken
from notification_bus.testing.gallery.reference import ReferenceBus
from notification_bus.testing.gallery.stream import Stream
from notification_bus.testing.simulated import SimulatedConnection


@broken("hides its own messages", check="deliver.echo", fragment="")
class HidesItsEcho(ReferenceBus):
    """Takes whatever arrives with a body that it has sent for its own echo, and skips it."""

    @cached_property
    def own(self) -> set[bytes]:
        return set()

    def hand_off(self, body: bytes) -> None:
        self.own.add(body)
        super().hand_off(body)

    def receive(self, body: bytes) -> None:
        if body not in self.own:
            super().receive(body)


@broken("delivers twice", check="deliver.one_copy", fragment="")
class DeliversLocallyToo(ReferenceBus):
    """Has a fast path to its own subscriptions, and delivers the echo as well."""

    async def publish(self, notification: BusNotification) -> None:
        await super().publish(notification)
        self.deliver(notification)


@broken("delivers twice", check="deliver.one_copy", fragment="")
class DeliversTwice(ReferenceBus):
    """Delivers everything twice."""

    def deliver(self, notification: BusNotification) -> None:
        super().deliver(notification)
        super().deliver(notification)


@broken("delivers only at home", check="deliver.cross_process", fragment="")
class StaysInItsProcess(ReferenceBus):
    """Reaches the instances of its own process, and nobody through the broker."""

    at_home: ClassVar["WeakSet[StaysInItsProcess]"] = WeakSet()

    def _start(self) -> None:
        super()._start()
        self.at_home.add(self)

    def _forget(self) -> None:
        self.at_home.discard(self)
        super()._forget()

    def hand_off(self, body: bytes) -> None:
        for bus in tuple(self.at_home):
            if bus.channel == self.channel:
                bus.receive(body)


@broken("drops in good health", check="deliver.complete_when_healthy", fragment="")
class KeepsOnlyTheLatest(ReferenceBus):
    """Sends the newest of what is queued and leaves out the rest, as if at most once meant now and then."""

    def take_batch(self) -> list[bytes]:
        while len(self.outbox) > 1:
            self.outbox.popleft()
        return super().take_batch()

    async def send(self, connection: SimulatedConnection, bodies: list[bytes]) -> None:
        await super().send(connection, bodies)
        await anyio.sleep(0.005)  # a broker across a network, so that something is queued


@broken("wrong order or count", check="deliver.identical_kept", fragment="")
class MergesEqualBodies(ReferenceBus):
    """Takes a body that equals the one before it for a duplicate."""

    last = b""

    def receive(self, body: bytes) -> None:
        if body != self.last:
            self.last = body
            super().receive(body)


@broken("wrong order or count", check="order.per_publisher_fifo", fragment="")
class LastInFirstOut(ReferenceBus):
    """Sends the newest of what is queued first."""

    def take_batch(self) -> list[bytes]:
        self.outbox.reverse()
        return super().take_batch()

    async def send(self, connection: SimulatedConnection, bodies: list[bytes]) -> None:
        await super().send(connection, bodies)
        await anyio.sleep(0.005)  # a broker across a network, so that something is queued


@broken("wrong order or count", check="order.per_publisher_fifo", fragment="")
class TaskPerPublish(ReferenceBus):
    """Sends each notification from a task of its own, and they overtake each other."""

    def hand_off(self, body: bytes) -> None:
        hand_off = super().hand_off

        async def later() -> None:
            await anyio.sleep(uniform(0, 0.02))
            hand_off(body)

        BackgroundTask(later, "a publish")


@broken("wrong scope", check="deliver.no_history", fragment="")
class ReplaysHistory(ReferenceBus):
    """Gives a new subscription what was delivered before it."""

    @cached_property
    def history(self) -> deque[BusNotification]:
        return deque(maxlen=8)

    def deliver(self, notification: BusNotification) -> None:
        self.history.append(notification)
        super().deliver(notification)

    async def open_stream(self, stream: Stream) -> None:
        await super().open_stream(stream)
        for notification in self.history:
            stream.put(notification)


@broken("wrong scope", check="deliver.namespace_isolated", fragment="")
class IgnoresItsChannel(ReferenceBus):
    """Uses one channel of the broker's, whatever it was told."""

    @property
    def channel(self) -> str:
        return "notifications"


@broken("wrong scope", check="deliver.namespace_isolated", fragment="")
class CutsLongChannelNames(ReferenceBus):
    """Cuts the channel's name at 63 bytes, as Postgres does, and says nothing."""

    @property
    def channel(self) -> str:
        return self.options.channel.encode()[:63].decode(errors="ignore")


@broken("mixes bodies up", check="conc.many_publishers_mixed_sizes", fragment="")
class CutsLargeBodies(ReferenceBus):
    """Sends large bodies in pieces, and joins whatever pieces arrive next to each other."""

    rest = b""

    async def send(self, connection: SimulatedConnection, bodies: list[bytes]) -> None:
        for body in bodies:
            for piece in _pieces(body, 1000):
                await super().send(connection, [piece])

    def receive(self, body: bytes) -> None:
        if body[:1] == b"+":
            self.rest += body[1:]
        else:
            whole, self.rest = self.rest + body, b""
            super().receive(whole)


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    while len(body) > size:
        yield b"+" + body[:size]
        body = body[size:]
    yield body


@broken("mixes bodies up", check="crash.peer_killed", fragment="")
class SendsHalves(ReferenceBus):
    """Sends each body in two halves with a pause between, and is stuck with the first where the second never comes."""

    first: bytes | None = None

    async def send(self, connection: SimulatedConnection, bodies: list[bytes]) -> None:
        for body in bodies:
            middle = len(body) // 2
            await super().send(connection, [body[:middle]])
            await anyio.sleep(0.02)
            await super().send(connection, [body[middle:]])

    def receive(self, body: bytes) -> None:
        first, self.first = self.first, body
        if first is not None:
            self.first = None
            super().receive(first + body)
