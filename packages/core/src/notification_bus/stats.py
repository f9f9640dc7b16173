"""What a bus has counted: for a health page, a metric, or a question about silence."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from typing import Literal, TypeAlias

__all__ = ["BusStats", "DropReason"]

DropReason: TypeAlias = Literal["outbox", "refused", "too_large", "closed", "buffer"]
"""Where a notification was given up.

`outbox`: more waited to be sent than the outbox holds. `refused`: the broker said no. `too_large`: the broker carries
less than it was told to. `closed`: still unsent when the bus was closed. `buffer`: a subscription did not read in time
(counted for each subscription).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStats:
    """A snapshot. Counts run from the building of the bus, over restarts of it."""

    connected: bool = False
    """Whether the broker has confirmed the present connection."""

    since: float | None = None
    """When `connected` became what it is, in seconds since the epoch; `None` for a bus that is not open."""

    subscriptions: int = 0
    """Subscriptions open now."""

    published: int = 0
    """Notifications that `publish` accepted."""

    delivered: int = 0
    """Notifications handed to the buffers of subscriptions, counted for each subscription."""

    dropped: Mapping[DropReason, int] = field(default_factory=dict[DropReason, int])
    """Notifications given up, by reason. Each is followed by a gap where it was missed."""

    in_doubt: int = 0
    """Notifications handed to a connection that broke before it was confirmed. They may have arrived; a gap follows."""

    malformed: int = 0
    """Things on the channel that were no notification, skipped. Without subscriptions they are not looked at."""

    gaps: int = 0
    """Times that a gap was announced: to this instance's subscriptions, or by it on the wire."""

    reconnects: int = 0
    """Connections made after the first."""

    last_error: str | None = None
    """The last trouble with the broker, as it was logged; never with a password."""

    @property
    def unsent(self) -> int:
        """Notifications that `publish` accepted and the broker may not have got: given up unsent, or in doubt.

        A process that publishes and ends looks at it after leaving the bus, which sends what is queued: nobody is left
        then to announce the gap.
        """
        return sum(count for reason, count in self.dropped.items() if reason != "buffer") + self.in_doubt


class Counters(Counter[str]):
    """The running counts behind `BusStats`, by the names of its fields, and what else it says."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = False
        self.since: float | None = None
        self.dropped: Counter[DropReason] = Counter()
        self.last_error: str | None = None

    def mark(self, *, connected: bool) -> None:
        if self.since is None or connected is not self.connected:
            self.since = time()
        self.connected = connected

    def close(self) -> None:
        self.connected, self.since = False, None

    def snapshot(self, subscriptions: int) -> BusStats:
        return BusStats(
            connected=self.connected,
            since=self.since,
            subscriptions=subscriptions,
            dropped=dict(self.dropped),
            last_error=self.last_error,
            **self,
        )
