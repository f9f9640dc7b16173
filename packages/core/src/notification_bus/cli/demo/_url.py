"""The bus's URL, as it was given and as it is used."""

from secrets import token_hex
from urllib.parse import parse_qsl, urlsplit

from notification_bus import OpenableBus, open_bus
from notification_bus.cli._command import CommandError

__all__ = ["is_memory", "open_checked", "with_channel"]


def with_channel(url: str) -> str:
    """The URL with a channel of the demo's own, where it names none: nobody else must hear what is played here.

    Raises:
        CommandError: It is no URL.
    """
    try:
        query = urlsplit(url).query
    except ValueError as exc:
        # The text is not shown: nothing tells which part of it is a password.
        raise CommandError(f"--bus cannot be read as a URL ({exc}); an example is redis://localhost:6379") from exc
    if any(name == "channel" for name, _ in parse_qsl(query, keep_blank_values=True)):
        return url
    # Text is added rather than the URL rebuilt: memory:// would lose its slashes.
    bare = url.partition("#")[0]
    return f"{bare}{'&' if query else '' if bare.endswith('?') else '?'}channel=notification-bus-demo-{token_hex(6)}"


def is_memory(url: str) -> bool:
    """Whether this bus reaches no other process."""
    return urlsplit(url).scheme == "memory"


def open_checked(url: str) -> OpenableBus:
    """The bus of a URL; nothing is connected yet.

    Raises:
        CommandError: The URL is wrong. Says what, and what to do.
    """
    try:
        return open_bus(url)
    except ValueError as exc:  # BusURLError is one, and so is what a client's own parser raises
        raise CommandError(f"--bus: {exc}") from exc
