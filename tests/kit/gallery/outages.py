"""Broken in what happens when the connection does not hold: reconnecting, patience, readiness, liveness, gaps."""

from math import inf
from typing import ClassVar

import anyio

from notification_bus.connection import BrokerConnection
from notification_bus.notification import BusNotification
from tests.kit.gallery.mutant import broken
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.gallery.stream import Stream
from tests.kit.hub import HubConnection


@broken(
    "reconnect replays",
    check="reconnect.no_replay_no_duplicates",
    fragment="nothing arrives twice, whatever happens to the connections",
)
class ReplaysTheLastBody(ReferenceBus):
    """Sends the last body again on a new connection, in case it was lost."""

    last: bytes | None = None

    def hand_off(self, body: bytes) -> None:
        self.last = body
        super().hand_off(body)

    def gap_after_outage(self) -> None:
        super().gap_after_outage()
        if self.last is not None:
            self.outbox.append(self.last)


@broken(
    "reconnect replays",
    check="reconnect.no_replay_no_duplicates",
    fragment="nothing arrives twice, whatever happens to the connections",
)
class SubscribesTwice(ReferenceBus):
    """Subscribes once more on a connection that is not its first."""

    connected_before: bool = False

    async def connect(self) -> BrokerConnection:
        connection = await super().connect()
        if self.connected_before and self.attachment is not None:
            self.attachment.subscribe()
        self.connected_before = True
        return connection


@broken(
    "retries a half-sent body",
    check="reconnect.no_replay_no_duplicates",
    fragment="nothing arrives twice, whatever happens to the connections",
)
class RetriesHalfSent(ReferenceBus):
    """Sends a batch again that was under way when the connection broke."""

    async def send(self, connection: BrokerConnection, bodies: list[bytes]) -> None:
        try:
            await super().send(connection, bodies)
        except ConnectionError:
            self.outbox.extendleft(reversed(bodies))
            raise


@broken(
    "reconnects halfway",
    check="reconnect.survives_cut_both_ways",
    fragment="after its connections were cut an instance receives again",
)
class ForgetsToResubscribe(ReferenceBus):
    """Connects anew, and subscribes only on its first connection."""

    connected_before: bool = False

    async def connect(self) -> BrokerConnection:
        if self.connected_before:
            return HubConnection(self.hub, self.channel)
        self.connected_before = True
        return await super().connect()


@broken(
    "reconnects halfway",
    check="reconnect.survives_cut_both_ways",
    fragment="after its connections were cut an instance's publishing arrives again",
)
class PublishingStaysDead(ReferenceBus):
    """Connects and subscribes anew, and its writer stays with the first connection."""

    written_before: bool = False

    async def write(self, connection: BrokerConnection) -> None:
        if self.written_before:
            await anyio.sleep_forever()
        self.written_before = True
        await super().write(connection)


@broken("lets the outage out", check="reconnect.survives_cut_both_ways", fragment="and it has ended")
class OutageEndsTheStreams(ReferenceBus):
    """Ends its subscriptions when the connection is lost."""

    def on_disconnected(self) -> None:
        super().on_disconnected()
        for stream in self.streams:
            stream.finish()


class _Raises(Stream):
    outage = False

    def take(self) -> BusNotification:
        if self.outage and not self.items:
            raise ConnectionError("the connection to the broker was lost")
        return super().take()

    def finish(self) -> None:
        self.outage = self.bus.connection is None
        super().finish()


@broken(
    "lets the outage out",
    check="reconnect.survives_long_outage_with_backoff",
    fragment="a stream neither ends nor raises because of the broker",
)
class OutageRaisesInTheStreams(OutageEndsTheStreams):
    """Raises from its subscriptions when the connection is lost."""

    stream_type: ClassVar[type[Stream]] = _Raises


