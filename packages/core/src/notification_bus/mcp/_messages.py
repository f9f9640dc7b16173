"""From the messages of a stream to what the SDK sends."""

from typing import Any, Final

import mcp_types as types
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import ValidationError

from notification_bus.subscriptions import SubscriptionMessage

__all__ = ["to_sdk"]

_NOTIFICATIONS: Final[dict[str, type[Any]]] = {
    "notifications/subscriptions/acknowledged": types.SubscriptionsAcknowledgedNotification,
    "notifications/tools/list_changed": types.ToolListChangedNotification,
    "notifications/prompts/list_changed": types.PromptListChangedNotification,
    "notifications/resources/list_changed": types.ResourceListChangedNotification,
    "notifications/resources/updated": types.ResourceUpdatedNotification,
}


def to_sdk(message: SubscriptionMessage) -> Any:
    """The SDK's model of a notification."""
    model = _NOTIFICATIONS[message.method]
    try:
        return model.model_validate({"method": message.method, "params": message.params})
    except ValidationError:
        # Params that a stranger published: members that the SDK cannot read must not end the stream.
        params: dict[str, Any] = {
            name: message.params[name] for name in ("uri", "notifications") if name in message.params
        }
        name = message.params.get("_meta", {}).get(SUBSCRIPTION_ID_META_KEY)
        if name is not None:
            params["_meta"] = {SUBSCRIPTION_ID_META_KEY: name}
        return model.model_validate({"method": message.method, "params": params})
