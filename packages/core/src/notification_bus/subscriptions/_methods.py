"""The words of the protocol: the methods that a stream can carry, and how a message names its stream."""

from typing import Final, TypeAlias

from notification_bus.notification import BusNotification

__all__ = ["ACKNOWLEDGED", "LIST_METHODS", "SUBSCRIPTION_ID", "UPDATED", "Key", "uri_of"]

LIST_METHODS: Final = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
)
"""The kinds of list changes; the position of one is its key in a mailbox."""

UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

Key: TypeAlias = int | str
"""What a stream can wait for: a position in `LIST_METHODS`, or a subscribed URI.

Numbers and strings, so that a client that subscribes to a URI spelt like a method name meets nothing but its URI.
"""


def uri_of(notification: BusNotification) -> str | None:
    """The resource that an update is about, or `None` where it does not say."""
    # Not `.params`: the copy that it gives each reader would be the larger part of routing a notification.
    params = notification._params  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    uri = None if params is None else params.get("uri")
    return uri if isinstance(uri, str) else None
