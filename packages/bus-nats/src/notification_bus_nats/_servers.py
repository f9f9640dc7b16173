"""The servers of a cluster: as URLs name them, as other servers report them, and in which order to try them."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import random
from typing import Final
from urllib.parse import ParseResult, SplitResult, unquote, urlsplit

from notification_bus import BusURLError

__all__ = ["SCHEMES", "Pool", "Server"]

SCHEMES: Final = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
"""What a server's URL can start with, and the port where it names none."""

_ESCAPE_HINT: Final = "(in a user's name or a password, characters such as '/', '#', '@' and ',' are written as %2F …)"


@dataclass(slots=True, kw_only=True)
class Server:
    """One server. Credentials stand here, and never in its `url`."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user: str | None = None
    password: str | None = None
    discovered: bool = False
    tls_name: str | None = None
    """The name in its certificate, where it was discovered by a bare address."""
    failures: int = 0
    """Tries since the last that succeeded."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"


class Pool:
    """The servers that may be tried: those that were named, and those that the present cluster has told of.

    Args:
        urls: Each of them one server or a list with commas. What the first of a list says of
            scheme and credentials holds for the rest of it.
        randomize: Spread instances over the servers; otherwise they are tried in the order given.

    Raises:
        BusURLError: One cannot be read. Shows nothing that could be a password.
    """

    def __init__(self, urls: Sequence[str], *, randomize: bool = True) -> None:
        self._named = [server for url in urls for server in _read(url)]
        if not self._named:
            raise BusURLError("no server is named: give a URL, as in 'nats://localhost:4222'")
        self._discovered: list[Server] = []
        self._last: Server | None = None
        self._randomize = randomize

    @property
    def named(self) -> Sequence[Server]:
        return self._named

    @property
    def address(self) -> str:
        """The named servers as they may be shown."""
        return ",".join(server.url for server in self._named)

    def order(self) -> list[Server]:
        """The servers in the order of trying.

        First those that have not failed, of these those that were named (others may be out of reach from here), and the
        one that was connected last of its kind.
        """
        servers = self._named + self._discovered
        # Sorting is stable: without the dice the order given stays.
        dice = {id(server): random() if self._randomize else 0.0 for server in servers}
        return sorted(servers, key=lambda s: (s.failures, s.discovered, s is self._last, dice[id(s)]))

    def connected(self, server: Server, others: Iterable[ParseResult]) -> None:
        """Note the server that is connected now, and what it tells of its cluster: what others told no longer holds."""
        server.failures = 0
        self._last = server
        self._discovered = [server] if server.discovered else []
        self.discovered(server, others)

    def discovered(self, source: Server, others: Iterable[ParseResult]) -> None:
        """Add servers that a connected one has told of. They take its scheme and credentials."""
        known = {server.address for server in self._named + self._discovered}
        for other in others:
            if other.hostname is None or other.port is None:
                continue
            found = Server(
                scheme=source.scheme,
                host=other.hostname,
                port=other.port,
                user=source.user,
                password=source.password,
                discovered=True,
                tls_name=(source.tls_name or source.host) if _is_ip(other.hostname) else None,
            )
            if found.address not in known:
                known.add(found.address)
                self._discovered.append(found)


def _read(url: str) -> list[Server]:
    servers: list[Server] = []
    for part in url.split(","):
        first = servers[0] if servers else None
        text = part.strip()
        if "://" not in text:
            text = f"{first.scheme if first else 'nats'}://{text}"
        try:
            parts = urlsplit(text)
            server = _server(parts, parts.port)
        except ValueError as exc:
            if isinstance(exc, BusURLError):
                raise
            # The native text may show the part of the URL with the password in it.
            raise BusURLError(f"the host or port of a NATS server cannot be read {_ESCAPE_HINT}") from None
        if server.user is None and first is not None:
            server.user, server.password = first.user, first.password
        servers.append(server)
    return servers


def _server(parts: SplitResult, port: int | None) -> Server:
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise BusURLError(f"a NATS server's URL starts with {', '.join(f'{s}://' for s in SCHEMES)}")
    if not parts.hostname:
        raise BusURLError(f"a NATS server's URL names no host {_ESCAPE_HINT}")
    if parts.query or parts.fragment or (parts.path.strip("/") and scheme in {"nats", "tls"}):
        raise BusURLError(f"a NATS server's URL ends with its port {_ESCAPE_HINT}")
    return Server(
        scheme=scheme,
        host=parts.hostname,
        port=SCHEMES[scheme] if port is None else port,
        path=parts.path if scheme in {"ws", "wss"} else "",
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
