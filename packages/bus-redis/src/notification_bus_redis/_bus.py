"""`RedisBus`: the bus over Redis 6 or later, or Valkey."""

import inspect
import ssl
from collections.abc import Sequence
from socket import gaierror
from typing import Any, ClassVar, Self, Unpack, cast
from urllib.parse import quote, urlencode, urlsplit

import redis.asyncio as redis
from redis import exceptions
from redis.asyncio.connection import URL_QUERY_ARGUMENT_PARSERS, AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from notification_bus import BrokerBus, BusURLError
from notification_bus.options import OptionValues
from notification_bus.url import redact_url, refuse_unknown, split_url
from notification_bus_redis._connection import RedisConnection, grant

__all__ = ["RedisBus"]

_HANDSHAKE = "in the handshake"
"""Tells a server that hangs up on connecting from one that is lost later: only the first has a remedy."""

_SCHEMES = {"valkey": "redis", "valkeys": "rediss"}

_OVERRIDES: dict[str, Any] = {
    # RESP2 does all that publishing needs, on every server, and is the cheapest to read.
    "protocol": 2,
    # One try for everything: BrokerBus tries again, and says so to its subscriptions.
    "retry": Retry(NoBackoff(), 0),
    # A quiet channel is no failure, and BrokerBus has its own time-outs; on Python 3.11 redis-py's lose cancellations.
    "socket_timeout": None,
    "health_check_interval": 0,
    "decode_responses": False,
}
_DROPPED = (
    "retry_on_error",
    "retry_on_timeout",
    "maint_notifications",
    "oss_cluster_maint",
    "orig_",
    "event_dispatcher",
)
"""Prefixes of settings of a pool that only serve what is overridden, or its accounts."""


class RedisBus(BrokerBus):
    """A bus over Redis 6 or later, or Valkey. Uses two connections of its own, never one of a pool's.

    Args:
        server: A URL as redis-py reads it (`redis://`, `rediss://`, `unix://`, also `valkey://` and `valkeys://`), or
            your own `redis.asyncio` client or connection pool, whose settings are used for connections of the bus's
            own: it is never closed here, and its limit of connections is not touched.
        channel: The Redis channel. Database numbers do not separate channels; names do.
        options: See `notification_bus.BusOptions`.

    Raises:
        BusURLError: The URL cannot be read, or an option in it is unknown.
        TypeError: `server` is something else, such as a cluster's client or a blocking one.
    """

    broker: ClassVar[str] = "redis"
    backends: ClassVar[Sequence[str]] = ("asyncio",)

    def __init__(
        self, server: "str | redis.Redis | ConnectionPool", *, channel: str, **options: Unpack[OptionValues]
    ) -> None:
        if isinstance(server, str):
            self._pool = _pool_of_url(server)
            address = redact_url(server)
        else:
            self._pool = _pool_of_client(server)
            address = _address(self._pool.connection_kwargs)
        secrets = _secrets(self._pool.connection_kwargs)
        super().__init__(address, channel=channel, secrets=secrets, **options)
        try:
            self._make()
        except (TypeError, ValueError, exceptions.RedisError) as exc:
            raise BusURLError(f"redis-py cannot use these settings: {self.describe(exc)}") from None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Build from a URL with this library's options in the query, `channel` at least."""
        base, ours, theirs = split_url(url)
        channel = cast("str", ours.pop("channel", ""))
        return cls(f"{base}?{urlencode(theirs)}" if theirs else base, channel=channel, **cast("OptionValues", ours))

    async def connect(self) -> RedisConnection:
        """One try: both connections, the node's role, and the subscription confirmed."""
        try:
            return await RedisConnection.open(self._make, self.channel)
        except exceptions.ConnectionError as exc:
            exc.add_note(_HANDSHAKE)
            raise

    def _make(self) -> AbstractConnection:
        settings = {k: v for k, v in self._pool.connection_kwargs.items() if not k.startswith(_DROPPED)}
        return self._pool.connection_class(**(settings | _OVERRIDES))

    def remedy(self, exc: BaseException) -> str | None:
        """What to do about the errors that redis-py raises."""
        return _remedy(exc, self.channel)


def _pool_of_url(url: str) -> ConnectionPool:
    _, _, query = split_url(url)  # first: it refuses what cannot be read without showing it
    parts = urlsplit(url)
    url = parts._replace(scheme=_SCHEMES.get(parts.scheme, parts.scheme)).geturl()
    try:
        pool = ConnectionPool.from_url(url)  # pyright: ignore[reportUnknownMemberType]
    except ValueError as exc:
        raise BusURLError(f"{redact_url(url)}: {exc}") from None
    accepted = set(URL_QUERY_ARGUMENT_PARSERS)
    for base in pool.connection_class.__mro__:
        accepted.update(inspect.signature(base).parameters)
    refuse_unknown([(name, text) for name, text in query if name not in accepted], "those of redis-py's connections")
    return pool


def _pool_of_client(server: object) -> ConnectionPool:
    if isinstance(server, redis.Redis):
        server = server.connection_pool
    if isinstance(server, ConnectionPool):
        return server
    hint = (
        "a cluster needs none of its own: give the URL of one of its nodes"
        if "Cluster" in type(server).__name__
        else ("give a URL, a redis.asyncio.Redis or its connection pool")
    )
    raise TypeError(f"RedisBus cannot use a {type(server).__module__}.{type(server).__qualname__}: {hint}")


def _address(settings: dict[str, Any]) -> str:
    if "path" in settings:
        return f"unix://{settings['path']}"
    return f"redis://{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def _secrets(settings: dict[str, Any]) -> list[str]:
    password = settings.get("password")
    return [str(password), quote(str(password), safe="")] if password else []


def _remedy(exc: BaseException, channel: str) -> str | None:
    native = exc.__cause__ or exc.__context__
    text = str(exc)
    if isinstance(exc, exceptions.NoPermissionError):
        return f"grant it: {grant(channel)}"
    if isinstance(exc, exceptions.AuthenticationError) or "NOAUTH" in text:
        return "check the user and the password in the URL"
    if isinstance(exc, exceptions.BusyLoadingError):
        return "the server loads its data and answers when it is done"
    if isinstance(native, ssl.SSLError):
        return "redis:// is without TLS, rediss:// with; a private authority is named by ssl_ca_certs"
    if isinstance(native, gaierror):
        return "check the host's name"
    if isinstance(native, ConnectionRefusedError | FileNotFoundError):
        return "nothing listens there: check host and port, and that the server runs"
    if isinstance(exc, exceptions.InvalidResponse):
        return "what answers there is no Redis, or wants TLS: check the port, or use rediss://"
    if isinstance(exc, TimeoutError | exceptions.TimeoutError):
        return "the host does not answer: check its address, the firewall, and whether the server wants rediss://"
    if _HANDSHAKE in getattr(exc, "__notes__", ()):
        return "the server hung up at once: check that a Redis is on that port, and whether it wants TLS, rediss://"
    return None
