"""When each stream is told of a gap: spread over a moment, merged, and not too often. Knows no clock of its own."""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from notification_bus.subscriptions._mailbox import Mailbox

__all__ = ["GapSchedule"]


class GapSchedule:
    """A reconnect is noticed by every stream of every replica at the same time; their clients must not all fetch then.

    A *round* tells the streams that were open when the gap was heard, each at a random moment within the spread.
    Gaps are numbered and a stream knows the last that it is covered against, so a gap heard during a round costs
    nothing where the stream has not had its turn, and one more round for the rest. Two rounds begin at least the
    interval apart: one flapping replica cannot keep a fleet fetching, and yet no gap is forgotten.

    Args:
        spread: Seconds over which a round is spread.
        interval: Least seconds between the beginnings of two rounds.
        random: Numbers from 0 up to 1.
        shuffle: Brings a list into a random order, so that it is not always the same stream that waits longest.
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
        """Gaps heard up to now; what a stream that opens now is covered against."""

    def hear(self) -> None:
        """Note a gap."""
        self.number += 1
        self._heard = True

    def delay(self, now: float) -> float | None:
        """Seconds until `take` has something to do, or `None` where it has not before the next gap."""
        if self._due:
            return max(0.0, self._due[0][0] - now)
        return max(0.0, self._not_before - now) if self._heard else None

    def take(self, now: float, streams: Iterable[Mailbox]) -> list[Mailbox]:
        """The streams whose turn it is. They count as told.

        Args:
            now: Seconds of the same clock as ever.
            streams: Those that are open, looked at where a round begins.
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
        # One random moment in each of as many equal parts as there are streams: an even load, also where each of many
        # replicas holds a single stream.
        part = self._spread / len(streams)
        self._due.extend((now + part * (place + self._random()), stream) for place, stream in enumerate(streams))
