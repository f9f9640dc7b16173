"""Promises that no bus of the gallery breaks: each is broken here by hand, and the check that guards it says so.

The gallery has a broken bus for each check. A check that makes several promises has one here for each of the others.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Final
from weakref import WeakSet

import anyio
import pytest
from anyio.lowlevel import checkpoint

from notification_bus import GAP, BrokerConnection, BusNotification, MemoryBus
from notification_bus._fanout import Buffer, Subscription
from notification_bus._loops import BackgroundTask
from notification_bus.testing import Harness, Timing, memory_harness, run_check
from tests.kit.gallery import ReferenceBus
from tests.kit.gallery.stream import Stream
from tests.kit.harness import HubHarness

QUICK: Final = Timing(wait=0.5, silence=0.02, deadline=10.0)


def _harness(bus: type[MemoryBus]) -> Harness:
    """The harness of `MemoryBus`, for another class."""

    def build(channel: str) -> MemoryBus:
        return bus(channel, max_body=65_536, buffer=16)

    return Harness(build, memory_harness().capabilities)


# -- subscriptions and buffers


class _KnowsItsPeers(ReferenceBus):
    """Buses of one class and process know each other."""

    started: ClassVar["WeakSet[_KnowsItsPeers]"] = WeakSet()

    def _start(self) -> None:
        super()._start()
        self.started.add(self)

    def end_all_others(self) -> None:
        for bus in tuple(self.started):
            if bus is not self and bus.channel == self.channel:
                for stream in bus.streams:
                    stream.finish()


class ClosingAPeerClosesAll(_KnowsItsPeers):
    async def _stop(self) -> None:
        self.end_all_others()
        await super()._stop()


class TheLastOneOutEndsTheRest(_KnowsItsPeers):
    def close_stream(self, stream: Stream) -> None:
        super().close_stream(stream)
        if not self.streams:
            self.end_all_others()


class RefusesNames(MemoryBus):
    def __init__(self, channel: str | None = None, **options: Any) -> None:
        if channel is not None and channel.endswith("b"):
            raise ValueError("not this name")
        super().__init__(channel, **options)


class _RaisesAtItsEnd(Subscription):
    def __anext__(self) -> Any:
        async def read() -> BusNotification:
            try:
                return await super(_RaisesAtItsEnd, self).__anext__()
            except StopAsyncIteration:
                raise ConnectionError("closed") from None

        return read()


class EndsWithAnError(MemoryBus):
    def subscribe(self) -> Subscription:
        return _RaisesAtItsEnd(self._open_buffer, self._fanout.remove)


class _Reorders(Stream):
    def put(self, notification: BusNotification) -> None:
        if len(self.items) < self.limit:
            super().put(notification)
        else:
            self.overflow()
            self.items.appendleft(notification)


class OverflowReorders(ReferenceBus):
    stream_type = _Reorders


class _Shuts(Stream):
    shut = False

    def put(self, notification: BusNotification) -> None:
        if not self.shut:
            super().put(notification)

    def overflow(self) -> None:
        super().overflow()
        self.items.clear()
        self.shut = True

    def take(self) -> BusNotification:
        if self.shut:
            self.shut = False
            self.items.clear()
        return super().take()


class OverflowShutsTheDoor(ReferenceBus):
    stream_type = _Shuts


class _TellsEverybody(Stream):
    def overflow(self) -> None:
        super().overflow()
        self.bus.announce_gap()


class OverflowTellsEverybody(ReferenceBus):
    stream_type = _TellsEverybody


class _GapLast(Stream):
    def take(self) -> BusNotification:
        if self.lost and self.items:
            return self.items.popleft()
        return super().take()


class GapComesLast(ReferenceBus):
    stream_type = _GapLast


class WarnsWithoutACount(MemoryBus):
    def _on_drop(self, count: int) -> None:
        self._floods._logger.warning("dropped", extra={"notification_bus_event": "dropped:buffer"})


class WarnsElsewhere(MemoryBus):
    def _on_drop(self, count: int) -> None:
        import logging

        extra = {"notification_bus_event": "dropped:buffer", "notification_bus_count": 1}
        logging.getLogger("elsewhere").warning("dropped", extra=extra)


# -- publishing


class PublishesAfterItsTurn(MemoryBus):
    async def publish(self, notification: BusNotification) -> None:
        await checkpoint()
        await super().publish(notification)


class PublishesSlowly(MemoryBus):
    async def publish(self, notification: BusNotification) -> None:
        await super().publish(notification)
        await anyio.sleep(0.25)


class GivesNoTurns(ReferenceBus):
    async def publish(self, notification: BusNotification) -> None:
        self._check_open()
        self.hand_off(self.encode(notification))


class TurnsMarksIntoText(MemoryBus):
    async def publish(self, notification: BusNotification) -> None:
        if not isinstance(notification, BusNotification):
            notification = BusNotification(notification.method, {"text": repr(notification.params)})
        await super().publish(notification)


class TakesText(MemoryBus):
    async def publish(self, notification: BusNotification) -> None:
        self._check_open()
        notification.encode()
        self._deliver(notification)


class RefusesTheLimitItself(MemoryBus):
    async def publish(self, notification: BusNotification) -> None:
        self.max_body = 65_535
        await super().publish(notification)


class RefusesWithAnotherError(MemoryBus):
    async def publish(self, notification: BusNotification) -> None:
        if len(notification.encode()) > self.max_body:
            raise ValueError("too large")
        await super().publish(notification)


class DoublesNowAndThen(MemoryBus):
    numbers: ClassVar = count()

    async def publish(self, notification: BusNotification) -> None:
        await super().publish(notification)
        if next(self.numbers) % 10 == 9:
            await super().publish(notification)


# -- starting and closing


class ClosingTwiceAtOnceRaises(MemoryBus):
    closing = False

    async def aclose(self) -> None:
        if self.closing:
            raise RuntimeError("is being closed")
        self.closing = True
        await checkpoint()
        await super().aclose()
        self.closing = False


class NeverStartedCannotBeClosed(MemoryBus):
    started = False

    def _start(self) -> None:
        self.started = True
        super()._start()

    async def aclose(self) -> None:
        if not self.started:
            raise RuntimeError("was never started")
        await super().aclose()


class LeavesAThread(MemoryBus):
    may_end: ClassVar = threading.Event()

    def _start(self) -> None:
        super()._start()
        self.may_end.clear()
        threading.Thread(target=self.may_end.wait, name="a thread of the bus", daemon=True).start()


class LeavesASocket(MemoryBus):
    left: ClassVar[list[socket.socket]] = []

    def _start(self) -> None:
        super()._start()
        self.left.append(socket.socket())


class SubscribesWhileClosed(MemoryBus):
    async def _open_buffer(self) -> Buffer:
        return self._fanout.open()


class LastExitDoesNotStop(MemoryBus):
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        if self._entered > 1:
            await super().__aexit__(exc_type, exc, tb)


class EndsForGood(MemoryBus):
    over = False

    def _start(self) -> None:
        if self.over:
            raise RuntimeError("was closed for good")
        super()._start()

    async def _stop(self) -> None:
        self.over = True
        await super()._stop()


class NeedsALoopToBeBuilt(MemoryBus):
    def __init__(self, channel: str | None = None, **options: Any) -> None:
        super().__init__(channel, **options)
        self.loop = asyncio.get_running_loop()


class OpensASocketWhenBuilt(MemoryBus):
    def __init__(self, channel: str | None = None, **options: Any) -> None:
        super().__init__(channel, **options)
        LeavesASocket.left.append(socket.socket())


class LeavesATaskInOtherLoops(MemoryBus):
    def _start(self) -> None:
        super()._start()
        if threading.current_thread() is not threading.main_thread():
            BackgroundTask(anyio.sleep_forever, "a task of the bus")


# -- on a broker


class ReadyWithoutABroker(ReferenceBus):
    async def open_stream(self, stream: Stream) -> None:
        self.streams[stream] = None


class GapForEachAttempt(ReferenceBus):
    def on_outage(self, exc: Exception) -> None:
        super().on_outage(exc)
        for stream in self.streams:
            stream.put(GAP)


class CloseAsksAFrozenBroker(ReferenceBus):
    async def _stop(self) -> None:
        if self.connection is not None:
            with suppress(ConnectionError):
                await self.connection.check()
        await super()._stop()

    async def prove(self, connection: BrokerConnection) -> None:
        """Nothing ends the connection that it asks through."""
        await anyio.sleep_forever()


class CloseWaitsForTheFirstConnection(ReferenceBus):
    async def _stop(self) -> None:
        with anyio.move_on_after(3):
            await self.wait_ready_for_ever()
        await super()._stop()

    async def wait_ready_for_ever(self) -> None:
        while self.attempt < 2 and self.connection is None:
            await self.changed.wait()


class ProbesByAKnownMethod(ReferenceBus):
    def probe_body(self, number: int) -> bytes:
        body = super().probe_body(number)
        return body.replace(b"notifications/bus/probe", b"notifications/tools/list_changed")

    def decode(self, body: bytes) -> BusNotification:
        notification = super().decode(body)
        if notification.method.endswith("/tools/list_changed") and notification.params:
            return BusNotification("notifications/bus/probe", notification.params)
        return notification


class NeverYieldsAPeersGap(ReferenceBus):
    def receive(self, body: bytes) -> None:
        if body != GAP.encode():
            super().receive(body)


class KeepsNoneOfItsStreamsAfterDeafness(ReferenceBus):
    def on_outage(self, exc: Exception) -> None:
        super().on_outage(exc)
        if "probe" in repr(exc):
            self.streams.clear()


BROKEN: Final[list[tuple[type[MemoryBus] | type[ReferenceBus], str, str]]] = [
    (ClosingAPeerClosesAll, "sub.close_one_keeps_others", "closing a peer instance leaves the subscriptions of others"),
    (TheLastOneOutEndsTheRest, "sub.close_one_keeps_others", "closing a peer's subscription leaves those of other"),
    (RefusesNames, "deliver.namespace_isolated", "the plain names"),
    (EndsWithAnError, "sub.close_wakes_and_is_idempotent", "raised ConnectionError('closed')"),
    (EndsWithAnError, "close.ends_streams", "raised ConnectionError('closed')"),
    (OverflowReorders, "slow.recovers_in_order", "arrived after"),
    (OverflowShutsTheDoor, "slow.recovers_in_order", "keeps the rest"),
    (OverflowTellsEverybody, "gap.on_overflow", "a sibling that lost nothing yields no gap"),
    (GapComesLast, "gap.on_overflow", "yields a gap before what survived"),
    (WarnsWithoutACount, "slow.drop_is_warned", "has the count None"),
    (WarnsElsewhere, "slow.drop_is_warned", "the warnings were none"),
    (PublishesAfterItsTurn, "cancel.publish_propagates", "the hand-off comes before anything that waits"),
    (PublishesSlowly, "slow.publisher_unaffected", "allowed are 0.2 s"),
    (GivesNoTurns, "publish.yields_and_never_blocks_loop", "0 turns of another task"),
    (TurnsMarksIntoText, "publish.unencodable_fails_fast", "it was accepted"),
    (TakesText, "publish.unencodable_fails_fast", "'text': it was accepted"),
    (RefusesTheLimitItself, "codec.size_limit_is_in_bytes", "NotificationTooLargeError"),
    (RefusesWithAnotherError, "codec.size_limit_is_in_bytes", "it raised ValueError('too large')"),
    (DoublesNowAndThen, "conc.many_publishers_mixed_sizes", "not exactly once came"),
    (ClosingTwiceAtOnceRaises, "close.idempotent_and_concurrent", "twice at the same time raised"),
    (
        NeverStartedCannotBeClosed,
        "close.idempotent_and_concurrent",
        "closing an instance that was never started raised",
    ),
    (LeavesAThread, "close.leaves_nothing_and_publish_is_defined", "the thread a thread of the bus"),
    (LeavesASocket, "close.leaves_nothing_and_publish_is_defined", "the open socket:"),
    (
        SubscribesWhileClosed,
        "close.leaves_nothing_and_publish_is_defined",
        "entering a subscription of a closed instance",
    ),
    (LastExitDoesNotStop, "life.reference_counted", "the last exit stops the bus"),
    (EndsForGood, "life.reference_counted", "works again in a new event loop"),
    (NeedsALoopToBeBuilt, "life.built_without_loop", "no running event loop"),
    (OpensASocketWhenBuilt, "life.built_without_loop", "after it there are socket:"),
    (LeavesATaskInOtherLoops, "life.built_without_loop", "leaves nothing there"),
    (ReadyWithoutABroker, "ready.cancelled_enter_leaves_nothing", "waits for the broker's confirmation"),
    (GapForEachAttempt, "gap.after_reconnect", "gaps after one outage"),
    (CloseAsksAFrozenBroker, "close.bounded_in_outage_and_overflow", "with the broker frozen and every buffer full"),
    (CloseWaitsForTheFirstConnection, "close.bounded_in_outage_and_overflow", "gone from the beginning"),
    (ProbesByAKnownMethod, "gap.unknown_to_peers", "is on the wire"),
    (NeverYieldsAPeersGap, "gap.unknown_to_peers", "a gap that a peer announces"),
    (KeepsNoneOfItsStreamsAfterDeafness, "live.subscribed_in_name_only", "the stream goes on"),
]


@pytest.mark.parametrize(("bus", "id_", "fragment"), BROKEN, ids=[f"{bus.__name__}-{id_}" for bus, id_, _ in BROKEN])
def test_a_promise_that_is_broken_fails_its_check_by_these_words(
    bus: type[MemoryBus] | type[ReferenceBus], id_: str, fragment: str
) -> None:
    harness: Harness = HubHarness(bus) if issubclass(bus, ReferenceBus) else _harness(bus)
    try:
        result = run_check(id_, harness, timing=QUICK)
    finally:
        LeavesAThread.may_end.set()
        while LeavesASocket.left:
            LeavesASocket.left.pop().close()

    assert result.outcome == "failed"
    assert fragment in result.reason
