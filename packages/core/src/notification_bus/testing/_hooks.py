"""A harness as the kit sees it: its optional members looked up in one place."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias, cast

from notification_bus.bus import NotificationBus
from notification_bus.testing.check import Check, Need
from notification_bus.testing.harness import Capabilities, Harness, Link, Wire

__all__ = ["Hooks"]

_Build: TypeAlias = Callable[[str], NotificationBus]
_Link: TypeAlias = Callable[[], AbstractAsyncContextManager[Link] | None]

_FAULTS: Final = frozenset[Need]({"delay", "stall", "cut", "deaf"})
_BROKER: Final = _FAULTS | frozenset[Need]({"wire", "process"})


class Hooks:
    """What a harness has, and what of it a check would lack."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.capabilities: Capabilities = harness.capabilities
        self.wire: Wire | None = cast("Wire | None", getattr(harness, "wire", None))
        self.child: str | None = cast("str | None", getattr(harness, "child", None))
        self.broker: str | None = cast("str | None", getattr(harness, "broker", None))
        self.build: _Build | None = cast("_Build | None", getattr(harness, "build", None))
        self._link = cast("_Link | None", getattr(harness, "link", None))

    def link(self) -> AbstractAsyncContextManager[Link] | None:
        """A new link, or `None` where the harness has none."""
        return None if self._link is None else self._link()

    @property
    def names(self) -> list[str]:
        """The hooks that are there, for the report's header."""
        found = {
            "link": self.link() is not None,
            "wire": self.wire is not None,
            "child": self.child is not None,
            "build": self.build is not None,
        }
        return [name for name, is_there in found.items() if is_there]

    def brokerless(self, check: Check) -> bool:
        """Whether the check needs a broker, and this bus has none."""
        return not self.capabilities.has_broker and bool(check.needs & _BROKER)

    def lacking(self, check: Check) -> str | None:
        """Which hook the check needs and the harness has not, in words."""
        if check.needs & _FAULTS and self.link() is None:
            return f"the harness has no `link`, and the check needs {_listed(check.needs & _FAULTS)}"
        if "wire" in check.needs and self.wire is None:
            return "the harness has no `wire`"
        if "process" in check.needs and self.child is None:
            return "the harness has no `child`, so no other process can be started"
        if "build" in check.needs and self.build is None:
            return "the harness has no `build`, so there is no bus that was not started"
        return None


def _listed(needs: frozenset[Need]) -> str:
    return " and ".join(f"`{need}`" for need in sorted(needs))
