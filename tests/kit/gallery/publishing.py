"""Broken in the publisher's half: hand-off, bounds, values at the time of the call."""

import json
from collections import deque
from functools import cached_property
from time import sleep
from typing import Any

import anyio

from notification_bus.notification import BusNotification
from tests.kit.gallery.mutant import broken
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.gallery.values import dump


@broken("makes the producer wait", check="publish.outage_backlog_is_bounded", fragment="had not returned after")
class PublishWaitsForTheOutbox(ReferenceBus):
    """Has a publisher wait where the outbox is full."""

    async def publish(self, notification: BusNotification) -> None:
        while len(self.outbox) >= self.options.outbox:
            await self.changed.wait()
        await super().publish(notification)


@broken(
    "unbounded",
    check="publish.outage_backlog_is_bounded",
    fragment="of what is published in an outage at most `outbox` + 1",
)
class HoardsInAnOutage(ReferenceBus):
    """Warns that its outbox is full, and keeps everything all the same."""

    def hand_off(self, body: bytes) -> None:
        if len(self.outbox) >= self.options.outbox:
            self.dropped("outbox", "or so it says")
        self.outbox.append(body)
        self.ring()


@broken(
    "touches the caller's params",
    check="publish.snapshots_its_input",
    fragment="`publish` changes nothing of the caller's",
)
class AddsAKey(ReferenceBus):
    """Writes who sent it into the caller's own params."""

    def encode(self, notification: object) -> bytes:
        params = notification._params if isinstance(notification, BusNotification) else None  # the fault
        if params is not None:
            params["sender"] = self.instance
        return super().encode(notification)


@broken(
    "touches the caller's params",
    check="publish.snapshots_its_input",
    fragment="what travels is the value at the time of the call",
)
class EncodesLazily(ReferenceBus):
    """Keeps one object that every publish fills anew, and encodes it when it is sent."""

    @cached_property
    def scratch(self) -> dict[str, object]:
        return {}

    def encode(self, notification: object) -> bytes:
        body = super().encode(notification)
        self.scratch.clear()
        self.scratch.update(json.loads(body))
        return body

    def take_batch(self) -> list[bytes]:
        self.outbox: deque[bytes] = deque([dump(self.scratch)] * len(self.outbox))
        return super().take_batch()


@broken("private wire format", check="publish.unencodable_fails_fast", fragment="params with NaN: it was accepted")
class EmitsNaN(ReferenceBus):
    """Publishes whatever looks like a notification, by the defaults of Python's encoder."""

    def encode(self, notification: object) -> bytes:
        if isinstance(notification, BusNotification):
            return super().encode(notification)
        like: Any = notification
        return dump({"method": like.method, "params": like.params})


@broken(
    "eats cancellation",
    check="cancel.publish_propagates",
    fragment="cancelling a task inside `publish` cancels that task",
    backends=("asyncio",),  # on trio a cancellation comes again at the next await, so nothing can eat it
)
class PublishEatsCancellation(ReferenceBus):
    """Catches the cancellation of a publish, and returns as if nothing had been."""

    async def publish(self, notification: BusNotification) -> None:
        try:
            await super().publish(notification)
        except anyio.get_cancelled_exc_class():
            return


@broken("publish depends on the broker", check="publish.prompt_when_broker_stalls", fragment="had not returned after")
class PublishWaitsForTheRoundTrip(ReferenceBus):
    """Returns from a publish when the broker has answered."""

    async def publish(self, notification: BusNotification) -> None:
        await super().publish(notification)
        while self.outbox or self.sending:
            await self.changed.wait()


@broken(
    "publish depends on the broker",
    check="publish.never_raises_when_broker_down",
    fragment="raised ConnectionError('there is no connection",
)
class PublishRaisesWhileDown(ReferenceBus):
    """Raises from a publish while there is no connection."""

    async def publish(self, notification: BusNotification) -> None:
        if self.connection is None:
            raise ConnectionError("there is no connection to the broker")
        await super().publish(notification)


@broken(
    "publish depends on the broker",
    check="publish.yields_and_never_blocks_loop",
    fragment="publishing keeps the event loop from others",
)
class PublishBlocksTheLoop(ReferenceBus):
    """Publishes with a client that blocks, and never gives the event loop a turn."""

    async def publish(self, notification: BusNotification) -> None:
        self._check_open()
        self.hand_off(self.encode(notification))
        sleep(0.003)  # noqa: ASYNC251  # the fault
