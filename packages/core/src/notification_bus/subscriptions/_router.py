"""Who hears a change: an index by kind and by URI, so that a notification costs the streams that match."""

from notification_bus.notification import BusNotification
from notification_bus.subscriptions._mailbox import Mailbox
from notification_bus.subscriptions._methods import LIST_METHODS, Key
from notification_bus.subscriptions._uris import ancestors

__all__ = ["Router"]


class Router:
    """The mailboxes of one node by what they wait for. Synchronous; belongs to one event loop.

    Args:
        sub_resources: Whether a change is reported to those who watch a resource above it, too.
        longest: Characters of the longest URI that a mailbox waits for.
    """

    def __init__(self, *, sub_resources: bool, longest: int) -> None:
        self._sub_resources = sub_resources
        self._longest = longest
        # Dictionaries as ordered sets: the order of delivery is the order of opening, on every run.
        self._lists: dict[str, tuple[int, dict[Mailbox, None]]] = {
            method: (kind, {}) for kind, method in enumerate(LIST_METHODS)
        }
        self._uris: dict[str, dict[Mailbox, None]] = {}

    @property
    def uris(self) -> int:
        """URIs that somebody watches."""
        return len(self._uris)

    def add(self, mailbox: Mailbox) -> None:
        for key in mailbox.keys:
            self._group(key)[mailbox] = None

    def remove(self, mailbox: Mailbox) -> None:
        """Forget a mailbox; one that is not known is left alone."""
        for key in mailbox.keys:
            self._ungroup(key, mailbox)

    def watch(self, mailbox: Mailbox, uri: str) -> None:
        """Let a mailbox wait for one more URI."""
        mailbox.keys = (*mailbox.keys, uri)
        self._group(uri)[mailbox] = None

    def unwatch(self, mailbox: Mailbox, uri: str) -> None:
        """Let a mailbox wait for a URI no more."""
        mailbox.forget(uri)
        self._ungroup(uri, mailbox)

    def clear(self) -> None:
        self._uris.clear()
        for _, group in self._lists.values():
            group.clear()

    def _group(self, key: Key) -> dict[Mailbox, None]:
        return self._lists[LIST_METHODS[key]][1] if isinstance(key, int) else self._uris.setdefault(key, {})

    def _ungroup(self, key: Key, mailbox: Mailbox) -> None:
        if isinstance(key, int):
            self._group(key).pop(mailbox, None)
        elif (group := self._uris.get(key)) is not None:
            group.pop(mailbox, None)
            if not group:
                del self._uris[key]

    def list_changed(self, notification: BusNotification) -> int | None:
        """Tell the streams of a list's kind; how many there are, or `None` for a method that is no list change."""
        found = self._lists.get(notification.method)
        if found is None:
            return None
        kind, group = found
        for mailbox in group:
            mailbox.put(kind, notification)
        return len(group)

    def updated(self, uri: str, notification: BusNotification) -> int:
        """Tell the streams that watch a resource; how many there are."""
        group = self._uris.get(uri, ())
        for mailbox in group:
            mailbox.put(uri, notification)
        if self._sub_resources and self._uris:
            return len(group) + self._updated_below(uri, notification, set(group))
        return len(group)

    def _updated_below(self, uri: str, notification: BusNotification, told: set[Mailbox]) -> int:
        """Tell those who watch something above, each once: under the nearest of the URIs that it watches."""
        before = len(told)
        for above in ancestors(uri, self._longest):
            for mailbox in self._uris.get(above, ()):
                if mailbox not in told:
                    told.add(mailbox)
                    mailbox.put_below(above, uri, notification)
        return len(told) - before

    def is_watched(self, uri: str) -> bool:
        """Whether a change of `uri` would be told to anybody."""
        if uri in self._uris:
            return True
        if not self._sub_resources or not self._uris:
            return False
        return any(above in self._uris for above in ancestors(uri, self._longest))