@broken(
    "wrong patience",
    check="reconnect.survives_long_outage_with_backoff",
    fragment="after a long outage the same stream goes on",
)
class GivesUp(ReferenceBus):
    """Tries a few times more, and then no longer."""

    def next_delay(self) -> float:
        delay = super().next_delay()
        return inf if self.attempt > 6 else delay


@broken(
    "wrong patience",
    check="reconnect.backs_off",
    fragment="while the broker is away, the tries to reach it become rarer",
)
class RetriesHot(ReferenceBus):
    """Tries again at once, as often as the event loop allows."""

    def next_delay(self) -> float:
        return 0.0


@broken(
    "loses the start",
    check="ready.first_publish_after_enter",
    fragment="everything published after a subscription was entered arrives, the very first included",
)
class ReadyTooSoon(ReferenceBus):
    """Lets a subscription be entered before the broker has confirmed anything."""

    async def open_stream(self, stream: Stream) -> None:
        self._check_open()
        self.streams[stream] = None

    def gap_after_outage(self) -> None:
        """No subscription was ready before, so it thinks."""


class _SubscribesWhenAsked(HubConnection):
    async def check(self) -> None:
        self.subscribe()
        await super().check()


@broken(
    "does not wait for the reply",
    check="ready.first_publish_after_enter",
    fragment="everything published after a subscription was entered arrives, the very first included",
)
class ReadyWithoutTheReply(ReferenceBus):
    """Sends its subscription off and does not wait for the reply, as is easy with clients of Redis and NATS."""

    async def connect(self) -> BrokerConnection:
        return _SubscribesWhenAsked(self.hub, self.channel)

    async def read(self, connection: BrokerConnection) -> None:
        await connection.check()
        await super().read(connection)


class _SkipsFirst(Stream):
    confirmed = False

    def put(self, notification: BusNotification) -> None:
        if self.confirmed:
            super().put(notification)
        self.confirmed = True


@broken(
    "loses the start", check="ready.first_publish_after_enter", fragment="received 0 numbered notifications, without 1"
)
class SwallowsTheFirst(ReferenceBus):
    """Takes the first notification on a subscription for the broker's confirmation."""

    stream_type: ClassVar[type[Stream]] = _SkipsFirst


@broken(
    "never notices a black link",
    check="reconnect.half_open_detected",
    fragment="a link that died without a word is noticed",
)
class NeverNoticesABlackLink(ReferenceBus):
    """Trusts a connection until it says itself that it is broken."""

    async def prove(self, connection: BrokerConnection) -> None:
        await anyio.sleep_forever()


@broken(
    "never notices a deaf subscription",
    check="live.subscribed_in_name_only",
    fragment="a subscription that delivers nothing is noticed",
)
class ProvesByPing(ReferenceBus):
    """Asks the broker whether it answers, not whether it delivers."""

    async def prove(self, connection: BrokerConnection) -> None:
        while True:
            with anyio.fail_after(self.options.probe_timeout):
                await connection.check()
            await anyio.sleep(self.options.probe_interval)


@broken(
    "announces no gap",
    check="gap.after_reconnect",
    fragment="after an outage every subscription yields a gap before its next notification",
)
class NoGapAfterReconnect(ReferenceBus):
    """Reconnects so smoothly that nobody learns of what was missed."""

    def gap_after_outage(self) -> None:
        """Nothing to tell."""


@broken(
    "announces no gap",
    check="gap.on_the_wire",
    fragment="an instance that dropped what it was to send tells the others with a gap",
)
class NoGapOnTheWire(ReferenceBus):
    """Keeps to itself that it has dropped what it should have sent."""

    def owe_gap(self) -> None:
        """Nothing to tell."""


@broken("yields its own traffic", check="gap.unknown_to_peers", fragment="no subscription yields a liveness probe")
class YieldsProbes(ReferenceBus):
    """Yields the probes of its peers like any other notification."""

    def on_probe(self, notification: BusNotification) -> None:
        super().on_probe(notification)
        self.deliver(notification)
