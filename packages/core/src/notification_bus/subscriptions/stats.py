"""What a registry has counted: for a health page, a metric, or a question about silence."""

from dataclasses import dataclass

__all__ = ["SubscriptionStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """A snapshot. Counts run from the building of the registry, over restarts of it."""

    streams: int = 0
    """Streams open now."""

    arriving: int = 0
    """Streams that wait for the bus to be ready, before their acknowledgment."""

    uris: int = 0
    """Different URIs that streams of this node watch now."""

    taps: int = 0
    """Functions registered by `tap` now."""

    ready: bool = False
    """Whether what is published anywhere reaches this node: always, where there is no bus and the registry is open."""

    draining: bool = False
    """Whether the shutdown has been signalled; new streams are refused from then on."""

    opened: int = 0
    """Streams opened."""

    refused: int = 0
    """Streams refused: a limit, a bad filter or id, no ready bus, the shutdown."""

    received: int = 0
    """Notifications that reached this node."""

    delivered: int = 0
    """Changes put into the mailboxes of streams or noted for taps, counted for each of them."""

    coalesced: int = 0
    """Of these, how many replaced an equal one that had not been told yet: the sign of slow clients."""

    ignored: int = 0
    """Notifications of a method that no stream can carry (progress, log, tasks), skipped."""

    malformed: int = 0
    """Things that are no notification, or updates without a URI, skipped."""

    gaps: int = 0
    """Gaps heard, from the bus or because its subscription broke."""

    told: int = 0
    """Times that a stream was told of a gap: all of its filter marked as changed."""

    tap_errors: int = 0
    """Times that a tap raised."""
