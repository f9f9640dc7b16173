"""`NatsBus`: the bus over core NATS, nats-server 2.9 or later."""

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, ClassVar, Final, Self, Unpack, cast
from urllib.parse import quote

import anyio
from nats.aio.client import Client

from notification_bus import BrokerBus, BusURLError
from notification_bus.options import OptionValues
from notification_bus_nats._connection import NatsConnection, OwnConnection, grant
from notification_bus_nats._credentials import CredentialsFile, read_credentials, read_seed
from notification_bus_nats._given import GivenClientConnection
from notification_bus_nats._remedy import remedy
from notification_bus_nats._servers import Pool, Server
from notification_bus_nats._subject import subject_of
from notification_bus_nats._url import read_url

__all__ = ["NatsBus"]

_CLOSING: Final = 0.5
"""Seconds at most for letting go of a connection that did not come about."""


class NatsBus(BrokerBus):
    """A bus over core NATS. Keeps one connection, to one server of the cluster.

    Args:
        servers: One URL or several (`nats://`, `tls://`, `ws://`, `wss://`), each also a list with commas,
            `nats://a:4222,b:4222`. User and password, or a token alone, may stand in them, percent-encoded. Servers
            that the cluster tells of are used as well. Or your own connected client: it is used for as long as it is
            connected, never closed, and reconnects as you have set it; see the README for what that means.
        channel: Names the NATS subject, `subject`; no name is a wildcard.
        name: What the server's monitoring shows for the connection.
        user: With `password`, for servers whose URL has none.
        password: Belongs to `user`.
        token: Instead of them.
        user_credentials: A credentials file (JWT and seed), or `nats.aio.client.RawCredentials` with its content. The
            file is read for each connection.
        nkeys_seed: A file with an NKey seed.
        nkeys_seed_str: The seed itself.
        tls: A context, or a function that makes one for each connection, so that renewed files count. With one, or with
            `tls://`, nothing is ever sent without TLS.
        tls_hostname: The name in the server's certificate, where it is not that in the URL.
        tls_handshake_first: The server begins with TLS.
        connect_timeout: Seconds for one server; then the next is tried.
        dont_randomize: Try the servers in the order given.
        options: See `notification_bus.BusOptions`.

    Raises:
        BusURLError: A URL or an option cannot be used, or a library that it needs is not installed.
        TypeError: `servers` is neither URLs nor a client, or options for connecting came with a client.
    """

    broker: ClassVar[str] = "nats"
    backends: ClassVar[Sequence[str]] = ("asyncio",)

    def __init__(
        self,
        servers: str | Sequence[str] | Client,
        *,
        channel: str,
        name: str = "notification-bus",
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        user_credentials: CredentialsFile | None = None,
        nkeys_seed: str | None = None,
        nkeys_seed_str: str | None = None,
        tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        tls_hostname: str | None = None,
        tls_handshake_first: bool = False,
        connect_timeout: float = 2.0,
        dont_randomize: bool = False,
        **options: Unpack[OptionValues],
    ) -> None:
        secrets = [password, token, nkeys_seed_str]
        self._given: Client | None = None
        if isinstance(servers, Client):
            if any((user, password, token, user_credentials, nkeys_seed, nkeys_seed_str, tls, tls_hostname)):
                raise TypeError("a client that is connected takes no more credentials: give them where you connect it")
            self._given = servers
            address = "a given client"
        else:
            self._pool = _pool(servers, randomize=not dont_randomize)
            address = self._pool.address
            secrets += [server.password or server.user for server in self._pool.named]
            if tls and any(server.scheme == "ws" for server in self._pool.named):
                raise BusURLError("ws:// is without TLS: use wss://, or leave out the options for TLS")
            if any(server.scheme in {"ws", "wss"} for server in self._pool.named) and find_spec("aiohttp") is None:
                raise BusURLError("websockets need a library: pip install 'notification-bus-nats[aiohttp]'")
        shown = [secret for secret in secrets if secret]
        super().__init__(address, channel=channel, secrets=[*shown, *(quote(s, safe="") for s in shown)], **options)
        self.subject: str = subject_of(channel)
        """The NATS subject of the channel."""
        if not connect_timeout > 0:
            raise BusURLError(f"connect_timeout is {connect_timeout!r}: give a number of seconds above 0")
        self._connect_timeout = connect_timeout
        self._user = user
        self._password = password
        self._token = token
        self._user_credentials = user_credentials
        self._nkeys_seed = nkeys_seed
        self._nkeys_seed_str = nkeys_seed_str
        self._tls = tls
        self._tls_hostname = tls_hostname
        self._settings: dict[str, Any] = {
            "name": name,
            "tls_handshake_first": tls_handshake_first,
            "connect_timeout": connect_timeout,
        }
        if (user_credentials or nkeys_seed or nkeys_seed_str) and find_spec("nkeys") is None:
            raise BusURLError("NKeys and credentials files need a library: pip install 'notification-bus-nats[nkeys]'")

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Build from a URL, or a list of them with commas; its query has this library's options, `channel` at least.

        Of the arguments, `name`, `user_credentials`, `nkeys_seed`, `tls_hostname`, `tls_handshake_first`,
        `connect_timeout` and `dont_randomize` can stand there too, and `tls_ca_file`, `tls_cert_file` and
        `tls_key_file` name PEM files.
        """
        servers, found = read_url(url)
        return cls(servers, **found)

    async def connect(self) -> NatsConnection:
        """One try at each server, until one has confirmed the subscription."""
        if self._given is not None:
            given = GivenClientConnection(self._given, self.subject)
            try:
                await given.open()
            except BaseException:
                await _discard(given)
                raise
            return given
        problems: dict[str, Exception] = {}
        for server in self._pool.order():
            # Counted before, so that a try that is cut off counts as well and the next begins with another server.
            server.failures += 1
            try:
                with anyio.fail_after(self._connect_timeout):
                    return await self._open(server)
            except Exception as exc:
                silent = isinstance(exc, TimeoutError) and not str(exc)
                problems[server.address] = (
                    TimeoutError(f"no answer within {self._connect_timeout:g} s") if silent else exc
                )
        *_, last = problems.values()
        if len(problems) == 1:
            raise last
        each = "; ".join(f"{address}: {str(exc) or type(exc).__name__}" for address, exc in problems.items())
        raise ConnectionError(f"none of {len(problems)} servers can be used: {each}") from last

    async def _open(self, server: Server) -> OwnConnection:
        tls = self._tls() if callable(self._tls) else self._tls
        encrypted = server.scheme == "tls" or (server.scheme == "nats" and tls is not None)
        connection = OwnConnection(
            self.subject,
            secure=encrypted and not self._settings["tls_handshake_first"],
            # Of the half of `close_timeout` that the closing of a connection may take.
            grace=0.4 * self.options.close_timeout,
        )
        client = connection.client

        async def discovered() -> None:
            self._pool.discovered(server, client.discovered_servers)

        settings = self._settings | self._credentials(server)
        settings |= {
            "tls": tls,
            "tls_hostname": self._tls_hostname or server.tls_name,
            "discovered_server_cb": discovered,
        }
        try:
            await connection.open(server.url, settings)
        except BaseException as exc:
            connection.lose(exc if isinstance(exc, Exception) else ConnectionError("the connection was given up"))
            await _discard(connection)
            raise
        self._pool.connected(server, client.discovered_servers)
        return connection

    def _credentials(self, server: Server) -> dict[str, Any]:
        settings: dict[str, Any] = {"token": self._token}
        if server.password is not None:
            settings |= {"user": server.user, "password": server.password}
        elif server.user is not None:
            settings |= {"token": server.user}
        elif self._user is not None or self._password is not None:
            settings |= {"user": self._user or "", "password": self._password or ""}
        if self._user_credentials is not None:
            settings["user_credentials"] = read_credentials(self._user_credentials)
        elif self._nkeys_seed is not None:
            settings["nkeys_seed_str"] = read_seed(self._nkeys_seed)
        elif self._nkeys_seed_str is not None:
            settings["nkeys_seed_str"] = self._nkeys_seed_str.strip()
        return settings

    def remedy(self, exc: BaseException) -> str | None:
        """What to do about the errors that nats-py raises."""
        found = remedy(exc, grant(self.subject))
        return found if found or exc.__cause__ is None else remedy(exc.__cause__, grant(self.subject))


def _pool(servers: object, *, randomize: bool) -> Pool:
    kind = f"{type(servers).__module__}.{type(servers).__qualname__}"
    urls: list[Any] = [servers] if isinstance(servers, str) else []
    if isinstance(servers, list | tuple):
        urls = list(cast("list[Any]", servers))
    if not urls or not all(isinstance(url, str) for url in urls):
        raise TypeError(
            f"NatsBus cannot use a {kind}: give a URL, a list of URLs, or a connected nats.aio.client.Client"
        )
    return Pool(urls, randomize=randomize)


async def _discard(connection: NatsConnection) -> None:
    with anyio.move_on_after(_CLOSING, shield=True), suppress(Exception):
        await connection.aclose()
