"""A subscriber that reads in a task of its own, and what it has read."""

from collections.abc import Mapping
from typing import Final

import anyio

from notification_bus.bus import NotificationBus
from notification_bus.notification import GAP, BusNotification

__all__ = ["NUMBERED", "Pump", "number_of"]

NUMBERED: Final = "notifications/contract/numbered"
"""The method of the notifications that the checks count by."""


def number_of(notification: object, channel: str) -> int | None:
    """The number of a notification that a check on this channel published; `None` for any other."""
    if not isinstance(notification, BusNotification) or notification.method != NUMBERED:
        return None
    params = notification.params
    if not isinstance(params, Mapping) or params.get("run") != channel:
        return None
    number = params.get("n")
    return number if isinstance(number, int) else None


class Pump:
    """Enters a subscription, reads it and leaves it, all in one task, as a subscriber does.

    The checks look at what it has read, so none of them ever cancels a read by a timeout of its own.
    """

    def __init__(self, bus: NotificationBus, channel: str, name: str, *, reading: bool) -> None:
        self.name: Final = name
        self.items: Final[list[object]] = []
        """Everything the subscription yielded, in order."""
        self.ended: bool = False
        """The iteration came to its normal end."""
        self.error: Exception | None = None
        """What entering, reading or leaving raised."""
        self.entered: anyio.Event = anyio.Event()
        """The subscription is ready, or will never be."""
        self.done: anyio.Event = anyio.Event()
        """The subscription was left."""
        self._bus = bus
        self._channel = channel
        self._numbers: list[int] = []
        self._counted = 0
        self._may_read = anyio.Event()
        self._scope = anyio.CancelScope()
        if reading:
            self._may_read.set()

    @property
    def numbers(self) -> list[int]:
        """The numbers of this check's notifications, in the order in which they arrived."""
        for item in self.items[self._counted :]:
            number = number_of(item, self._channel)
            if number is not None:
                self._numbers.append(number)
        self._counted = len(self.items)
        return self._numbers

    @property
    def gaps(self) -> int:
        """Gaps that arrived."""
        return sum(item == GAP for item in self.items)

    @property
    def alive(self) -> bool:
        """Whether more can come: not ended, not failed, not left."""
        return not (self.ended or self.error is not None or self.done.is_set())

    def has(self, numbers: list[int]) -> bool:
        """Whether all of these have arrived."""
        return set(numbers) <= set(self.numbers)

    def pause(self) -> None:
        """Read no more, after the one that a waiting read may still get."""
        self._may_read = anyio.Event()

    def resume(self) -> None:
        """Read, from now on."""
        self._may_read.set()

    def cancel(self) -> None:
        """Cancel the subscriber, wherever it is."""
        self._scope.cancel()

    async def run(self) -> None:
        """Be the subscriber: enter, read, leave."""
        try:
            with self._scope:
                async with self._bus.subscribe() as stream:
                    self.entered.set()
                    await self._may_read.wait()
                    async for item in stream:
                        self.items.append(item)
                        await self._may_read.wait()
                    self.ended = True
        # Whatever a bus raises into a subscriber is a finding of the check that looks at this pump.
        except Exception as exc:
            self.error = exc
        finally:
            self.entered.set()
            self.done.set()

    def __str__(self) -> str:
        numbers = self.numbers
        state = "" if self.alive else ", and it has ended"
        if self.error is not None:
            state = f", and it raised {self.error!r}"
        gaps = f", {self.gaps} gaps" if self.gaps else ""
        others = len(self.items) - len(numbers) - self.gaps
        other = f", {others} other things" if others else ""
        return f"{self.name} received {len(numbers)} numbered notifications{gaps}{other}{state}"
