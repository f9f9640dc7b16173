"""Between the SDK's types and ours: events, messages, errors, and what stands for a connection."""

from collections.abc import Generator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import ValidationError

from notification_bus._floodlog import FloodLog
from notification_bus.errors import NotificationBusError
from notification_bus.notification import BusNotification
from notification_bus.subscriptions import (
    InvalidFilterError,
    SubscriptionLimitError,
    SubscriptionMessage,
    SubscriptionsClosedError,
)

__all__ = ["as_protocol_errors", "connection_of", "to_notification", "to_sdk", "uris_of"]

_LISTS: Final[dict[type[Any], BusNotification]] = {
    ToolsListChanged: BusNotification.tools_list_changed(),
    PromptsListChanged: BusNotification.prompts_list_changed(),
    ResourcesListChanged: BusNotification.resources_list_changed(),
}

_MODELS: Final[dict[str, type[Any]]] = {
    "notifications/subscriptions/acknowledged": types.SubscriptionsAcknowledgedNotification,
    "notifications/tools/list_changed": types.ToolListChangedNotification,
    "notifications/prompts/list_changed": types.PromptListChangedNotification,
    "notifications/resources/list_changed": types.ResourceListChangedNotification,
    "notifications/resources/updated": types.ResourceUpdatedNotification,
}

_UNAVAILABLE: Final = "subscriptions are not available at the moment: try again"
"""What is wrong with the broker goes to the server's log. A client can do nothing about it and should not know it."""


def to_notification(event: ServerEvent) -> BusNotification:
    """Return the notification of an event of the SDK.

    Raises:
        TypeError: It is none of the four kinds that a listen stream carries.
        InvalidNotificationError: The URI is no string, or holds a lone surrogate.
    """
    if (notification := _LISTS.get(type(event))) is not None:
        return notification
    if isinstance(event, ResourceUpdated):
        return BusNotification.resource_updated(event.uri)
    raise TypeError(
        f"publish() takes one of mcp.server.subscriptions' ToolsListChanged, PromptsListChanged, "
        f"ResourcesListChanged and ResourceUpdated, not a {type(event).__name__}: {event!r}"
    )


def to_sdk(message: SubscriptionMessage) -> Any:
    """Return the SDK's model of a stream's message."""
    model = _MODELS[message.method]
    try:
        return model.model_validate({"method": message.method, "params": message.params})
    except ValidationError:
        # Members that a stranger published and the SDK cannot read must not end the stream.
        params: dict[str, Any] = {
            name: message.params[name] for name in ("uri", "notifications") if name in message.params
        }
        name = message.params.get("_meta", {}).get(SUBSCRIPTION_ID_META_KEY)
        if name is not None:
            params["_meta"] = {SUBSCRIPTION_ID_META_KEY: name}
        return model.model_validate({"method": message.method, "params": params})


@contextmanager
def as_protocol_errors(floods: FloodLog) -> Generator[None]:
    """Turn what a registry raises into the protocol's errors, which say whether the client can do anything about it.

    Raises:
        MCPError: Instead of any `NotificationBusError`.
    """
    try:
        yield
    except InvalidFilterError as exc:
        raise MCPError(types.INVALID_PARAMS, str(exc)) from None
    except SubscriptionLimitError as exc:
        code = types.INTERNAL_ERROR if exc.limit == "max_streams" else types.INVALID_PARAMS
        raise MCPError(code, str(exc)) from None
    except SubscriptionsClosedError as exc:
        raise MCPError(types.INTERNAL_ERROR, str(exc)) from None
    except NotificationBusError as exc:
        floods.add("listen", f"a subscription was refused: {exc}")
        raise MCPError(types.INTERNAL_ERROR, _UNAVAILABLE) from None


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection | None:
    """Return the connection of a request, or `None` if nothing can be sent on it but answers (stateless HTTP).

    The context does not show it. For a client of the 2025 revisions it is one object for the whole connection. For
    later ones it is made anew for each request, and only its `outbound` is the same throughout. If another release of
    the SDK hides it, earlier clients are not served, and a listen whose id is in use is not refused.
    """
    connection = getattr(ctx.session, "_connection", None)
    return connection if isinstance(connection, Connection) and connection.has_standalone_channel else None


def uris_of(listener: object) -> frozenset[str] | None:
    """Return the resource URIs in the filter of an SDK stream's listener, or `None` for any other listener.

    The SDK's seam passes a bare function, and its filter can only be read from the function's closure. If another
    release of the SDK changes that, the listener counts as one without a filter, and a test fails.
    """
    if not isinstance(listener, FunctionType):
        return None
    for cell in listener.__closure__ or ():
        try:
            content: object = cell.cell_contents
        except ValueError:  # a variable without a value yet
            continue
        if isinstance(content, types.SubscriptionFilter):
            return frozenset(content.resource_subscriptions or ())
    return None
