"""`PostgresBus`: the bus over PostgreSQL's LISTEN and NOTIFY."""

from collections.abc import Awaitable, Sequence
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self, Unpack, cast, runtime_checkable
from urllib.parse import urlencode

import asyncpg

from notification_bus import BrokerBus, BusNotification, BusURLError, EchoLostError, NotificationTooLargeError
from notification_bus.options import OptionValues
from notification_bus.url import split_url
from notification_bus_postgres._connection import PostgresConnection
from notification_bus_postgres._payload import MAX_PAYLOAD, SUFFIX_LIMIT, suffix
from notification_bus_postgres._remedy import POOLED, POOLER, remedy
from notification_bus_postgres._servers import server_of

if TYPE_CHECKING:
    from notification_bus_postgres._servers import Factory

__all__ = ["Executes", "PostgresBus"]

_MAX_NAME: Final = 63

_OTHERS: Final = ("sqlalchemy.", "sqlmodel.", "psycopg", "django.")
"""Packages whose `execute` takes the arguments otherwise."""

_published: Final = count()
"""Of this process, not of a bus: two buses may publish in the same transaction of the caller's."""


@runtime_checkable
class Executes(Protocol):
    """What a notification can be published through: an asyncpg connection, or anything with its `execute`."""

    def execute(self, query: str, /, *args: str) -> Awaitable[object]:
        """Run one statement with `$1`, `$2` … standing for the arguments."""
        ...


class PostgresBus(BrokerBus):
    """A bus over PostgreSQL, any supported version. Uses two connections of its own, never one of a pool's.

    Both go to the primary; of several hosts it is found. A database is a bus of its own: one does not hear another.

    Args:
        server: A DSN (`postgresql://user:password@host:5432/database`), or a function that makes a new asyncpg
            connection at each call and is awaited, for what a DSN cannot say.
        channel: The name given to LISTEN, taken literally; at most 63 bytes.
        listen_dsn: Where to listen, if not at `server`: a DSN that leads to the server without a pooler, or a function
            as above. Publishing works through any pooler.
        options: See `notification_bus.BusOptions`.

    Raises:
        BusURLError: The DSN cannot be read, has an unknown option, or the channel's name cannot be listened to.
        TypeError: `server` or `listen_dsn` is something else, such as a pool.
    """

    broker: ClassVar[str] = "postgres"
    backends: ClassVar[Sequence[str]] = ("asyncio",)

    def __init__(
        self,
        server: "str | Factory",
        *,
        channel: str,
        listen_dsn: "str | Factory | None" = None,
        **options: Unpack[OptionValues],
    ) -> None:
        self._publishing = server_of(server)
        self._listening = self._publishing if listen_dsn is None else server_of(listen_dsn)
        self._pooled = False
        secrets = (*self._publishing.secrets, *self._listening.secrets)
        super().__init__(self._publishing.address, channel=channel, secrets=secrets, **options)
        self.max_body = MAX_PAYLOAD
        if len(channel.encode()) > _MAX_NAME or "\0" in channel:
            raise BusURLError(
                f"channel {channel!r} has {len(channel.encode())} bytes: PostgreSQL takes names of 1 to {_MAX_NAME} "
                "bytes without NUL, and would listen to the beginning of a longer one"
            )

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Build from a DSN with this library's options in the query, `channel` at least; also `listen_dsn`, encoded."""
        base, ours, query = split_url(url)
        channel = cast("str", ours.pop("channel", ""))
        listen_dsn = dict(query).get("listen_dsn")
        theirs = urlencode([(name, value) for name, value in query if name != "listen_dsn"])
        dsn = f"{base}?{theirs}" if theirs else base
        return cls(dsn, channel=channel, listen_dsn=listen_dsn, **cast("OptionValues", ours))

    async def publish(self, notification: BusNotification, *, connection: Executes | None = None) -> None:
        """Queue a notification for every subscription of every replica, this one included, and return.

        Never waits for the broker and never raises for its troubles. A caller cancelled in here has published.

        Args:
            notification: What to publish.
            connection: Publish in the transaction that is open on this connection instead: every replica gets the
                notification when it is committed, nobody when it is rolled back. Without an open transaction it is
                sent at once. The connection must lead to the database that the bus listens to.

        Raises:
            NotificationTooLargeError: The body has more than `max_body` bytes, in a transaction 12 bytes less: there it
                gets white space at its end, since PostgreSQL delivers one of several equal bodies only.
            BusClosedError: The bus is not open.
            Exception: With `connection`, whatever it raises.
        """
        if connection is None:
            await super().publish(notification)
            return
        self._check_open()
        _check_executes(connection)
        await connection.execute("SELECT pg_notify($1, $2)", *self.pg_notify_arguments(notification))
        self._ledger.counters["published"] += 1

    def pg_notify_arguments(self, notification: BusNotification) -> tuple[str, str]:
        """The two arguments of `pg_notify` that publish a notification, for use with any client of PostgreSQL.

        With psycopg, for instance: `cursor.execute("SELECT pg_notify(%s, %s)", bus.pg_notify_arguments(n))`. The bus
        need not be open. Call it for each publishing: equal bodies of one transaction must differ in their white space.

        Raises:
            NotificationTooLargeError: The body has more than 7,987 bytes.
        """
        body = notification.encode()
        if len(body) > MAX_PAYLOAD - SUFFIX_LIMIT:
            raise NotificationTooLargeError(len(body), MAX_PAYLOAD - SUFFIX_LIMIT)
        return self.channel, body.decode() + suffix(next(_published))

    async def connect(self) -> PostgresConnection:
        """One try: both sessions on the primary, and the server has confirmed that it listens."""
        connection = await PostgresConnection.open(
            self.channel, self._listening, self._publishing, self.options.probe_timeout
        )
        self._pooled = connection.pooled
        return connection

    def remedy(self, exc: BaseException) -> str | None:
        """What to do about the errors that asyncpg and PostgreSQL raise."""
        if isinstance(exc, EchoLostError):
            return POOLED if self._pooled else POOLER
        return remedy(exc)


def _check_executes(connection: object) -> None:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if isinstance(connection, asyncpg.Pool):
        raise TypeError("a pool publishes outside of your transaction: give the connection that has it open")
    if kind.startswith(_OTHERS) or not isinstance(connection, Executes):
        raise TypeError(
            f"cannot publish through a {kind}, which has no asyncpg-like execute(query, *args): let it execute "
            "SELECT pg_notify(…, …) itself, with the two values of bus.pg_notify_arguments(notification)"
        )
