"""Broken in who gets what, how often and in what order."""

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar
from weakref import WeakSet

import anyio

from notification_bus._loops import BackgroundTask
from notification_bus.connection import BrokerConnection
from notification_bus.notification import BusNotification
from tests.kit.gallery.mutant import broken
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.gallery.stream import Stream


class _AcrossANetwork(ReferenceBus):
    """Takes its time to send, so that something is queued meanwhile."""

    async def send(self, connection: BrokerConnection, bodies: list[bytes]) -> None:
        await super().send(connection, bodies)
        await anyio.sleep(0.005)


@broken(
    "hides its own messages", check="deliver.echo", fragment="a subscription yields what its own instance publishes"
)
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


@broken("delivers twice", check="deliver.one_copy", fragment="more than once came")
class DeliversLocallyToo(ReferenceBus):
    """Has a fast path to its own subscriptions, and delivers the echo as well."""

    async def publish(self, notification: BusNotification) -> None:
        await super().publish(notification)
        self.deliver(notification)


@broken("delivers twice", check="deliver.one_copy", fragment="more than once came")
class DeliversTwice(ReferenceBus):
    """Delivers everything twice."""

    def deliver(self, notification: BusNotification) -> None:
        super().deliver(notification)
        super().deliver(notification)


@broken(
    "delivers only at home",
    check="deliver.cross_process",
    fragment="what one process publishes reaches the subscriptions of another",
)
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


@broken(
    "drops in good health",
    check="deliver.complete_when_healthy",
    fragment="nothing is lost on a healthy broker while subscribers read",
)
class LosesOneInTwenty(ReferenceBus):
    """Leaves out every twentieth of what it is to send, as if at most once meant now and then."""

    handed_off: int = 0

    def hand_off(self, body: bytes) -> None:
        self.handed_off += 1
        if self.handed_off % 20:
            super().hand_off(body)


@broken(
    "wrong order or count",
    check="deliver.identical_kept",
    fragment="equal notifications are delivered as often as they were published",
)
class MergesEqualBodies(ReferenceBus):
    """Takes a body that equals the one before it for a duplicate."""

    last: bytes = b""

    def receive(self, body: bytes) -> None:
        if body != self.last:
            self.last = body
            super().receive(body)


@broken("merges in a transaction", check="deliver.identical_kept", fragment="8 of them published in a burst")
class MergesEqualsInABatch(_AcrossANetwork):
    """Sends equal bodies of one batch once, as Postgres does in one transaction."""

    def take_batch(self) -> list[bytes]:
        self.outbox: deque[bytes] = deque(dict.fromkeys(self.outbox))
        return super().take_batch()


@broken(
    "wrong order or count",
    check="order.per_publisher_fifo",
    fragment="notifications of one publisher arrive in the order published",
)
class LastInFirstOut(_AcrossANetwork):
    """Sends the newest of what is queued first."""

    def take_batch(self) -> list[bytes]:
        self.outbox.reverse()
        return super().take_batch()


@broken(
    "wrong order or count",
    check="order.per_publisher_fifo",
    fragment="notifications of one publisher arrive in the order published",
)
class TaskPerPublish(ReferenceBus):
    """Sends each notification from a task of its own, and they overtake each other."""

    turn: bool = False

    def hand_off(self, body: bytes) -> None:
        hand_off = super().hand_off
        self.turn = not self.turn
        seconds = 0.02 if self.turn else 0.0

        async def later() -> None:
            await anyio.sleep(seconds)
            hand_off(body)

        BackgroundTask(later, "a publish")


@broken("wrong scope", check="deliver.no_history", fragment="were published before it")
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


@broken("wrong scope", check="deliver.namespace_isolated", fragment="of them published on the other of")
class IgnoresItsChannel(ReferenceBus):
    """Uses one channel of the broker's, whatever it was told."""

    @property
    def channel(self) -> str:
        return "notifications"


@broken("cuts channel names", check="deliver.namespace_isolated", fragment="of them published on the other of")
class CutsLongChannelNames(ReferenceBus):
    """Cuts the channel's name at 63 bytes, as Postgres does, and says nothing."""

    @property
    def channel(self) -> str:
        return self.options.channel.encode()[:63].decode(errors="ignore")


@broken(
    "mixes bodies up",
    check="conc.many_publishers_mixed_sizes",
    fragment="what many tasks publish at the same time arrives once each, and intact",
)
class CutsLargeBodies(ReferenceBus):
    """Sends large bodies in pieces, and joins whatever pieces arrive next to each other."""

    rest: bytes = b""

    async def send(self, connection: BrokerConnection, bodies: list[bytes]) -> None:
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


@broken(
    "waits for a dead peer",
    check="crash.peer_killed",
    fragment="after a peer was killed the others go on exchanging",
)
class WaitsForTheOtherHalf(ReferenceBus):
    """Sends each body in two halves, and puts off everybody else's until the second half of one has come."""

    half: tuple[bytes, bytes] | None = None

    @cached_property
    def put_off(self) -> list[tuple[bytes, bytes]]:
        return []

    async def send(self, connection: BrokerConnection, bodies: list[bytes]) -> None:
        rest = b""
        for body in bodies:
            middle = len(body) // 2
            # With the second half of the one before, and then a pause: a kill comes in the middle of one.
            await super().send(connection, self.joined(rest, body[:middle]))
            await anyio.sleep(0.01)
            rest = body[middle:]
        await super().send(connection, self.joined(rest, b""))

    def joined(self, second: bytes, first: bytes) -> list[bytes]:
        """In one body if that is not too large: a kill between two bodies would leave no half behind."""
        mark = self.instance.encode()
        both = b"%b|%d|%b%b" % (mark, len(second), second, first)
        if len(both) <= self.max_body:
            return [both]
        return [b"%b|%d|%b" % (mark, len(second), second), b"%b|0|%b" % (mark, first)]

    def receive(self, body: bytes) -> None:
        sender, _, rest = body.partition(b"|")
        size, _, parts = rest.partition(b"|")
        second = int(size) if size.isdigit() else 0
        for part in filter(None, (parts[:second], parts[second:])):
            self.take(sender, part)

    def take(self, sender: bytes, part: bytes) -> None:
        """Take one half: the second of one that is waited for, or the first of another."""
        if self.half is None:
            self.half = sender, part
        elif self.half[0] == sender:
            whole, self.half = self.half[1] + part, None
            super().receive(whole)
            put_off, self.put_off[:] = list(self.put_off), []
            for later in put_off:
                self.take(*later)
        else:
            self.put_off.append((sender, part))

    async def prove(self, connection: BrokerConnection) -> None:
        await anyio.sleep_forever()
