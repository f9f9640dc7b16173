"""Broken in starting and stopping: what is left behind, what hangs, what comes after."""

from types import TracebackType

import anyio

from notification_bus._loops import BackgroundTask, current_loop
from notification_bus.notification import BusNotification
from tests.kit.gallery.mutant import broken
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.gallery.stream import Stream


@broken(
    "leaves things behind",
    check="close.leaves_nothing_and_publish_is_defined",
    fragment="the task a pump that nobody stops",
)
class LeavesATask(ReferenceBus):
    """Leaves a task running when it is closed."""

    def _start(self) -> None:
        super()._start()
        BackgroundTask(anyio.sleep_forever, "a pump that nobody stops")


@broken(
    "leaves things behind",
    check="ready.cancelled_enter_leaves_nothing",
    fragment="an entering that was cancelled leaves no subscription behind",
)
class LeavesAGhost(ReferenceBus):
    """Registers a subscription before it is ready, and leaves it there where the entering is cancelled."""

    async def open_stream(self, stream: Stream) -> None:
        self.streams[stream] = None
        await super().open_stream(stream)


@broken(
    "bad closing",
    check="close.bounded_in_outage_and_overflow",
    fragment="closing with the broker gone and every buffer full has not returned",
)
class CloseWaitsForTheBroker(ReferenceBus):
    """Waits, when it is closed, until what is queued has been sent."""

    async def _stop(self) -> None:
        with anyio.move_on_after(3):
            while self.outbox:
                await self.changed.wait()
        await super()._stop()


@broken("bad closing", check="close.ends_streams", fragment="closing the instance ends the loops of its subscribers")
class CloseLeavesReaders(ReferenceBus):
    """Leaves readers waiting when it is closed."""

    def _forget(self) -> None:
        self.streams.clear()
        super()._forget()


@broken("bad closing", check="close.idempotent_and_concurrent", fragment="closing a second time raised")
class SecondCloseRaises(ReferenceBus):
    """Raises where it is closed a second time."""

    async def _close(self) -> None:
        if self._home is None:
            raise RuntimeError("this bus has been closed")
        await super()._close()


@broken(
    "bad closing",
    check="close.leaves_nothing_and_publish_is_defined",
    fragment="publishing on a closed instance raises BusClosedError at once",
)
class PublishAfterCloseHangs(ReferenceBus):
    """Waits for ever in a publish after the close."""

    async def publish(self, notification: BusNotification) -> None:
        if self._home is None:
            await anyio.sleep_forever()
        await super().publish(notification)


@broken("bad closing", check="close.leaves_nothing_and_publish_is_defined", fragment="a closed instance sends nothing")
class PublishAfterCloseSends(ReferenceBus):
    """Refuses what is published after the close, and sends it all the same."""

    async def publish(self, notification: BusNotification) -> None:
        if self._home is not None:
            await super().publish(notification)
            return
        connection = await self.hub.connect(self.channel)
        await connection.send([self.encode(notification)])
        await connection.aclose()
        self._check_open()


@broken(
    "silent after the close",
    check="close.leaves_nothing_and_publish_is_defined",
    fragment="publishing on a closed instance raises BusClosedError at once",
)
class PublishAfterCloseIsSilent(ReferenceBus):
    """Loses what is published after the close without a word."""

    async def publish(self, notification: BusNotification) -> None:
        if self._home is not None:
            await super().publish(notification)


@broken(
    "wrong count of entering",
    check="life.reference_counted",
    fragment="a bus that was entered three times works until its last exit",
)
class FirstExitStops(ReferenceBus):
    """Stops at the first exit, however often it was entered."""

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        await self.aclose()


@broken("bound to one loop", check="life.built_without_loop", fragment="a bus works in one event loop after the other")
class BoundToItsFirstLoop(ReferenceBus):
    """Works in the event loop in which it was first used, and in no other."""

    first: object = None

    def _start(self) -> None:
        self.first = self.first or current_loop()
        if self.first is not current_loop():
            raise RuntimeError("attached to a different loop")
        super()._start()
