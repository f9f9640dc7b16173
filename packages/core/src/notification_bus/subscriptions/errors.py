"""The errors of a registry: refused listens and invalid options."""

from typing import Literal, TypeAlias

from notification_bus.errors import NotificationBusError

__all__ = [
    "InvalidFilterError",
    "InvalidSubscriptionIdError",
    "Limit",
    "RegistryOptionError",
    "SubscriptionLimitError",
    "SubscriptionsClosedError",
]

Limit: TypeAlias = Literal["max_streams", "max_uris", "max_uri_length"]
"""The option of a registry that was reached."""

_REMEDY: dict[Limit, str] = {
    "max_streams": "streams are open here and this server holds at most {allowed}: try again later",
    "max_uris": "URIs are in the filter and a stream may name at most {allowed}: subscribe to fewer resources",
    "max_uri_length": "characters are in a URI of the filter and it may have at most {allowed}: use a shorter one",
}


class InvalidFilterError(NotificationBusError, ValueError):
    """The value is not a filter. Says which member is wrong, what it holds, and what it may hold."""


class InvalidSubscriptionIdError(NotificationBusError, TypeError):
    """The id of a stream is neither an integer nor a string, the two that JSON-RPC gives to a request."""


class SubscriptionLimitError(NotificationBusError, RuntimeError):
    """A stream would go beyond a limit of its registry. The streams that are open are not touched."""

    def __init__(self, limit: Limit, value: int, allowed: int) -> None:
        super().__init__(f"{value} {_REMEDY[limit].format(allowed=allowed)}")
        self.limit: Limit = limit
        """The name of the option that sets it. A client can avoid all but `max_streams`."""
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[type["SubscriptionLimitError"], tuple[Limit, int, int]]:
        return type(self), (self.limit, self.value, self.allowed)


class SubscriptionsClosedError(NotificationBusError, RuntimeError):
    """The server is shutting down and opens no stream any more: listen again, and another replica will answer."""


class RegistryOptionError(NotificationBusError, ValueError):
    """An option of a registry is of the wrong type or out of range. Names the option, its value and its range."""
