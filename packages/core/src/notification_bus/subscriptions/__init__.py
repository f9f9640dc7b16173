"""The node-local half: the streams that this process holds, what each asked to hear, and how they are told.

    async with SubscriptionRegistry(open_bus("redis://localhost?channel=board")) as registry:
        ...
        async with registry.listen(request_id, SubscriptionFilter.from_wire(params["notifications"])) as stream:
            async for message in stream:  # the acknowledgment first
                await send(message.to_wire())
        # the loop ended: the server shuts down, and the client is owed its final result

The messages are those of the Model Context Protocol (revision 2026-07-28, `subscriptions/listen`); nothing here needs
its SDK, and server-sent events or a websocket carry them as well.
"""

from notification_bus.subscriptions.errors import (
    InvalidFilterError,
    InvalidSubscriptionIdError,
    RegistryOptionError,
    SubscriptionLimitError,
    SubscriptionsClosedError,
)
from notification_bus.subscriptions.filter import Capabilities, SubscriptionFilter
from notification_bus.subscriptions.options import RegistryOptions, RegistryOptionValues
from notification_bus.subscriptions.registry import SubscriptionRegistry
from notification_bus.subscriptions.stats import SubscriptionStats
from notification_bus.subscriptions.stream import SubscriptionId, SubscriptionMessage, SubscriptionStream

__all__ = [
    "Capabilities",
    "InvalidFilterError",
    "InvalidSubscriptionIdError",
    "RegistryOptionError",
    "RegistryOptionValues",
    "RegistryOptions",
    "SubscriptionFilter",
    "SubscriptionId",
    "SubscriptionLimitError",
    "SubscriptionMessage",
    "SubscriptionRegistry",
    "SubscriptionStats",
    "SubscriptionStream",
    "SubscriptionsClosedError",
]
