"""What a registry has counted: for a health page, a metric, or a question about silence."""

from dataclasses import dataclass

__all__ = ["SubscriptionStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """A snapshot. Counts run from the building of the registry, over restarts of it."""

    streams: int
    """Streams open now."""

    arriving: int
    """Streams that wait for the bus to be ready, before their acknowledgment."""

    uris: int
    """Different URIs that streams of this node watch now."""

    ready: bool
    """Whether what is published anywhere reaches this node: always, where there is no bus and the registry is open."""

    draining: bool
    """Whether the shutdown has been signalled; new streams are refused from then on."""

    opened: int
    """Streams opened."""

    refused: int
    """Streams refused: a limit, a bad filter or id, no ready bus, the shutdown."""

    received: int
    """Notifications that reached this node."""

    delivered: int
    """Changes put into the mailboxes of streams, counted for each stream."""

    coalesced: int
    """Of these, how many took the place of one that had not been read yet: the sign of slow clients."""

    ignored: int
    """Notifications of a method that no stream can carry (progress, log, tasks), skipped."""

    malformed: int
    """Things that are no notification, or updates without a URI, skipped."""

    gaps: int
    """Gaps heard, from the bus or because its subscription broke."""

    told: int
    """Times that a stream was told of a gap: all of its filter marked as changed."""


@dataclass(slots=True)
class Counters:
    """The running counts behind `SubscriptionStats`."""

    opened: int = 0
    refused: int = 0
    received: int = 0
    delivered: int = 0
    coalesced: int = 0
    ignored: int = 0
    malformed: int = 0
    gaps: int = 0
    told: int = 0
