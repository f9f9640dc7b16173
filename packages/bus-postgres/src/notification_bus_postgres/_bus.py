"""`PostgresBus`: the bus over PostgreSQL's LISTEN and NOTIFY."""

from collections.abc import Awaitable, Sequence
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Unpack, runtime_checkable

import asyncpg

from notification_bus import BrokerBus, BusNotification, BusURLError, EchoLostError, NotificationTooLargeError
from notification_bus.options import OptionValues
from notification_bus_postgres._connection import PostgresConnection
from notification_bus_postgres._payload import MAX_PAYLOAD, SUFFIX_LIMIT, suffix
from notification_bus_postgres._servers import server_of

if TYPE_CHECKING:
    from notification_bus_postgres._servers import Factory

__all__ = ["Executes", "PostgresBus"]

_MAX_NAME: Final = 63

_OTHERS: Final = ("sqlalchemy.", "sqlmodel.", "psycopg", "django.")
"""Packages whose `execute` takes the arguments otherwise."""

_published: Final = count()
"""Of this process, not of a bus: two buses may publish in the same transaction of the caller's."""

_POOLED: Final = (
    "the listening session goes through a connection pooler, and one in transaction mode forgets LISTEN: "
    "give listen_dsn, a DSN that leads to the server without the pooler"
)
_POOLER: Final = "a pooler in transaction mode does that too: listen_dsn leads past it"
_NO_TLS: Final = "the server has no TLS (sslmode=disable goes without), or it is not PostgreSQL: check the port"
_REMEDIES: Final[Sequence[tuple[type[BaseException] | tuple[type[BaseException], ...], str]]] = (
    (asyncpg.InvalidPasswordError, "check the user and the password: in the URL, PGPASSWORD or the password file"),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "check the user's name and the server's pg_hba.conf: whom it lets in, and whether it demands sslmode=require",
    ),
    (asyncpg.InvalidCatalogNameError, "check the database's name at the end of the URL, or create it"),
    (asyncpg.TooManyConnectionsError, "each instance needs two connections of its own: raise the limit"),
    (asyncpg.InsufficientPrivilegeError, "grant it to this user: CONNECT on the database, EXECUTE on pg_notify"),
    (asyncpg.CannotConnectNowError, "the server is starting or stopping, and answers when it is done"),
    (
        (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError),
        "a pooler stands between: let the connection factory use statement_cache_size=0",
    ),
    (
        asyncpg.ProgramLimitExceededError,
        "a session that listens and stays in a transaction holds up the queue: find it in pg_stat_activity",
    ),
    (asyncpg.LockNotAvailableError, "another session's commit keeps the lock that NOTIFY takes: see pg_locks"),
    (asyncpg.ProtocolViolationError, "a pooler says so: see its settings, such as ignore_startup_parameters"),
    (asyncpg.ClientConfigurationError, "check the options of the URL"),
    (asyncpg.InternalClientError, "what answers there does not speak PostgreSQL's protocol: check the port"),
    (FileNotFoundError, "nothing listens at that socket, or a file of sslrootcert, sslcert or sslkey is not there"),
    (TimeoutError, "check host, port and firewall, and that what listens there is PostgreSQL"),
)


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
            as above. Publishing works through any pooler. May stand in the DSN's query, percent-encoded.
        options: See `notification_bus.BusOptions`.

    Raises:
        BusURLError: The DSN cannot be read, has an unknown option, or the channel's name cannot be listened to.
        TypeError: `server` or `listen_dsn` is something else, such as a pool.
    """

    broker: ClassVar[str] = "postgres"
    backends: ClassVar[Sequence[str]] = ("asyncio",)
    tls_help: ClassVar[str] = "sslmode says whether TLS is used, and sslrootcert names a private authority"

    def __init__(
        self,
        server: "str | Factory",
        *,
        channel: str,
        listen_dsn: "str | Factory | None" = None,
        **options: Unpack[OptionValues],
    ) -> None:
        self._publishing = server_of(server)
        listen_dsn = listen_dsn or self._publishing.listen_dsn
        self._listening = self._publishing if listen_dsn is None else server_of(listen_dsn)
        if self._listening is not self._publishing and self._listening.listen_dsn:
            raise BusURLError("listen_dsn has a listen_dsn of its own: it is where to listen")
        self._pooled = False
        secrets = (*self._publishing.secrets, *self._listening.secrets)
        super().__init__(self._publishing.address, channel=channel, secrets=secrets, **options)
        self.max_body = MAX_PAYLOAD
        if len(channel.encode()) > _MAX_NAME or "\0" in channel:
            raise BusURLError(
                f"channel {channel!r} has {len(channel.encode())} bytes: PostgreSQL takes names of 1 to {_MAX_NAME} "
                "bytes without NUL, and would listen to the beginning of a longer one"
            )

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
        """One try: both sessions on a primary, and the server has confirmed that it listens."""
        patience = self.options.probe_timeout
        listening = await self._listening.attach("listen", patience / 2)
        self._pooled = listening.pooled
        opened = [listening]
        try:
            opened.append(await self._publishing.attach("publish", patience / 2))
            connection = PostgresConnection(self.channel, *opened, patience=patience, describe=self.describe)
            await connection.open()
        except BaseException:
            for session in opened:
                session.connection.terminate()
            raise
        return connection

    def remedy(self, exc: BaseException) -> str | None:
        """Return what to do about an error of asyncpg's or the server's, or of the operating system's below it."""
        if isinstance(exc, EchoLostError):
            return _POOLED if self._pooled else _POOLER
        link: BaseException | None = exc
        while link is not None:
            if isinstance(link, ConnectionError) and "rejected SSL upgrade" in str(link):
                return _NO_TLS
            for kinds, text in _REMEDIES:
                if isinstance(link, kinds):
                    return text
            link = link.__cause__
        return super().remedy(exc)


def _check_executes(connection: object) -> None:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if isinstance(connection, asyncpg.Pool):
        raise TypeError("a pool publishes outside of your transaction: give the connection that has it open")
    if kind.startswith(_OTHERS) or not isinstance(connection, Executes):
        raise TypeError(
            f"cannot publish through a {kind}, which has no asyncpg-like execute(query, *args): let it execute "
            "SELECT pg_notify(…, …) itself, with the two values of bus.pg_notify_arguments(notification)"
        )
