"""What a stream can wait for: the protocol's methods, the keys of a mailbox, and the URIs above a URI."""

from collections.abc import Iterator
from typing import Final, TypeAlias

from notification_bus.notification import BusNotification

__all__ = ["ACKNOWLEDGED", "LIST_KEYS", "LIST_METHODS", "SUBSCRIPTION_ID", "UPDATED", "Key", "ancestors", "uri_of"]

LIST_METHODS: Final = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
)
"""The kinds of list changes; the position of one is its key."""

LIST_KEYS: Final = {method: key for key, method in enumerate(LIST_METHODS)}
UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

Key: TypeAlias = int | str
"""A position in `LIST_METHODS`, or a resource URI.

Numbers and strings, so that a URI spelt like a method name is not taken for the method.
"""


def uri_of(notification: BusNotification) -> str | None:
    """Return the resource that an update is about, or `None` if it does not say."""
    # Not `.params`: the copy that it returns would be the larger part of the cost of routing a notification.
    params = notification._params  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    uri = None if params is None else params.get("uri")
    return uri if isinstance(uri, str) else None


def ancestors(uri: str, longest: int) -> Iterator[str]:
    """Yield the URIs that `uri` is a sub-resource of, nearest first, each with and without its trailing slash.

    `board://sprint/tasks/1` is below `board://sprint/tasks/`, `board://sprint/tasks`, `board://sprint/`,
    `board://sprint` and `board://`. A query and a fragment are one level each; slashes inside them do not count. A URI
    without slashes (`urn:…`) has no hierarchy. Nothing is decoded or normalised.

    Args:
        uri: The URI that changed. It comes from the bus and may be of any length.
        longest: Length of the longest URI that a stream can subscribe to. Longer ones are left out, which bounds the
            work.
    """
    path = len(uri)
    for mark in "#?":
        # The fragment first: it is the innermost, and a question mark inside it begins no query.
        end = uri.find(mark, 0, path)
        if end >= 0:
            path = end
            if 0 < path <= longest:
                yield uri[:path]
    scheme = uri.find("://", 0, path)
    root = scheme + 3 if scheme >= 0 else 0
    end, nearest = min(path, longest + 1), path
    while (end := uri.rfind("/", root, end)) >= 0:
        for length in (end + 1, end):
            # The two spellings coincide at the end of the path and between consecutive slashes.
            if 0 < length < nearest and length <= longest:
                nearest = length
                yield uri[:length]
    if 0 < root < nearest and root <= longest:
        yield uri[:root]
