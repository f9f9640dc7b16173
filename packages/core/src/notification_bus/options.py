"""The options that are the same words for every bus, as keywords and as a URL's query."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from sys import float_info
from typing import Final, TypedDict
from urllib.parse import SplitResult, parse_qsl, urlsplit

from notification_bus.errors import BusURLError

__all__ = ["OPTION_NAMES", "BusOptions", "OptionValues", "redact_url", "refuse_unknown", "split_url"]


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

_HOST: Final = re.compile(r"(\[[^]]*\]|[^:\[\]]*)(:[0-9]{0,5})?")


def _read_option(name: str, text: str) -> str | int | float | bool:
    if name == "channel":
        return text
    if name == "frames":
        switches = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in switches:
            raise BusURLError(f"the option frames={text!r} is not true or false")
        return switches[text.lower()]
    try:
        return float(text) if name in _SECONDS else int(text)
    except ValueError:
        raise BusURLError(f"the option {name}={text!r} is not a number") from None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    # A password with a slash, a question mark or a number sign cuts the URL there: what is left looks like a port,
    # or the path has the @ in it. And a channel with a number sign would lose its end without a word, and meet others.
    if (
        parts is None
        or "#" in url
        or not all(map(_HOST.fullmatch, parts.netloc.rpartition("@")[2].split(",")))
        or (parts.netloc and "@" in parts.path)
    ):
        # The standard library's error is not chained: it quotes the part in which the password is.
        raise BusURLError(
            "the URL cannot be read: percent-encode the special characters of the user, the password and the options, "
            "as %40 for @, %2F for / and %23 for #; and a port is a number"
        ) from None
    return parts


def split_url(url: str) -> tuple[str, dict[str, str | int | float | bool], list[tuple[str, str]]]:
    """Take a bus URL apart.

    Returns:
        The URL without its query, this library's options in it, and the rest of the query, which is the broker
        client's.

    Raises:
        BusURLError: It cannot be read, or an option stands twice or cannot be read.
    """
    parts = _split(url)
    try:
        query = parse_qsl(parts.query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise BusURLError("an option in the URL is not UTF-8 once its percent-encoding is undone") from None
    ours: dict[str, str | int | float | bool] = {}
    theirs: list[tuple[str, str]] = []
    for name, text in query:
        if name not in OPTION_NAMES:
            theirs.append((name, text))
        elif name in ours:
            raise BusURLError(f"the option {name} stands twice in the URL: keep one")
        else:
            ours[name] = _read_option(name, text)
    # Not `urlunsplit`, which takes the two slashes from a URL without a host, such as a Unix socket's.
    return f"{parts.scheme}://{parts.netloc}{parts.path}", ours, theirs


def refuse_unknown(names: Mapping[str, str] | list[tuple[str, str]], known: str = "") -> None:
    """Refuse the query options that neither this library nor the broker's client knows.

    Args:
        names: What is left of the query.
        known: What the client would know, for the message.

    Raises:
        BusURLError: There are such options.
    """
    unknown = [name for name, _ in (names.items() if isinstance(names, Mapping) else names)]
    if unknown:
        # What is no name may be the end of a password with a question mark in it.
        shown = [
            repr(n) if re.fullmatch(r"[\w.-]+", n) else "(one that is no name: is a password encoded?)" for n in unknown
        ]
        raise BusURLError(
            f"unknown option {', '.join(shown)} in the URL; "
            f"the options of a bus are {', '.join(OPTION_NAMES)}" + (f", and {known}" if known else "")
        )


def redact_url(url: str) -> str:
    """The URL as it may be shown: without user, password and query, any of which can hold a secret."""
    parts = _split(url)
    if parts.netloc and "@" in parts.query:
        # A question mark in the password may have cut it there: what stands for the host is a part of it.
        return f"{parts.scheme}://***"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
