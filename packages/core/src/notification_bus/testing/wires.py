"""Wires that are found by themselves: a bus's distribution can offer raw access to its broker's channels."""

from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from notification_bus.errors import BusURLError
from notification_bus.testing.harness import Wire

__all__ = ["GROUP", "WireFactory", "broker_version", "find_wire"]

GROUP: Final = "notification_bus.wires"
"""The entry point group. A name in it is a URL scheme, as in the group of the buses; its object is a `WireFactory`."""


class WireFactory(Protocol):
    """What an entry point of the group names, a class for instance."""

    def from_url(self, url: str, /) -> Wire:
        """A wire to the broker of a bus URL, which has no channel. Nothing is opened before the wire is used.

        The wire may have an `async def version(self) -> str`, which asks the broker for its name and version.
        """
        ...


def find_wire(url: str) -> Wire | None:
    """The wire that the distribution of the URL's bus offers; `None` where it offers none.

    Raises:
        BusURLError: What it offers is no wire.
    """
    scheme = urlsplit(url).scheme
    for point in entry_points(group=GROUP, name=scheme):
        factory: WireFactory = point.load()
        wire = factory.from_url(url)
        if not (callable(getattr(wire, "inject", None)) and callable(getattr(wire, "observe", None))):
            raise BusURLError(
                f"what the entry point {point.value!r} of the group {GROUP} built for {scheme}:// is no wire: "
                "it needs `inject` and `observe`"
            )
        return wire
    return None


async def broker_version(wire: Wire) -> str | None:
    """Name and version of the broker, as it says itself; `None` where the wire cannot tell.

    Raises:
        Exception: Whatever asking raises.
    """
    ask = cast("Callable[[], Awaitable[str]] | None", getattr(wire, "version", None))
    return None if ask is None else await ask()
