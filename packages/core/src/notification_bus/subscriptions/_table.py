"""The streams of one node: who is open, who is arriving, and whose final result is awaited."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import anyio

from notification_bus.subscriptions._mailbox import Mailbox
from notification_bus.subscriptions._router import Router
from notification_bus.subscriptions.errors import SubscriptionLimitError, SubscriptionsClosedError

__all__ = ["StreamTable"]


class StreamTable:
    """Keyed by the table's own handles, never by a client's id: two clients may pick the same.

    Everything but the waiting is synchronous, and belongs to one event loop.
    """

    def __init__(self, router: Router, max_streams: int, counts: Counter[str]) -> None:
        self._router = router
        self._max_streams = max_streams
        self._counts = counts
        self._open: dict[Mailbox, None] = {}
        self._arriving: set[anyio.CancelScope] = set()
        self._deferred: set[object] = set()
        self._abandoned: deque[Mailbox] = deque()
        self._idle: anyio.Event | None = None
        self.draining = False

    @property
    def streams(self) -> int:
        self._sweep()
        return len(self._open)

    @property
    def arriving(self) -> int:
        return len(self._arriving)

    @property
    def waiting(self) -> int:
        """Final results that a drain waits for."""
        self._sweep()
        return len(self._open) + len(self._arriving) + len(self._deferred)

    @property
    def coalesced(self) -> int:
        return self._counts["coalesced"] + sum(mailbox.coalesced for mailbox in self._open)

    def __iter__(self) -> Iterator[Mailbox]:
        return iter(self._open)

    def check_open(self) -> None:
        """Raise `SubscriptionsClosedError` after the signal to shut down."""
        if self.draining:
            raise SubscriptionsClosedError(
                "this server is shutting down and opens no stream any more: listen again, another replica will answer"
            )

    @contextmanager
    def arrival(self, scope: anyio.CancelScope) -> Generator[None]:
        """Hold a place for a stream that has to wait before it can be opened; the signal to shut down ends the waiting.

        Raises:
            SubscriptionsClosedError: The signal came before, or meanwhile.
            SubscriptionLimitError: There is no place.
        """
        self.check_open()
        self._sweep()
        if (taken := len(self._open) + len(self._arriving)) >= self._max_streams:
            raise SubscriptionLimitError("max_streams", taken, self._max_streams)
        self._arriving.add(scope)
        try:
            with scope:
                yield
            self.check_open()
        finally:
            self._arriving.discard(scope)
            self._check_idle()

    def add(self, mailbox: Mailbox) -> None:
        self._open[mailbox] = None
        self._router.add(mailbox)
        self._counts["opened"] += 1

    def remove(self, mailbox: Mailbox) -> None:
        """The stream has been left."""
        mailbox.discard()
        if mailbox in self._open:
            del self._open[mailbox]
            self._counts["coalesced"] += mailbox.coalesced
            self._router.remove(mailbox)
            self._check_idle()

    def watch(self, mailbox: Mailbox, uri: str) -> None:
        """Let a stream that has not ended carry the updates of one more resource."""
        self._router.watch(mailbox, uri)

    def unwatch(self, mailbox: Mailbox, uri: str) -> None:
        """Let it carry them no more."""
        self._router.unwatch(mailbox, uri)

    def end(self, mailbox: Mailbox) -> None:
        """Let the stream read what waits, and end."""
        self._router.remove(mailbox)
        mailbox.close()

    def abandon(self, mailbox: Mailbox) -> None:
        """Nobody can read this any more. Safe from any thread."""
        self._abandoned.append(mailbox)

    def _sweep(self) -> None:
        while self._abandoned:
            self.remove(self._abandoned.popleft())

    def defer(self) -> Callable[[], None]:
        """Make a drain wait until the returned function is called."""
        token = object()
        self._deferred.add(token)

        def handed_over() -> None:
            self._deferred.discard(token)
            self._check_idle()

        return handed_over

    def begin_drain(self) -> None:
        """End every stream gracefully, and let none in any more."""
        self.draining = True
        self._router.clear()
        for mailbox in self._open:
            mailbox.close()
        for scope in list(self._arriving):
            scope.cancel()

    async def wait_idle(self) -> None:
        """Wait until every final result has been handed over."""
        while self.waiting:
            if self._idle is None:
                self._idle = anyio.Event()
            await self._idle.wait()

    def _check_idle(self) -> None:
        if self._idle is not None and not (self._open or self._arriving or self._deferred):
            self._idle.set()
            self._idle = None

    def clear(self) -> None:
        """End what is still open, at once."""
        for mailbox in list(self._open):
            self.remove(mailbox)
