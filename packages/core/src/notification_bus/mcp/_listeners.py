"""Who listens on this replica, and to which resources."""

from collections.abc import Callable, Iterator
from itertools import chain
from types import FunctionType
from typing import Final, TypeAlias

from mcp.server.subscriptions import ResourceUpdated, ServerEvent
from mcp_types import SubscriptionFilter

__all__ = ["Listener", "Listeners"]

Listener: TypeAlias = Callable[[ServerEvent], None]

_MAX_URIS: Final = 1024
"""Resource URIs remembered for listeners that do not show theirs; the one updated longest ago is forgotten first."""


class Listeners:
    """The table of listeners. Keyed by tokens of its own: the same callable may be registered more than once.

    A listener of the SDK is told only of the resources that its stream has in its filter, so that an update costs
    the streams it is for. That is also what a gap needs: it is about resources whose updates nobody has seen.
    """

    def __init__(self) -> None:
        self._all: dict[object, Listener] = {}
        self._opaque: dict[object, None] = {}
        self._by_uri: dict[str, dict[object, None]] = {}
        self._remembered: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Register; the function that is returned takes the listener away again, any number of times."""
        token = object()
        uris = _uris_of(listener)
        self._all[token] = listener
        if uris is None:
            self._opaque[token] = None
        for uri in uris or ():
            self._by_uri.setdefault(uri, {})[token] = None

        def remove() -> None:
            if self._all.pop(token, None) is None:
                return
            self._opaque.pop(token, None)
            for uri in uris or ():
                self._by_uri[uri].pop(token, None)
                if not self._by_uri[uri]:
                    del self._by_uri[uri]

        return remove

    def clear(self) -> None:
        """Forget the listeners of an event loop that has ended; those of a stopped server are gone already."""
        for table in (self._all, self._opaque, self._by_uri):
            table.clear()

    def note(self, uri: str) -> None:
        """Remember that a resource exists, for the listeners that do not say which they are about."""
        self._remembered.pop(uri, None)
        self._remembered[uri] = None
        if len(self._remembered) > _MAX_URIS:
            del self._remembered[next(iter(self._remembered))]

    def may_watch(self, uri: str) -> bool:
        """Whether a listener is to be told of updates of this resource."""
        return uri in self._by_uri or bool(self._opaque)

    def uris(self) -> list[str]:
        """The resources to report as changed when nobody knows which did."""
        return list(dict.fromkeys(chain(self._by_uri, self._remembered if self._opaque else ())))

    def concerned(self, event: ServerEvent) -> Iterator[Listener]:
        """The listeners to tell. One that is taken away meanwhile is left out."""
        if isinstance(event, ResourceUpdated):
            tokens = [*self._by_uri.get(event.uri, ()), *self._opaque]
        else:
            tokens = [*self._all]
        return (self._all[token] for token in tokens if token in self._all)


def _uris_of(listener: Listener) -> frozenset[str] | None:
    """The resource URIs in the filter of a stream's listener; `None` for a listener that does not show any filter.

    The SDK's seam hands over a bare function, and the filter that it closes over is nowhere else to be had. Reading it
    there can only be missed, not broken, by another version of the SDK: the listener then counts as one that does not
    show its filter, and a test says so.
    """
    if not isinstance(listener, FunctionType):
        return None
    for cell in listener.__closure__ or ():
        try:
            content: object = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
        if isinstance(content, SubscriptionFilter):
            return frozenset(content.resource_subscriptions or ())
    return None
