"""Taps: functions that are called with the changes that reach this node, coalesced and at a bounded pace."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from notification_bus._floodlog import FloodLog
from notification_bus._loops import BackgroundTask
from notification_bus.notification import BusNotification
from notification_bus.subscriptions._keys import LIST_METHODS, Key

__all__ = ["MAX_PENDING", "Tap", "Taps"]

_logger = logging.getLogger("notification_bus.subscriptions")

Tap: TypeAlias = Callable[[BusNotification], None]

MAX_PENDING: Final = 4096
"""Different URIs, beyond those that taps have named, that wait at most. More of them are told as a gap."""

_MAX_KNOWN: Final = 1024
"""URIs remembered for taps that name none; the one updated longest ago is forgotten first."""

_PAUSE: Final = 0.02
"""Seconds of a round, in which each change is told once: at once when it comes first, and in the next round, once for
all, when it comes again."""

_TURNS: Final = 8
"""Turns of the event loop after each change.

The MCP SDK's listener only appends to its stream's buffer, and ends the stream at 1,024; the stream's task needs some
turns to write one event. Turns rather than seconds, since they last longer when many streams have something to write.
"""


class Taps:
    """The taps of one node. Belongs to one event loop.

    Keyed by tokens: the same function may be registered more than once.

    Args:
        counts: Where `delivered`, `coalesced` and `tap_errors` are counted.
        floods: Warns of functions that raise.
        longest: Length of the longest URI that is remembered.
    """

    def __init__(self, counts: Counter[str], floods: FloodLog, longest: int) -> None:
        self._counts = counts
        self._floods = floods
        self._longest = longest
        self._all: dict[object, Tap] = {}
        self._unfiltered: dict[object, None] = {}
        self._by_uri: dict[str, dict[object, None]] = {}
        self._known: dict[str, None] = {}
        self._pending: dict[Key, BusNotification | None] = {}
        self._wake: anyio.Event
        self._task: BackgroundTask | None = None

    def __len__(self) -> int:
        return len(self._all)

    def add(self, tap: Tap, uris: Iterable[str] | None) -> Callable[[], None]:
        """Register a tap; return a function that removes it, which may be called any number of times."""
        token = object()
        named = None if uris is None else frozenset(uris)
        self._all[token] = tap
        if named is None:
            self._unfiltered[token] = None
        for uri in named or ():
            self._by_uri.setdefault(uri, {})[token] = None

        def remove() -> None:
            if self._all.pop(token, None) is None:
                return
            self._unfiltered.pop(token, None)
            for uri in named or ():
                self._by_uri[uri].pop(token, None)
                if not self._by_uri[uri]:
                    del self._by_uri[uri]

        return remove

    def is_watched(self, uri: str) -> bool:
        """Return whether a tap would be told of a change of `uri`."""
        return uri in self._by_uri or bool(self._unfiltered)

    def put(self, key: Key, notification: BusNotification) -> int:
        """Note a change that came from the bus; return how many taps it concerns."""
        if isinstance(key, str) and len(key) <= self._longest:
            self._known.pop(key, None)
            self._known[key] = None
            if len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]
        if not self._all:
            return 0
        concerned = sum(1 for _ in self._concerned(key))
        if key in self._pending:
            self._counts["coalesced"] += concerned
        elif concerned and key not in self._by_uri and len(self._pending) >= MAX_PENDING + len(self._by_uri):
            self._counts["gaps"] += 1
            self._floods.add("taps", f"more than {MAX_PENDING} resources wait for the taps: they are told of a gap")
            self._pending.clear()
            self.put_everything()
            return concerned
        if concerned:
            self._pend(key, notification)
        return concerned

    def put_everything(self) -> None:
        """Note that everything may have changed: the lists, the URIs that taps have named, and those remembered."""
        if self._all:
            known = self._known if self._unfiltered else ()
            for key in (*range(len(LIST_METHODS)), *self._by_uri, *known):
                self._pend(key, None)

    def _pend(self, key: Key, notification: BusNotification | None) -> None:
        self._pending[key] = notification
        if self._task is None or self._task.done:
            self._wake = anyio.Event()
            self._task = BackgroundTask(self._run, "notification_bus.subscriptions taps")
        self._wake.set()

    def _concerned(self, key: Key) -> Iterator[object]:
        if isinstance(key, int):
            yield from self._all
        else:
            yield from self._by_uri.get(key, ())
            yield from self._unfiltered

    async def _run(self) -> None:
        """Tell what waits. Runs only while something waits, and for one round after it."""
        while self._pending:
            with anyio.move_on_after(_PAUSE):
                await self._run_round()
            self._floods.flush()

    async def _run_round(self) -> None:
        told: set[Key] = set()
        while True:
            self._wake = anyio.Event()
            for key in [key for key in self._pending if key not in told]:
                if key not in self._pending:  # an overflow meanwhile
                    continue
                # Told and removed in one step: the round may end at any of the turns.
                told.add(key)
                self._tell(key, self._pending.pop(key))
                for _ in range(_TURNS):
                    await checkpoint()
            await self._wake.wait()

    def _tell(self, key: Key, notification: BusNotification | None) -> None:
        for token in list(self._concerned(key)):
            tap = self._all.get(token)
            if tap is None:  # removed by one that was called before it
                continue
            try:
                tap(_bare(key) if notification is None else notification)
            except Exception as exc:
                self._counts["tap_errors"] += 1
                _logger.debug("a tap raised", exc_info=exc)
                self._floods.add("tap", f"a tap raised {exc!r}; the others were told all the same")

    async def aclose(self) -> None:
        """Tell nothing more."""
        self._all.clear()
        if self._task is not None:
            self._task.cancel()
            await self._task.wait()


def _bare(key: Key) -> BusNotification:
    """Return the notification of a change that is only known by its key."""
    return BusNotification(LIST_METHODS[key]) if isinstance(key, int) else BusNotification.resource_updated(key)
