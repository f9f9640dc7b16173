"""Change notifications that reach every replica of a Python server."""

from importlib import metadata

from notification_bus._json import JsonObject, JsonValue
from notification_bus.broker import BrokerBus
from notification_bus.bus import NotificationBus, OpenableBus
from notification_bus.connection import BrokerConnection
from notification_bus.errors import (
    BusBackendError,
    BusClosedError,
    BusNotReadyError,
    BusURLError,
    EchoLostError,
    InvalidNotificationError,
    MalformedBodyError,
    NotificationBusError,
    NotificationTooLargeError,
    NotPrimaryError,
    SendRefusedError,
)
from notification_bus.memory import MemoryBus
from notification_bus.notification import GAP, BusNotification
from notification_bus.options import BusOptions
from notification_bus.stats import BusStats, DropReason
from notification_bus.url import open_bus

__all__ = [
    "GAP",
    "BrokerBus",
    "BrokerConnection",
    "BusBackendError",
    "BusClosedError",
    "BusNotReadyError",
    "BusNotification",
    "BusOptions",
    "BusStats",
    "BusURLError",
    "DropReason",
    "EchoLostError",
    "InvalidNotificationError",
    "JsonObject",
    "JsonValue",
    "MalformedBodyError",
    "MemoryBus",
    "NotPrimaryError",
    "NotificationBus",
    "NotificationBusError",
    "NotificationTooLargeError",
    "OpenableBus",
    "SendRefusedError",
    "open_bus",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return metadata.version("notification-bus")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
