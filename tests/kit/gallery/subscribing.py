"""Broken in the subscription: its bounds, its noise, its cancellation, its end."""

import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import cached_property
from typing import ClassVar, cast

import anyio
from anyio.lowlevel import checkpoint

from notification_bus.connection import BrokerConnection
from notification_bus.notification import BusNotification
from tests.kit.gallery.mutant import broken
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.gallery.stream import Stream


class _Unbounded(Stream):
    def overflow(self) -> None:
        pass


@broken("unbounded", check="slow.buffer_is_bounded", fragment="a subscription that is not read holds at most")
class BuffersWithoutBound(ReferenceBus):
    """Keeps everything that a subscription has not read."""

    stream_type: ClassVar[type[Stream]] = _Unbounded


@broken("wrong noise", check="slow.drop_is_warned", fragment="the warnings were none")
class DropsSilently(ReferenceBus):
    """Says nothing of what it drops."""

    def dropped(self, where: str, text: str, count: int = 1) -> None:
        pass


@broken("wrong noise", check="slow.drop_is_warned_once", fragment="a flood of drops is warned of now and then")
class WarnsOfEveryDrop(ReferenceBus):
    """Logs a warning for each notification that it drops."""

    def dropped(self, where: str, text: str, count: int = 1) -> None:
        fields = {"notification_bus_event": f"dropped:{where}", "notification_bus_count": count}
        logging.getLogger("notification_bus.gallery").warning("dropped a notification: %s", text, extra=fields)


class _EndsWhenFull(Stream):
    def put(self, notification: BusNotification) -> None:
        if len(self.items) >= self.limit:
            self.finish()
        if not self.ended:
            super().put(notification)


@broken("overflow is fatal", check="slow.recovers_in_order", fragment="and it has ended")
class OverflowEndsTheStream(ReferenceBus):
    """Ends a subscription that does not read in time."""

    stream_type: ClassVar[type[Stream]] = _EndsWhenFull


class _WedgesWhenFull(Stream):
    wedged = False

    def overflow(self) -> None:
        super().overflow()
        self.wedged = True

    async def filled(self) -> None:
        while self.wedged and not self.ended:
            await self.bus.changed.wait()
        await super().filled()


@broken(
    "overflow is fatal",
    check="slow.recovers_in_order",
    fragment="after an overflow the stream goes on, neither ended nor stuck",
)
class OverflowWedgesTheStream(ReferenceBus):
    """Never yields again on a subscription that has overflowed, and does not end it either."""

    stream_type: ClassVar[type[Stream]] = _WedgesWhenFull


@broken(
    "overflow hurts bystanders",
    check="slow.sibling_unaffected",
    fragment="a subscription that is not read costs its siblings nothing",
)
class OverflowStarvesSiblings(ReferenceBus):
    """Stops handing a notification on at the first subscription that is full."""

    def deliver(self, notification: BusNotification) -> None:
        for stream in self.streams:
            full = len(stream.items) >= stream.limit
            stream.put(notification)
            if full:
                break


@broken(
    "overflow hurts bystanders",
    check="slow.publisher_unaffected",
    fragment="raised RuntimeError('a subscription is full')",
)
class OverflowPoisonsPublish(ReferenceBus):
    """Raises the overflow of a subscription into the next publish."""

    overflowed: bool = False

    def dropped(self, where: str, text: str, count: int = 1) -> None:
        super().dropped(where, text, count)
        self.overflowed = True

    async def publish(self, notification: BusNotification) -> None:
        if self.overflowed:
            raise RuntimeError("a subscription is full")
        await super().publish(notification)


@broken("makes the producer wait", check="slow.publisher_unaffected", fragment="had not returned after")
class PublishWaitsForTheSlowest(ReferenceBus):
    """Has a publisher wait until every subscription has room."""

    async def publish(self, notification: BusNotification) -> None:
        while any(len(stream.items) >= stream.limit for stream in self.streams):
            await self.changed.wait()
        await super().publish(notification)


@broken("shares or mistypes deliveries", check="deliver.fan_out", fragment="a dict; published was")
class YieldsDicts(ReferenceBus):
    """Yields the parsed JSON in place of a notification."""

    def deliver(self, notification: BusNotification) -> None:
        value = {"method": notification.method, "params": notification.params}
        super().deliver(cast("BusNotification", value))


class _EatsCancellation(Stream):
    async def filled(self) -> None:
        try:
            await super().filled()
        except anyio.get_cancelled_exc_class():
            await super().filled()


@broken(
    "eats cancellation",
    check="cancel.next_is_survivable_and_lossless",
    fragment="a cancelled read ends at once, cancelled",
    backends=("asyncio",),  # on trio a cancellation comes again at the next await, so nothing can eat it
)
class ReadEatsCancellation(ReferenceBus):
    """Catches the cancellation of a read, and goes on waiting."""

    stream_type: ClassVar[type[Stream]] = _EatsCancellation


