"""The limits and times of a registry."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, TypedDict

from notification_bus.subscriptions.errors import RegistryOptionError

__all__ = ["RegistryOptionValues", "RegistryOptions"]


class RegistryOptionValues(TypedDict, total=False):
    """The options of a registry as keywords; what each means is said in `RegistryOptions`."""

    max_streams: int
    max_uris: int
    max_uri_length: int
    max_lifetime: float | None
    drain: float
    ready_timeout: float
    gap_spread: float
    gap_interval: float
    sub_resources: bool
    end_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """What a registry can be told. Times are seconds.

    Raises:
        RegistryOptionError: A value is of the wrong type or out of range.
    """

    max_streams: int = 10_000
    """Streams open at once on this node, those that are being opened included."""

    max_uris: int = 1_000
    """URIs that one stream may name. It is also what a stream that nobody reads holds at most, plus the three lists."""

    max_uri_length: int = 2_048
    """Characters of one such URI."""

    max_lifetime: float | None = None
    """Seconds after which a stream ends gracefully, for hosts that bill or limit open requests; `None` for no limit."""

    drain: float = 2.0
    """Seconds that a shutdown waits at most, from its signal on, for the streams to hand over their final results."""

    ready_timeout: float = 10.0
    """Seconds that opening a stream waits for the bus to be ready, independent of the bus's own `ready_timeout`."""

    gap_spread: float = 1.0
    """Seconds over which the streams are told of a gap, so that their clients do not all fetch at once."""

    gap_interval: float = 5.0
    """Least seconds between the beginnings of two such rounds; gaps heard meanwhile make one more at its end."""

    sub_resources: bool = False
    """Report a change of `board://sprint/tasks/1` to a stream that subscribed to `board://sprint`, too."""

    end_empty: bool = False
    """End a stream right after its acknowledgment where nothing of its filter was accepted."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RegistryOptionError(f"{name} is {value!r}: give a whole number, 1 or more")
        for name in _SECONDS:
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or value < 0:
                raise RegistryOptionError(f"{name} is {value!r}: give a number of seconds, 0 or more")
        lifetime: object = self.max_lifetime
        if lifetime is not None and (
            not isinstance(lifetime, int | float)
            or isinstance(lifetime, bool)
            or not isfinite(lifetime)
            or lifetime <= 0
        ):
            raise RegistryOptionError(f"max_lifetime is {lifetime!r}: give a number of seconds above 0, or None")
        for name in ("sub_resources", "end_empty"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise RegistryOptionError(f"{name} is {value!r}: give True or False")


_COUNTS: Final = ("max_streams", "max_uris", "max_uri_length")
_SECONDS: Final = ("drain", "ready_timeout", "gap_spread", "gap_interval")
