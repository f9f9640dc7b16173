"""Every error that the bus raises on purpose.

A broker's trouble never reaches `publish`: it is logged, counted and retried. Callers see the errors that they can fix,
and each class says how. The native error of a client library is chained as `__cause__`.
"""

__all__ = [
    "BusBackendError",
    "BusClosedError",
    "BusNotReadyError",
    "BusURLError",
    "EchoLostError",
    "InvalidNotificationError",
    "MalformedBodyError",
    "NotPrimaryError",
    "NotificationBusError",
    "NotificationTooLargeError",
    "SendRefusedError",
]


class NotificationBusError(Exception):
    """Base of every error of this package."""


class InvalidNotificationError(NotificationBusError, ValueError):
    """A notification was built from a value that not every peer can read as JSON. Names the value and its place."""


class MalformedBodyError(NotificationBusError, ValueError):
    """The bytes are not a notification body. A bus counts and skips such bodies."""


class NotificationTooLargeError(NotificationBusError, ValueError):
    """The encoded body is larger than this bus carries. Publish an identifier, and let readers fetch the rest."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the notification's body has {size} bytes and this bus carries at most {limit}: "
            "publish an identifier of what changed, not the change itself"
        )
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[type["NotificationTooLargeError"], tuple[int, int]]:
        return type(self), (self.size, self.limit)


class BusClosedError(NotificationBusError, RuntimeError):
    """The bus is not open here: never entered, already closed, or open in another process or event loop."""


class BusNotReadyError(NotificationBusError, TimeoutError):
    """The broker did not confirm the subscription in time. Names the last cause, which is also `__cause__`."""


class BusURLError(NotificationBusError, ValueError):
    """A bus URL or an option is wrong: an unknown scheme, a missing distribution, an unknown or invalid option."""


class BusBackendError(NotificationBusError, RuntimeError):
    """This bus does not run on the running async library: the clients of Redis, NATS and Postgres need asyncio."""


class SendRefusedError(NotificationBusError):
    """The broker refused a batch, for lack of permission for instance, and the connection is still good.

    Raised by `BrokerConnection.send`; the refused bodies are dropped, counted and followed by a gap.

    Args:
        reason: The broker's answer, and what to do about it.
        count: How many of the bodies were refused; `None` for all of them.
    """

    def __init__(self, reason: str, count: int | None = None) -> None:
        super().__init__(reason)
        self.count = count


class NotPrimaryError(NotificationBusError, ConnectionError):
    """This node is not the primary: what is published on it reaches nobody. Raised by an adapter, then retried."""


class EchoLostError(NotificationBusError, ConnectionError):
    """A probe of this instance did not come back. Raised inside `BrokerBus`; an adapter may add a `remedy`."""
