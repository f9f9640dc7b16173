"""When each stream is told of a gap: spread over time, merged, and rate limited. No clock: the time is passed in."""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from notification_bus.subscriptions._mailbox import Mailbox

__all__ = ["GapSchedule"]


class GapSchedule:
    """Every stream of every replica notices a reconnect at the same time; their clients must not all fetch then.

    A *round* tells the streams that were open when the gap was heard, each at a random time within the spread. Gaps are
    numbered, and a stream knows the last one that it has been told of: a gap heard during a round merges into it for
    the streams still to be told, and makes one more round for the others. Two rounds begin at least the interval
    apart: one flapping replica cannot keep a fleet fetching, and no gap is forgotten.

    Args:
        spread: Seconds over which a round is spread.
        interval: Least seconds between the beginnings of two rounds.
        random: Numbers from 0 up to 1.
        shuffle: Shuffles a list, so that it is not always the same stream that waits longest.
    """

    def __init__(
        self,
        spread: float,
        interval: float,
        *,
        random: Callable[[], float],
        shuffle: Callable[[list[Mailbox]], None],
    ) -> None:
        self._spread = spread
        self._interval = interval
        self._random = random
        self._shuffle = shuffle
        self._due: deque[tuple[float, Mailbox]] = deque()
        self._not_before = -inf
        self._heard = False
        self.number = 0
        """Gaps heard so far. A stream that opens now needs to be told of none of them."""

    def hear(self) -> None:
        """Note a gap."""
        self.number += 1
        self._heard = True

    def delay(self, now: float) -> float | None:
        """Return the seconds until `take` has something to do; `None` if it has not before the next gap."""
        if self._due:
            return max(0.0, self._due[0][0] - now)
        return max(0.0, self._not_before - now) if self._heard else None

    def take(self, now: float, streams: Iterable[Mailbox]) -> list[Mailbox]:
        """Return the streams to tell now. They count as told.

        Args:
            now: Seconds, always of the same clock.
            streams: The open streams; read when a round begins.
        """
        if not self._due and self._heard and now >= self._not_before:
            self._begin(now, [stream for stream in streams if stream.gap < self.number])
        told: list[Mailbox] = []
        while self._due and self._due[0][0] <= now:
            stream = self._due.popleft()[1]
            stream.gap = self.number
            told.append(stream)
        return told

    def _begin(self, now: float, streams: list[Mailbox]) -> None:
        self._heard = False
        if not streams:
            return
        self._not_before = now + self._interval
        self._shuffle(streams)
        # The spread is divided into one part for each stream, with a random time in each: an even load, also if each of
        # many replicas holds a single stream.
        part = self._spread / len(streams)
        self._due.extend((now + part * (place + self._random()), stream) for place, stream in enumerate(streams))
