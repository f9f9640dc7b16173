"""`RedisBus`: the bus over Redis 6 or later, or Valkey."""

import inspect
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Unpack

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

_HANDSHAKE: Final = "in the handshake"
"""Marks an error on connecting: a server that hangs up at once has a remedy, one that is lost later has none."""

_OVERRIDES: Final[dict[str, Any]] = {
    # RESP2 does all that publishing needs, on every server, and is the cheapest to read.
    "protocol": 2,
    # One try for everything: BrokerBus tries again, and yields a gap.
    "retry": Retry(NoBackoff(), 0),
    # A quiet channel is no failure, and BrokerBus has its own time-outs; on Python 3.11 redis-py's lose cancellations.
    "socket_timeout": None,
    "health_check_interval": 0,
    "decode_responses": False,
}
_DROPPED: Final = (
    "retry_on_error",
    "retry_on_timeout",
    "maint_notifications",
    "oss_cluster_maint",
    "orig_",
    "event_dispatcher",
)
"""Prefixes of settings of a pool that concern only its retries, its maintenance notifications and its metrics."""


class RedisBus(BrokerBus):
    """A bus over Redis 6 or later, or Valkey. Uses two connections of its own, never those of a pool.

    Args:
        server: A URL as redis-py reads it (`redis://`, `rediss://`, `unix://`, also `valkey://` and `valkeys://`), or
            your own `redis.asyncio` client or connection pool: the bus takes its settings, makes its own connections
            with them, never closes it, and does not count towards its limit of connections.
        channel: The Redis channel. Database numbers do not separate channels; names do.
        options: See `notification_bus.BusOptions`.

    Raises:
        BusURLError: The URL cannot be read, or an option in it is unknown.
        TypeError: `server` is something else, such as a cluster client or a blocking one.
    """

    broker: ClassVar[str] = "redis"
    backends: ClassVar[Sequence[str]] = ("asyncio",)
    tls_help: ClassVar[str] = "redis:// is without TLS, rediss:// with; ssl_ca_certs names a private authority"

    def __init__(
        self, server: "str | redis.Redis | ConnectionPool", *, channel: str, **options: Unpack[OptionValues]
    ) -> None:
        if isinstance(server, str):
            self._pool = _pool_of_url(server)
            address = redact_url(server)
        else:
            self._pool = _pool_of_client(server)
            address = _address(self._pool.connection_kwargs)
        secrets = [str(self._pool.connection_kwargs.get(name) or "") for name in ("password", "ssl_password")]
        super().__init__(address, channel=channel, secrets=secrets, **options)
        try:
            self._make()
        except (TypeError, ValueError, exceptions.RedisError) as exc:
            raise BusURLError(f"redis-py cannot use these settings: {self.describe(exc)}") from None

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
        """Return what to do about an error of redis-py's, or of the operating system's below it."""
        if isinstance(exc, exceptions.NoPermissionError):
            return f"grant it: {grant(self.channel)}"
        if isinstance(exc, exceptions.AuthenticationError) or "NOAUTH" in str(exc):
            return "check the user and the password in the URL"
        if isinstance(exc, exceptions.BusyLoadingError):
            return "the server loads its data and answers when it is done"
        if isinstance(exc, exceptions.InvalidResponse):
            return "what answers there is not Redis, or wants TLS: check the port, or use rediss://"
        found = super().remedy(exc)
        if found is None and _HANDSHAKE in getattr(exc, "__notes__", ()):
            return f"the server hung up at once: check that a Redis is on that port, and its TLS; {self.tls_help}"
        return found


def _pool_of_url(url: str) -> ConnectionPool:
    _, _, query = split_url(url)  # first: it refuses what cannot be read without showing it
    try:
        pool = ConnectionPool.from_url(re.sub("^valkey", "redis", url, flags=re.IGNORECASE))  # pyright: ignore[reportUnknownMemberType]
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
