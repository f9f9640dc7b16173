"""The options that are the same words for every bus, as keywords and as a URL's query."""

from dataclasses import dataclass, fields
from sys import float_info
from typing import Final, TypedDict

from notification_bus.errors import BusURLError

__all__ = ["OPTION_NAMES", "BusOptions", "OptionValues", "read_option", "read_switch"]


class OptionValues(TypedDict, total=False):
    """The options of a bus as keywords; what each means is said in `BusOptions`."""

    outbox: int
    buffer: int
    probe_interval: float
    probe_timeout: float
    ready_timeout: float
    close_timeout: float
    backoff_cap: float
    frames: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BusOptions:
    """What every bus can be told. Times are seconds, sizes are numbers of notifications.

    Raises:
        BusURLError: A value is of the wrong type or out of range.
    """

    channel: str
    """The broker-side name. One name is one logical bus: give each server and each environment its own. No default."""

    outbox: int = 10_000
    """Notifications that wait to be sent, while the broker is slow or down; beyond that the oldest is dropped."""

    buffer: int = 1024
    """Notifications that wait to be read, for each subscription; beyond that the oldest is dropped."""

    probe_interval: float = 10.0
    """Seconds between two proofs that what this instance publishes comes back to it."""

    probe_timeout: float = 5.0
    """Seconds that a probe may take before the connection counts as dead; also the limit of one attempt to connect."""

    ready_timeout: float = 10.0
    """Seconds that entering a subscription waits for the broker's confirmation."""

    close_timeout: float = 2.0
    """Seconds that closing may take at most, sending what is queued included."""

    backoff_cap: float = 2.0
    """Longest wait between two connection attempts, in seconds."""

    frames: bool = False
    """Send many notifications in one broker message. Only when every peer on the channel is this library."""

    def __post_init__(self) -> None:
        if not isinstance(self.channel, str) or not self.channel:
            raise BusURLError(
                f"channel is {self.channel!r}: name the channel, one for each server and environment, "
                "as in 'redis://localhost?channel=board'"
            )
        try:
            self.channel.encode()
        except UnicodeEncodeError:
            raise BusURLError(f"channel {self.channel!r} holds a lone surrogate, which no broker can carry") from None
        for name in ("outbox", "buffer"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BusURLError(f"{name} is {value!r}: give a number of notifications, 1 or more")
        for name in _SECONDS:
            value = getattr(self, name)
            # Compared, and not asked for being finite: an integer can be larger than any float.
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= float_info.max:
                raise BusURLError(f"{name} is {value!r}: give a number of seconds above 0")
        if not isinstance(self.frames, bool):
            raise BusURLError(f"frames is {self.frames!r}: give True or False")


_SECONDS: Final = ("probe_interval", "probe_timeout", "ready_timeout", "close_timeout", "backoff_cap")
OPTION_NAMES: Final = tuple(field.name for field in fields(BusOptions))
"""The options of every bus, as they are called in a URL."""


def read_option(name: str, text: str) -> str | int | float | bool:
    """Read the text of an option, as it stands in a URL; the range is checked by `BusOptions`.

    Raises:
        BusURLError: The text cannot be read.
    """
    if name == "channel":
        return text
    if name == "frames":
        return read_switch(name, text)
    try:
        return float(text) if name in _SECONDS else int(text)
    except ValueError:
        raise BusURLError(f"the option {name}={text!r} is not a number") from None


def read_switch(name: str, text: str) -> bool:
    """Read an option that is true or false, as it stands in a URL.

    Raises:
        BusURLError: It is neither.
    """
    switches = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in switches:
        raise BusURLError(f"the option {name}={text!r} is not true or false")
    return switches[text.lower()]
