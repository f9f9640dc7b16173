"""The servers of a cluster: as URLs name them, as other servers report them, and in which order to try them."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import shuffle
from typing import Final
from urllib.parse import ParseResult, SplitResult, unquote, urlsplit

from notification_bus import BusURLError

__all__ = ["Pool", "Server"]

SCHEMES: Final = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
"""What a server's URL can start with, and the port where it names none."""

_ESCAPE_HINT: Final = "(in a user's name or a password, characters such as '/', '#', '@' and ',' are written as %2F …)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server. Its `url` is without the credentials."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user: str | None = None
    """A token where there is no password."""
    password: str | None = None
    tls_name: str | None = None
    """The name in its certificate, where another server has told of it by its bare address."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"


class Pool:
    """The servers in the order of trying: those that were named, and those that the connected one has told of.

    Args:
        urls: Each of them one server or a list with commas. Scheme and credentials of the first of a list hold for the
            rest of it.
        randomize: Spread instances over the servers; otherwise they are tried in the order given.

    Raises:
        BusURLError: One cannot be read. Shows nothing that could be a password.
    """

    def __init__(self, urls: Sequence[str], *, randomize: bool = True) -> None:
        self.named: Sequence[Server] = [server for url in urls for server in _read(url)]
        if not self.named:
            raise BusURLError("no server is named: give a URL, as in 'nats://localhost:4222'")
        self._order = list(self.named)
        if randomize:
            shuffle(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def next(self) -> Server:
        """The server to try now. It goes to the end of the list, whether the try succeeds, fails or is cut off."""
        server = self._order.pop(0)
        self._order.append(server)
        return server

    def connected(self, server: Server, others: Iterable[ParseResult]) -> None:
        """Note the connected server and those that it announces; what another server announced is forgotten."""
        self._order = [known for known in self._order if known == server or known in self.named]
        self.discovered(server, others)

    def discovered(self, source: Server, others: Iterable[ParseResult]) -> None:
        """Add servers that a connected one has told of. They take its scheme and credentials."""
        known = {server.address for server in self._order}
        for other in others:
            if other.hostname is None or other.port is None:
                continue
            found = replace(source, host=other.hostname, port=other.port, path="", tls_name=None)
            if _is_ip(found.host):
                found = replace(found, tls_name=source.tls_name or source.host)
            if found.address not in known:
                known.add(found.address)
                self._order.append(found)


def _read(url: str) -> list[Server]:
    servers: list[Server] = []
    for text in map(str.strip, url.split(",")):
        scheme = servers[0].scheme if servers else "nats"
        try:
            server = _server(urlsplit(text if "://" in text else f"{scheme}://{text}"))
        except BusURLError:
            raise
        except ValueError:
            # The native text may show the part of the URL with the password in it.
            raise BusURLError(f"the host or port of a NATS server cannot be read {_ESCAPE_HINT}") from None
        if server.user is None and servers:
            server = replace(server, user=servers[0].user, password=servers[0].password)
        servers.append(server)
    return servers


def _server(parts: SplitResult) -> Server:
    scheme = parts.scheme
    if scheme not in SCHEMES:
        raise BusURLError(f"a NATS server's URL starts with {', '.join(f'{s}://' for s in SCHEMES)}")
    if not parts.hostname:
        raise BusURLError(f"a NATS server's URL names no host {_ESCAPE_HINT}")
    websocket = scheme in {"ws", "wss"}
    if parts.query or parts.fragment or (parts.path.strip("/") and not websocket):
        raise BusURLError(f"a NATS server's URL ends with its port {_ESCAPE_HINT}")
    return Server(
        scheme=scheme,
        host=parts.hostname,
        port=SCHEMES[scheme] if parts.port is None else parts.port,
        path=parts.path if websocket else "",
        # nats-py takes them from a URL without undoing their percent-encoding.
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
