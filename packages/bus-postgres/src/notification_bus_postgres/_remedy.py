"""What a user can do about the errors that asyncpg and PostgreSQL raise."""

import ssl
from socket import gaierror
from typing import Final

import asyncpg

__all__ = ["POOLED", "POOLER", "remedy"]

POOLED: Final = (
    "the listening session goes through a connection pooler, and one in transaction mode forgets LISTEN: "
    "give listen_dsn, a DSN that leads to the server without the pooler"
)
POOLER: Final = "a pooler in transaction mode does that too: listen_dsn leads past it"

_REMEDIES: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...]] = (
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
    (
        ssl.SSLCertVerificationError,
        "name the authority with sslrootcert; sslmode=verify-full wants the certificate's own host name",
    ),
    (ssl.SSLError, "check sslmode, and that what listens there is PostgreSQL with TLS"),
    (gaierror, "check the host's name"),
    (ConnectionRefusedError, "nothing listens there: check host and port, and that it runs"),
    (FileNotFoundError, "nothing listens at that socket, or a file of sslrootcert, sslcert or sslkey is not there"),
    (TimeoutError, "check host, port and firewall, and that what listens there is PostgreSQL"),
    (asyncpg.InternalClientError, "what answers there does not speak PostgreSQL's protocol: check the port"),
)


def remedy(exc: BaseException) -> str | None:
    """Half a sentence; `None` where nothing is known."""
    if isinstance(exc, ConnectionError) and "rejected SSL upgrade" in str(exc):
        return "the server has no TLS (sslmode=disable goes without), or is no PostgreSQL: check the port"
    for kinds, text in _REMEDIES:
        if isinstance(exc, kinds):
            return text
    return None if exc.__cause__ is None else remedy(exc.__cause__)
