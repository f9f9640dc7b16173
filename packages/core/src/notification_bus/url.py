"""Bus URLs: `open_bus`, which finds the bus for a scheme, and what an adapter needs to read and to show a URL."""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus, urlencode, urlsplit

from notification_bus.bus import OpenableBus
from notification_bus.errors import BusURLError
from notification_bus.options import OPTION_NAMES, read_option

__all__ = [
    "GROUP",
    "open_bus",
    "redact",
    "redact_url",
    "refuse_unknown",
    "split_url",
    "url_secrets",
    "with_options",
]

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
        raise BusURLError(_NO_SCHEME)
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


_NO_SCHEME: Final = "a bus URL starts with a scheme, as in 'redis://localhost:6379?channel=board'"
_SERVER: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)")
_NEXT_SERVER: Final = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_HOST: Final = re.compile(r"(\[[^]]*\]|[^:\[\]]*)(:[0-9]{0,5})?")
_SECRET_OPTION: Final = re.compile(r"(?:passw(?:or)?d|passphrase|pwd|secret|token|seed_str|api_?key)$", re.IGNORECASE)

_SHORT: Final = 4
"""A secret of fewer characters is redacted only where it stands as a word of its own: every text has an `a` in it."""


class _Server(NamedTuple):
    scheme: str
    netloc: str
    path: str

    def __str__(self) -> str:
        # Not `urlunsplit`, which takes the two slashes from a URL without a host, such as a Unix socket's.
        return f"{self.scheme}://{self.netloc}{self.path}"


def _split(url: str) -> tuple[list[_Server], str]:
    """Return the servers of a URL, one or a list with commas such as `nats://a,nats://b`, and the query."""
    head, _, query = re.sub(r"[\t\r\n]", "", url).lstrip().partition("?")
    found = [_SERVER.fullmatch(text) for text in _NEXT_SERVER.split(head)]
    if not _SERVER.match(head):
        # The text itself is not shown: without a scheme nothing tells which part of it is a password.
        raise BusURLError(_NO_SCHEME)
    servers = [_Server(match[1].lower(), match[2], match[3]) for match in found if match]
    # A password with a slash, a question mark or a number sign cuts the URL there: what is left looks like a port,
    # or the path has the @ in it. A channel with a number sign would lose its end, and meet others.
    if "#" in url or None in found or not all(map(_readable, servers)):
        raise BusURLError(
            "the URL cannot be read: percent-encode the special characters of the user, the password and the options, "
            "as %40 for @, %2F for / and %23 for #; and a port is a number"
        )
    return servers, query


def _readable(server: _Server) -> bool:
    userinfo, at, hosts = server.netloc.rpartition("@")
    if server.netloc and "@" in server.path:
        return False
    for host in hosts.split(","):
        try:
            # Refuses characters that Unicode normalization turns into delimiters. One host at a time: with brackets
            # the standard library takes no list.
            urlsplit(f"//{userinfo}{at}{host}")
        except ValueError:
            return False
        if not _HOST.fullmatch(host):
            return False
    return True


def split_url(url: str) -> tuple[str, dict[str, str | int | float | bool], list[tuple[str, str]]]:
    """Take a bus URL apart.

    Returns:
        The URL without its query (one server, or a list with commas), this library's options in the query, and the
        rest of the query, which is the broker client's.

    Raises:
        BusURLError: It cannot be read, or an option stands twice or cannot be read.
    """
    servers, text = _split(url)
    try:
        query = parse_qsl(text, keep_blank_values=True, errors="strict")
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
            ours[name] = read_option(name, text)
    return ",".join(map(str, servers)), ours, theirs


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
    servers, query = _split(url)
    if servers[-1].netloc and "@" in query:
        # A question mark in the password may have cut it there: what stands for the host is a part of it.
        return f"{servers[0].scheme}://***"
    return ",".join(str(server._replace(netloc=server.netloc.rpartition("@")[2])) for server in servers)


def with_options(url: str, **options: str | float) -> str:
    """Return the URL with options added to its query, such as `channel="board"`."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(options)}"


def url_secrets(url: str, *, tokens: bool = False) -> list[str]:
    """Return what must never be shown of a URL: its passwords and secret options, as written and decoded.

    Args:
        url: One server or a list, with a query.
        tokens: A user without a password is a token, as in `nats://token@host`, and secret as well.

    Raises:
        BusURLError: It cannot be read.
    """
    servers, query = _split(url)
    written: list[str] = []
    for server in servers:
        # Both the whole, where a password has an @ or a comma in it, and that of each host of a list.
        for part in (server.netloc, *server.netloc.split(",")):
            user, _, password = part.rpartition("@")[0].partition(":")
            written.append(password or (user if tokens else ""))
    for option in query.split("&"):
        name, _, text = option.partition("=")
        if _SECRET_OPTION.search(unquote_plus(name)):
            written.append(text)
    return list(dict.fromkeys(form for text in written if text for form in (text, unquote(text), unquote_plus(text))))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each of the secrets replaced by `***`: as it is, percent-encoded, and as `repr` shows it."""
    forms = {
        form
        for secret in filter(None, secrets)
        for form in (secret, quote(secret, safe=""), quote(secret), quote_plus(secret), repr(secret)[1:-1])
    }
    if not forms:
        return text
    # The longest first: a secret may begin with another. Without regard to case: nats-py turns texts into lower case.
    patterns = [
        re.escape(form) if len(form) >= _SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(forms, key=len, reverse=True)
    ]
    return re.sub("|".join(patterns), "***", text, flags=re.IGNORECASE)
