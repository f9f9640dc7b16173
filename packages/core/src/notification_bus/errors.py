"""Every error that this package raises on purpose.

A broker's own trouble never reaches `publish`: it is logged, counted and retried. What is raised is what the caller
can mend, and each class says how. Native errors of a client library are chained as `__cause__`, never re-worded away.
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
    """A notification was built from something that cannot travel as JSON to every peer. Says what, and where in it."""


class MalformedBodyError(NotificationBusError, ValueError):
    """Bytes that were to be read as a notification body are none. A bus counts and skips such bodies."""


class NotificationTooLargeError(NotificationBusError, ValueError):
    """The encoded body has more bytes than this bus carries. Publish an identifier, and let readers fetch the rest."""

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
    """The bus is not open: never entered, closed already, or open in another process or event loop than this one."""


class BusNotReadyError(NotificationBusError, TimeoutError):
    """The broker has not confirmed within the time allowed. Names the cause last seen, which is also `__cause__`."""


class BusURLError(NotificationBusError, ValueError):
    """A bus URL or option is wrong: unknown scheme, missing distribution, unknown or unreadable option."""


class BusBackendError(NotificationBusError, RuntimeError):
    """The running async library cannot carry this bus: the clients of Redis, NATS and Postgres need asyncio."""


class SendRefusedError(NotificationBusError):
    """The broker said no to a batch, and the connection is as good as before: no permission, say.

    Raised by `BrokerConnection.send`; the refused bodies are dropped, counted and followed by a gap.

    Args:
        reason: What the broker said, and what to do about it.
        count: How many of the bodies were refused; `None` for all of them.
    """

    def __init__(self, reason: str, count: int | None = None) -> None:
        super().__init__(reason)
        self.count = count


class NotPrimaryError(NotificationBusError, ConnectionError):
    """This node is not the primary: what is published on it reaches nobody else. Raised by an adapter, and retried."""


class EchoLostError(NotificationBusError, ConnectionError):
    """What this instance published did not come back to it. Raised by `BrokerBus`; an adapter may know a `remedy`."""
