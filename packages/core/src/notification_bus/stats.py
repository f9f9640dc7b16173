"""The statistics of a bus: for a health page, a metric, or the question why nothing arrives."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from typing import Literal, TypeAlias

__all__ = ["BusStats", "DropReason"]

DropReason: TypeAlias = Literal["outbox", "refused", "too_large", "closed", "buffer"]
"""Why a notification was dropped.

`outbox`: more waited to be sent than the outbox holds. `refused`: the broker said no. `too_large`: the broker carries
less than the body has. `closed`: still unsent when the bus was closed. `buffer`: a subscription did not read in time
(counted for each subscription).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStats:
    """A snapshot. The counts start when the bus is built and go on when it is entered again."""

    connected: bool = False
    """True if the broker has confirmed the current connection."""

    since: float | None = None
    """When `connected` last changed, in seconds since the epoch; `None` if the bus is not open."""

    subscriptions: int = 0
    """Subscriptions open now."""

    published: int = 0
    """Notifications that `publish` accepted."""

    delivered: int = 0
    """Notifications put into the buffers of subscriptions, counted for each subscription."""

    dropped: Mapping[DropReason, int] = field(default_factory=dict[DropReason, int])
    """Notifications dropped, by reason. A gap follows wherever one was missed."""

    in_doubt: int = 0
    """Notifications handed to a connection that broke before it was confirmed. They may have arrived; a gap follows."""

    malformed: int = 0
    """Bodies on the channel that were not notifications. Not looked at while nobody subscribes."""

    gaps: int = 0
    """Times that a gap was announced: to this instance's subscriptions, or by it on the wire."""

    reconnects: int = 0
    """Connections made after the first."""

    last_error: str | None = None
    """The last error of the connection, as it was logged; without passwords."""

    @property
    def unsent(self) -> int:
        """Notifications that `publish` accepted and that may not have reached the broker: dropped unsent, or in doubt.

        For a process that publishes and exits, to be read after leaving the bus: nobody is left to announce a gap.
        """
        return sum(count for reason, count in self.dropped.items() if reason != "buffer") + self.in_doubt


class Counters(Counter[str]):
    """The running counts of a bus, by the names of the fields of `BusStats`, and its other values."""

    def __init__(self) -> None:
        super().__init__()
        self.connected: bool = False
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
