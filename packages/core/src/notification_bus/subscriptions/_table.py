"""The streams of one node: which are open or opening, what each waits for, and whose final result is awaited."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import anyio

from notification_bus.notification import BusNotification
from notification_bus.subscriptions._keys import LIST_METHODS, Key, ancestors
from notification_bus.subscriptions._mailbox import Mailbox
from notification_bus.subscriptions.errors import SubscriptionLimitError, SubscriptionsClosedError
from notification_bus.subscriptions.options import RegistryOptions

__all__ = ["StreamTable"]


class StreamTable:
    """The mailboxes of open streams, indexed by key, so that a notification costs only the streams that match.

    Streams are identified by their mailbox, never by the client's id: two clients may pick the same. Everything but
    the waiting is synchronous and belongs to one event loop.
    """

    def __init__(self, options: RegistryOptions, counts: Counter[str]) -> None:
        self._options = options
        self._counts = counts
        # Dictionaries as ordered sets: the order of delivery is the order of opening, on every run.
        self._open: dict[Mailbox, None] = {}
        self._by_key: dict[Key, dict[Mailbox, None]]
        self._clear_index()
        self._arriving: set[anyio.CancelScope] = set()
        self._deferred: set[object] = set()
        self._abandoned: deque[Mailbox] = deque()
        self._idle: anyio.Event | None = None
        self.draining: bool = False

    @property
    def streams(self) -> int:
        self._sweep()
        return len(self._open)

    @property
    def arriving(self) -> int:
        return len(self._arriving)

    @property
    def uris(self) -> int:
        """Different URIs that streams watch."""
        return len(self._by_key) - len(LIST_METHODS)

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

    # Routing

    def put(self, key: Key, notification: BusNotification) -> int:
        """Put a change into the mailbox of each stream that waits for it; return how many there are."""
        group = self._by_key.get(key, ())
        for mailbox in group:
            mailbox.put(key, notification)
        if self._options.sub_resources and isinstance(key, str) and self.uris:
            return len(group) + self._put_below(key, notification, set(group))
        return len(group)

    def _put_below(self, uri: str, notification: BusNotification, told: set[Mailbox]) -> int:
        """Put a change into the mailboxes of streams that watch a URI above it, once each, under the nearest one."""
        before = len(told)
        for above in ancestors(uri, self._options.max_uri_length):
            for mailbox in self._by_key.get(above, ()):
                if mailbox not in told:
                    told.add(mailbox)
                    mailbox.put_below(above, uri, notification)
        return len(told) - before

    def is_watched(self, uri: str) -> bool:
        """Return whether any stream would be told of a change of `uri`."""
        if uri in self._by_key:
            return True
        if not self._options.sub_resources or not self.uris:
            return False
        return any(above in self._by_key for above in ancestors(uri, self._options.max_uri_length))

    def watch(self, mailbox: Mailbox, uri: str) -> None:
        """Add a URI to what an open stream waits for."""
        mailbox.keys = (*mailbox.keys, uri)
        self._by_key.setdefault(uri, {})[mailbox] = None

    def unwatch(self, mailbox: Mailbox, uri: str) -> None:
        """Remove a URI from what an open stream waits for."""
        mailbox.forget(uri)
        self._unindex(uri, mailbox)

    def _unindex(self, key: Key, mailbox: Mailbox) -> None:
        if (group := self._by_key.get(key)) is not None:
            group.pop(mailbox, None)
            if not group and isinstance(key, str):
                del self._by_key[key]

    def _clear_index(self) -> None:
        self._by_key = {key: {} for key in range(len(LIST_METHODS))}

    # Opening and closing

    def check_open(self) -> None:
        """Raise `SubscriptionsClosedError` after the signal to shut down."""
        if self.draining:
            raise SubscriptionsClosedError(
                "this server is shutting down and opens no stream any more: listen again, another replica will answer"
            )

    @contextmanager
    def arrival(self, scope: anyio.CancelScope) -> Generator[None]:
        """Hold a place for a stream that has to wait before it can be opened; the shutdown signal ends the waiting.

        Raises:
            SubscriptionsClosedError: The shutdown was signalled before, or meanwhile.
            SubscriptionLimitError: `max_streams` streams are open or opening.
        """
        self.check_open()
        self._sweep()
        allowed = self._options.max_streams
        if (taken := len(self._open) + len(self._arriving)) >= allowed:
            raise SubscriptionLimitError("max_streams", taken, allowed)
        self._arriving.add(scope)
        try:
            with scope:
                yield
            self.check_open()
        finally:
            self._arriving.discard(scope)
            self._check_idle()

    def add(self, mailbox: Mailbox) -> None:
        """Open a stream."""
        self._open[mailbox] = None
        for key in mailbox.keys:
            self._by_key.setdefault(key, {})[mailbox] = None
        self._counts["opened"] += 1

    def remove(self, mailbox: Mailbox) -> None:
        """Forget a stream that has been left. Does nothing for one that is not known."""
        mailbox.discard()
        if mailbox in self._open:
            del self._open[mailbox]
            self._counts["coalesced"] += mailbox.coalesced
            for key in mailbox.keys:
                self._unindex(key, mailbox)
            self._check_idle()

    def end(self, mailbox: Mailbox) -> None:
        """Let a stream end once it has been told what waits."""
        for key in mailbox.keys:
            self._unindex(key, mailbox)
        mailbox.close()

    def abandon(self, mailbox: Mailbox) -> None:
        """Note a stream that was garbage-collected without being left. Safe from any thread."""
        self._abandoned.append(mailbox)

    def _sweep(self) -> None:
        while self._abandoned:
            self.remove(self._abandoned.popleft())

    # Draining

    def defer(self) -> Callable[[], None]:
        """Make a drain wait until the returned function is called."""
        token = object()
        self._deferred.add(token)

        def handed_over() -> None:
            self._deferred.discard(token)
            self._check_idle()

        return handed_over

    def begin_drain(self) -> None:
        """End every stream gracefully and open no more."""
        self.draining = True
        self._clear_index()
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
        """End every stream at once."""
        for mailbox in list(self._open):
            self.remove(mailbox)
