"""`NatsBus`: the bus over core NATS, nats-server 2.9 or later."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Final, Unpack, cast

import anyio
from nats.aio.client import Client

from notification_bus import BrokerBus, BusURLError
from notification_bus.options import OPTION_NAMES, OptionValues
from notification_bus.url import split_url
from notification_bus_nats._connection import NatsConnection, grant
from notification_bus_nats._servers import Pool, Server
from notification_bus_nats._settings import NatsOptions, client_settings, read_credentials, read_query

__all__ = ["NatsBus"]

LONGEST_SUBJECT: Final = 3800
"""Bytes. A server reads at most 4,096 bytes of a line, which holds more than the subject."""

_ESCAPED: Final = re.compile(
    r"[^A-Za-z0-9_/=:@+~.-]"  # `*` and `>` are wildcards, a leading `$` is the server's, `%` is the escape itself
    r"|(?<![^.])\.|\.(?![^.])"  # a dot that would leave an empty token beside it
)

_NOT_NATS: Final = (
    "expecting info",
    "json parse error",
    "separator is not found",  # a first line that never ends
    "route port",
    "websocket",
    "server handshake",
)
"""In what nats-py and its transports say of a peer that speaks another protocol."""


class NatsBus(BrokerBus):
    """A bus over core NATS. Keeps one connection, to one server of the cluster.

    Args:
        servers: One URL or several (`nats://`, `tls://`, `ws://`, `wss://`), each also a list with commas,
            `nats://a:4222,b:4222`. User and password, or a token alone, may stand in them, percent-encoded. Servers
            that the cluster announces are used as well.
        channel: Names the NATS subject, `subject`; no name is a wildcard.
        options: Those of every bus, see `notification_bus.BusOptions`, and those of `nats.connect`, see `NatsOptions`.

    Raises:
        BusURLError: A URL or an option cannot be used, or a library that it needs is not installed.
        TypeError: `servers` is something else, such as a connected client, or an option is one that the bus sets.
    """

    broker: ClassVar[str] = "nats"
    backends: ClassVar[Sequence[str]] = ("asyncio",)
    tls_help: ClassVar[str] = (
        "tls_ca_file or tls names the authority, tls_cert_file and tls_key_file the client's certificate, tls_hostname "
        "the name in the server's"
    )

    def __init__(self, servers: str | Sequence[str], *, channel: str, **options: Unpack[NatsOptions]) -> None:
        urls, query = _read(servers)
        self._settings = client_settings({**query, **options})
        self._pool = Pool(urls, randomize=not self._settings.get("dont_randomize"))
        schemes = {server.scheme for server in self._pool.named}
        if "tls" in self._settings and "ws" in schemes:
            raise BusURLError("ws:// is without TLS: use wss://, or leave out the options for TLS")
        if schemes & {"ws", "wss"} and find_spec("aiohttp") is None:
            raise BusURLError("websockets need a library: pip install 'notification-bus-nats[aiohttp]'")
        secrets = [self._settings.get(name) for name in ("password", "token", "nkeys_seed_str")]
        secrets += [server.password or server.user for server in self._pool.named]
        super().__init__(
            ",".join(server.url for server in self._pool.named),
            channel=channel,
            secrets=[str(secret) for secret in secrets if secret],
            **cast("OptionValues", {name: value for name, value in options.items() if name in OPTION_NAMES}),
        )
        self.subject: str = subject_of(channel)
        """The NATS subject of the channel."""

    async def connect(self) -> NatsConnection:
        """One try at one server, with the subscription confirmed; a server that failed is tried last."""
        server = self._pool.next()
        limit = float(self._settings["connect_timeout"])
        try:
            with anyio.fail_after(limit):
                return await self._open(server)
        except Exception as exc:
            silent = isinstance(exc, TimeoutError) and not str(exc)
            said = f"no answer within {limit:g} s" if silent else str(exc) or type(exc).__name__
            if len(self._pool) > 1:
                raise ConnectionError(f"{server.address}: {said}") from exc
            if silent:
                raise TimeoutError(said) from exc
            raise

    async def _open(self, server: Server) -> NatsConnection:
        settings = self._settings_for(server)
        encrypted = server.scheme == "tls" or (server.scheme == "nats" and "tls" in settings)

        def discovered(client: Client) -> None:
            self._pool.discovered(server, client.discovered_servers)

        connection = NatsConnection(
            self.subject,
            discovered,
            secure=encrypted and not settings["tls_handshake_first"],
            # Of the half of `close_timeout` that the closing of a connection may take.
            grace=0.4 * self.options.close_timeout,
        )
        self._pool.connected(server, await connection.open(server.url, settings))
        return connection

    def _settings_for(self, server: Server) -> dict[str, Any]:
        """The keywords for `nats.connect` to that server. Files are read here, so that renewed ones are used."""
        settings = {**self._settings}
        if callable(make := settings.get("tls")):
            settings["tls"] = make()
        if server.tls_name:
            settings.setdefault("tls_hostname", server.tls_name)
        if server.password is not None:
            settings |= {"user": server.user, "password": server.password}
        elif server.user is not None:
            settings |= {"user": None, "password": None, "token": server.user}
        credentials = settings.get("user_credentials")
        if credentials is not None and not isinstance(credentials, tuple):
            settings["user_credentials"] = read_credentials(credentials)
        return settings

    def remedy(self, exc: BaseException) -> str | None:
        """Return what to do about an error of nats-py's, or of the operating system's below it."""
        text = str(exc).lower()
        if "allowed to publish" in text or "allowed to subscribe" in text:
            return f"grant it: {grant(self.subject)}"
        if "authorization violation" in text or "authorization failed" in text or "authentication" in text:
            return "check user and password, token, NKey or credentials file, whichever this server asks for"
        if "offers no tls" in text:
            return "use nats:// and no option for TLS, or turn on TLS in the server"
        if "maximum" in text and "connections" in text:
            return "raise max_connections in the server's configuration, or look for who holds them"
        if "during the handshake" in text:
            return "its log says why: one connection too many, for example"
        if any(part in text for part in _NOT_NATS):
            return "what answers there is no NATS server, or not on this port: clients use 4222 by default"
        if isinstance(exc.__cause__ or exc, TimeoutError):
            return (
                "either nothing is reachable there, or what answers is no NATS server, or one that begins with TLS and "
                "needs tls_handshake_first=true"
            )
        return super().remedy(exc)


def _read(servers: str | Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The URLs of the servers, and the options in the query, which only a single URL or list with commas has."""
    if isinstance(servers, str):
        base, ours, query = split_url(servers if "://" in servers else f"nats://{servers}")
        if ours:
            raise BusURLError(f"{', '.join(ours)} in the URL is for open_bus and from_url; here it is a keyword")
        return [base], read_query(query)
    given: object = servers
    urls = [url for url in servers if isinstance(url, str)] if isinstance(given, list | tuple) else []
    if urls and len(urls) == len(servers):
        return urls, {}
    hint = "give a URL, or a list of URLs"
    if isinstance(given, Client):
        hint += " and its settings as keywords: a client reconnects by itself, which hides a gap"
    kind = type(given)
    raise TypeError(f"NatsBus cannot use a {kind.__module__}.{kind.__qualname__}: {hint}")


def subject_of(channel: str) -> str:
    """The subject of a channel: letters, digits, `_ / = : @ + ~ -` and dots between them stand for themselves.

    Everything else becomes the `%XX` of its UTF-8 bytes, so that two names never share a subject.

    Raises:
        BusURLError: The subject would be longer than servers read.
    """
    subject = _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), channel)
    if len(subject) > LONGEST_SUBJECT:
        raise BusURLError(
            f"the channel's name makes a NATS subject of {len(subject)} bytes, and servers read at most "
            f"{LONGEST_SUBJECT}: choose a shorter one (a character outside ASCII takes 6 bytes or more)"
        )
    return subject
