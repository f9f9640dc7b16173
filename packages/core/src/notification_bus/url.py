"""`open_bus`: from a URL to a bus, found by the URL's scheme among the installed distributions."""

import re
from importlib.metadata import entry_points
from typing import Final, Protocol

from notification_bus.errors import BusURLError
from notification_bus.lifecycle import OpenableBus

__all__ = ["GROUP", "open_bus"]

GROUP: Final = "notification_bus.buses"
"""The entry point group. A name in it is a URL scheme, its object has a `from_url(url)` that returns a bus."""

_DISTRIBUTIONS: Final = {
    **dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "unix"), "notification-bus-redis"),
    **dict.fromkeys(("nats", "tls", "ws", "wss"), "notification-bus-nats"),
    **dict.fromkeys(("postgresql", "postgres"), "notification-bus-postgres"),
}


_MEMBERS: Final = ("publish", "subscribe", "__aenter__", "__aexit__", "aclose", "wait_ready", "stats")


class _BusFactory(Protocol):
    def from_url(self, url: str, /) -> OpenableBus: ...


def open_bus(url: str) -> OpenableBus:
    """Build the bus that a URL names; nothing is opened before the bus is entered.

    `redis://host:6379?channel=board` needs the distribution `notification-bus-redis`, `nats://…` needs
    `notification-bus-nats`, `postgresql://…` needs `notification-bus-postgres`; `memory://?channel=board` reaches the
    buses of that name in this process and event loop, and is built in.

    Args:
        url: Scheme, address and credentials as the broker's own client reads them; in the query, this library's options
            (see `BusOptions`) and the client's own.

    Raises:
        BusURLError: The scheme is unknown or its distribution not installed, or an option is unknown or unreadable.
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url) if isinstance(url, str) else None
    if found is None:
        # The text itself is not shown: without a scheme nothing tells which part of it is a password.
        raise BusURLError("a bus URL starts with a scheme, as in 'redis://localhost:6379?channel=board'")
    scheme = found[1].lower()
    known = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in known:
        if scheme in _DISTRIBUTIONS:
            raise BusURLError(
                f"{scheme}:// needs a distribution that is not installed: pip install {_DISTRIBUTIONS[scheme]}"
            )
        raise BusURLError(
            f"no bus is known for {scheme}://; known here: {', '.join(sorted(f'{s}://' for s in known))}; "
            f"others to install: {', '.join(sorted(set(_DISTRIBUTIONS.values())))}"
        )
    factory: _BusFactory = known[scheme].load()
    bus = factory.from_url(url)
    if not isinstance(bus, OpenableBus):
        raise BusURLError(
            f"what the entry point {known[scheme].value!r} built for {scheme}:// is no OpenableBus: "
            f"it lacks {', '.join(name for name in _MEMBERS if not hasattr(bus, name))}"
        )
    return bus