class _Generates(Stream):
    @cached_property
    def generator(self) -> AsyncGenerator[BusNotification, None]:
        return self._generate()

    async def _generate(self) -> AsyncGenerator[BusNotification, None]:
        while True:
            try:
                await self.filled()
                yield self.take()
            except StopAsyncIteration:
                return

    async def __anext__(self) -> BusNotification:
        return await anext(self.generator)

    async def leave(self) -> None:
        await super().leave()
        with suppress(RuntimeError):  # a reader is in it, and ends it
            await self.generator.aclose()


@broken("fragile reads", check="cancel.next_is_survivable_and_lossless", fragment="StopAsyncIteration")
class StreamIsAGenerator(ReferenceBus):
    """Yields from an async generator, which the first cancelled read finishes."""

    stream_type: ClassVar[type[Stream]] = _Generates


class _TakesTooSoon(Stream):
    async def __anext__(self) -> BusNotification:
        await self.filled()
        notification = self.take()
        await checkpoint()
        return notification


@broken("fragile reads", check="cancel.next_is_survivable_and_lossless", fragment="a cancelled read loses nothing")
class CancelledReadLosesOne(ReferenceBus):
    """Takes a notification out of the buffer and awaits once more before returning it."""

    stream_type: ClassVar[type[Stream]] = _TakesTooSoon


class _LeftOnce(Stream):
    left = False

    async def leave(self) -> None:
        if self.left:
            raise RuntimeError("this subscription has been closed")
        self.left = True
        await super().leave()


@broken(
    "bad closing",
    check="sub.close_wakes_and_is_idempotent",
    fragment="closing a subscription a second time does nothing",
)
class SecondLeaveRaises(ReferenceBus):
    """Raises where a subscription is left a second time."""

    stream_type: ClassVar[type[Stream]] = _LeftOnce


class _LeavesItsReader(Stream):
    async def leave(self) -> None:
        self.bus.close_stream(self)


@broken(
    "leaves a reader waiting",
    check="sub.close_wakes_and_is_idempotent",
    fragment="closing a subscription from another task ends a read that waits in it",
)
class LeavingDoesNotWake(ReferenceBus):
    """Leaves a reader waiting in a subscription that has been left."""

    stream_type: ClassVar[type[Stream]] = _LeavesItsReader


class _AsksToLeave(Stream):
    async def leave(self) -> None:
        await super().leave()
        with anyio.move_on_after(5, shield=True):
            while self.bus.connection is not None:
                with suppress(ConnectionError):
                    await self.bus.connection.check()
                    return


@broken(
    "asks the broker before leaving",
    check="cancel.consumer_unwinds_in_stall",
    fragment="a subscriber that is cancelled while the link is stalled leaves its subscription at once",
)
class LeavingAsksTheBroker(ReferenceBus):
    """Waits for the broker's word when a subscription is left, cancelled or not."""

    stream_type: ClassVar[type[Stream]] = _AsksToLeave


@broken(
    "wrong scope",
    check="sub.close_one_keeps_others",
    fragment="closing one subscription leaves the others of its instance as they were",
)
class ClosingOneClosesAll(ReferenceBus):
    """Ends every subscription of the instance with the first that is left."""

    def close_stream(self, stream: Stream) -> None:
        super().close_stream(stream)
        for other in tuple(self.streams):
            super().close_stream(other)


@broken(
    "wrong scope",
    check="sub.reopen_after_last_close",
    fragment="after an instance's last subscription was closed, a new one receives",
)
class NeverSubscribesAgain(ReferenceBus):
    """Unsubscribes at the broker with its last subscription, and not the other way with the next."""

    left: bool = False

    def close_stream(self, stream: Stream) -> None:
        super().close_stream(stream)
        self.left = not self.streams
        self.ring()

    async def prove(self, connection: BrokerConnection) -> None:
        self.left = False
        while not self.left:
            await self.changed.wait()
        await connection.check()  # on its way to the broker
        if self.attachment is not None:
            self.attachment.unsubscribe()
        await anyio.sleep_forever()


class _Resubscribes(Stream):
    async def leave(self) -> None:
        await super().leave()
        connection, attachment = self.bus.connection, self.bus.attachment
        if connection is not None and attachment is not None:
            attachment.unsubscribe()
            await connection.check()
            await anyio.sleep(0.005)  # a broker across a network
            await connection.check()
            attachment.subscribe()


@broken(
    "disturbed by churn",
    check="sub.churn_keeps_stable_whole",
    fragment="subscriptions that come and go cost a steady one nothing",
)
class ChurnDisturbsDelivery(ReferenceBus):
    """Makes its subscription at the broker anew whenever one of its own is left."""

    stream_type: ClassVar[type[Stream]] = _Resubscribes


class _DropsUntold(Stream):
    def overflow(self) -> None:
        super().overflow()
        self.lost = False


@broken(
    "announces no gap",
    check="gap.on_overflow",
    fragment="the subscription that overflowed yields a gap before what survived",
)
class NoGapOnOverflow(ReferenceBus):
    """Drops the oldest of a full subscription and does not tell its reader."""

    stream_type: ClassVar[type[Stream]] = _DropsUntold
