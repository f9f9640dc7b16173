"""What an `McpSubscriptions` has counted: for a health page, a metric, or a question about silence."""

from dataclasses import dataclass

from notification_bus.subscriptions import SubscriptionStats

__all__ = ["McpStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStats:
    """A snapshot. Counts run from the building of the object."""

    ready: bool
    """Whether the bus has confirmed: a listen stream that is opened now misses nothing."""

    listeners: int
    """Listen streams of the SDK that are open on this replica now, and listeners of yours."""

    delivered: int
    """Events handed to listeners, counted for each listener that they concern."""

    coalesced: int
    """Events that were not handed over because an equal one was waiting already."""

    ignored: int
    """Notifications on the bus that no listen stream carries, such as log messages; gaps are not counted here."""

    gaps: int
    """Times that everything was reported as changed because something may have been missed."""

    listener_errors: int
    """Times that a listener raised."""

    streams: SubscriptionStats | None
    """What is counted of the listen streams that `install` has this object serve; `None` where it was not called. The
    counts above are about the SDK's own streams, and listeners of yours."""
