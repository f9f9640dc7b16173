"""The protocol that every bus keeps, and the contract behind it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from notification_bus.notification import BusNotification
from notification_bus.stats import BusStats

__all__ = ["NotificationBus", "OpenableBus"]


@runtime_checkable
class NotificationBus(Protocol):
    """Carries notifications to every replica of a server, the publishing one included.

    Two methods and a contract of numbered rules. The checks of the contract kit (`notification_bus.testing`) prove each
    rule, and name it by its word.

    1. **echo**: A subscription yields this instance's own notifications as well as everybody else's, one copy each:
       local delivery is that stream and only that stream.
    2. **ready**: Once `async with bus.subscribe()` is entered, everything published anywhere after that point is owed
       to it. Entering waits for the broker's confirmation, at most a stated time, and then raises an error that names
       the cause. A cancelled entering leaves nothing behind.
    3. **hand_off**: `publish` encodes, queues and returns. It never waits for the broker and never raises for the
       broker's trouble; it raises, at once, for what the caller can fix: not encodable, too large, bus not open.
       What is published is the value at the time of the call. A burst gives the event loop its turns.
    4. **at_most_once**: A notification arrives at most once: no retry of an ambiguous send, no second subscription
       after a reconnect, no local copy beside the echo, no history.
    5. **complete**: On a healthy broker, within the stated sizes of the buffers, nothing is lost, and values arrive as
       they were published.
    6. **order**: Notifications of one publisher arrive in the order in which they were published.
    7. **bounded**: Every buffer has a limit; a full one drops its oldest with a rate-limited warning that carries a
       count. A slow subscriber costs neither its siblings nor the producer nor the broker anything.
    8. **never_ends**: A stream outlives outages, restarts, kicked connections, refused logins and poison bodies. It
       ends only when its owner or the bus is closed. A cancelled read loses nothing.
    9. **reconnect**: A lost connection is detected, a silently dead one too, and replaced: at once, then backing off
       with jitter to a small cap, without end.
    10. **gaps**: After anything may have been lost, `GAP` is yielded before the next notification: to every
        subscription after a reconnect, to the one whose buffer overflowed, and on the wire to all replicas when the
        publisher dropped or cannot know.
    11. **untrusted**: Anything on the channel that is not a notification is skipped; an instance with a subscription
        counts and logs it.
    12. **wire**: What travels is the notification's JSON body and nothing else; unknown members of a foreign body are
        tolerated.
    13. **close**: Closing returns within a stated bound in any state, ends the streams, leaves no task, socket or
        thread and is idempotent. Publishing afterwards raises `BusClosedError`.
    14. **cancellation**: Cancelling any caller cancels that caller only.
    15. **isolation**: One channel name is one logical bus; nothing crosses names.
    16. **lifecycle**: Building a bus opens nothing and binds no event loop. A bus that holds connections is an async
        context manager whose entering is counted: the last exit stops it. It may then be entered again, also on another
        event loop.

    Not promised: delivery of what was published while nobody listened, order across publishers, anything for a process
    that is killed between its change and its publish, a stop before the last exit.
    """

    async def publish(self, notification: BusNotification) -> None:
        """Hand a notification off to every subscription of every replica, this one included.

        A cancelled call has published: the hand-off comes first, since the change has already happened.

        Raises:
            NotificationTooLargeError: The body has more bytes than this bus carries.
            BusClosedError: The bus is not open.
        """
        ...

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[BusNotification]]:
        """Return a subscription: a context manager that is ready once entered, and yields an iterator of notifications.

        Raises:
            BusNotReadyError: On entering, if the broker does not confirm in time.
            BusClosedError: On entering, if the bus is not open.
        """
        ...


@runtime_checkable
class OpenableBus(NotificationBus, Protocol):
    """A `NotificationBus` that is entered before use. Every bus of this project is one.

    Entering is counted: the last exit stops the bus. A stopped bus can be entered again, also on another event loop.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> bool | None: ...

    async def aclose(self) -> None:
        """Stop the bus, however often it was entered. Does nothing if it is not open."""
        ...

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait for the broker's confirmation, to fail fast at start-up.

        Args:
            timeout: Seconds; `None` takes the bus's own `ready_timeout`.

        Raises:
            BusNotReadyError: There was no confirmation in time. Names the cause.
            BusClosedError: The bus is not open.
        """
        ...

    def stats(self) -> BusStats:
        """Return what the bus has counted up to now."""
        ...
