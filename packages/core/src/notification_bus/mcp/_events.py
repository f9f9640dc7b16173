"""Between the SDK's `ServerEvent` and the notification that travels."""

from typing import Final

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.subscriptions import LISTEN_STREAM_METHODS, event_from_wire

from notification_bus.notification import BusNotification

__all__ = ["LIST_EVENTS", "is_listenable", "to_event", "to_notification"]

LIST_EVENTS: Final[tuple[ServerEvent, ...]] = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())

_TOOLS: Final = BusNotification.tools_list_changed()
_PROMPTS: Final = BusNotification.prompts_list_changed()
_RESOURCES: Final = BusNotification.resources_list_changed()


def to_notification(event: ServerEvent) -> BusNotification:
    """The notification that tells of an event.

    Raises:
        TypeError: It is none of the four kinds that a listen stream carries.
        InvalidNotificationError: The URI is no string, or holds a lone surrogate.
    """
    match event:
        case ToolsListChanged():
            return _TOOLS
        case PromptsListChanged():
            return _PROMPTS
        case ResourcesListChanged():
            return _RESOURCES
        case ResourceUpdated():
            return BusNotification.resource_updated(event.uri)
    raise TypeError(
        f"publish() takes one of mcp.server.subscriptions' ToolsListChanged, PromptsListChanged, "
        f"ResourcesListChanged and ResourceUpdated, not a {type(event).__name__}: {event!r}"
    )


def is_listenable(notification: BusNotification) -> bool:
    """Whether a listen stream carries notifications of this method."""
    return notification.method in LISTEN_STREAM_METHODS


def to_event(notification: BusNotification) -> ServerEvent | None:
    """The event that a notification tells of; `None` where the SDK's listeners could do nothing with it."""
    return event_from_wire(notification.method, notification.params) if is_listenable(notification) else None
