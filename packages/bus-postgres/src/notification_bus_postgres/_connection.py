"""One connection of the bus to PostgreSQL: a session that listens, and one that publishes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import asyncpg

from notification_bus import BrokerConnection, NotPrimaryError, SendRefusedError
from notification_bus_postgres._payload import MAX_PAYLOAD, escaped, transactions
from notification_bus_postgres._servers import Session

__all__ = ["PostgresConnection"]

_T = TypeVar("_T")

# Counting leaves one row to send back instead of one for each body, in half of the time. The commit of a NOTIFY takes
# a lock of the whole server: a session that has given up waiting must not stay in the queue for it.
_NOTIFY: Final = """
SELECT count(pg_notify($1, body)), set_config('lock_timeout', $3, true) FROM unnest($2::text[]) AS body
"""

_HELD: Final = 32 * 1024 * 1024
"""Bytes, about, that wait for the reader; one that is further behind will not catch up."""

_EACH: Final = 64
"""Bytes, about, that a payload takes beyond its characters."""

_BROKEN: Final = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
    asyncpg.InFailedSQLTransactionError,
    asyncpg.ProtocolViolationError,
)
"""Errors after which this session is of no use, although the server keeps it."""


class PostgresConnection(BrokerConnection):
    """Two sessions, since one that is busy with a statement hears nothing. The listening one is always idle.

    Args:
        channel: The name to listen to.
        listening: The session for it.
        publishing: The other one.
        patience: Seconds that a statement may take.
        describe: Turns an error of the server into a line with its remedy.
    """

    max_body = MAX_PAYLOAD

    def __init__(
        self,
        channel: str,
        listening: Session,
        publishing: Session,
        *,
        patience: float,
        describe: Callable[[BaseException], str],
    ) -> None:
        self._channel = channel
        self._listening = listening.connection
        self._publishing, self._pooled = publishing
        self._lock_timeout = str(max(1, int(patience * 500)))
        self._describe = describe
        self._notify: Callable[[str, Sequence[str], str], Awaitable[object]]
        encoding = getattr(self._publishing.get_settings(), "server_encoding", "UTF8")
        self._ascii = encoding not in {"UTF8", "SQL_ASCII"}
        self._arrived: list[str] = []
        self._held = 0
        self._news = asyncio.Event()
        self._failure: Exception | None = None

    async def open(self) -> None:
        """Listen, and prepare to publish."""
        if self._publishing is self._listening:
            raise TypeError("the connection factory returned the same connection twice: make a new one at each call")
        for connection in (self._listening, self._publishing):
            connection.add_termination_listener(self._ended)
        await self._listening.add_listener(self._channel, self._heard)
        if self._pooled:
            # A statement prepared here would be unknown to the next session that the pooler takes.
            self._notify = partial(self._publishing.execute, _NOTIFY)
        else:
            # Without a name, asyncpg would parse it again each time.
            self._notify = (await self._publishing.prepare(_NOTIFY, name="notification_bus")).fetch

    # -- publishing

    async def send(self, bodies: Sequence[bytes]) -> None:
        payloads = [body.decode() for body in bodies]
        if self._ascii:
            payloads = [payload for payload in map(escaped, payloads) if len(payload) <= MAX_PAYLOAD]
        sent = 0
        try:
            for transaction in transactions(payloads):
                await self._run(self._notify(self._channel, transaction, self._lock_timeout))
                sent += len(transaction)
        except asyncpg.ReadOnlySQLTransactionError as exc:
            raise NotPrimaryError(str(exc)) from exc
        except asyncpg.PostgresError as exc:
            if exc.severity_en != "ERROR" or isinstance(exc, _BROKEN):
                raise
            raise SendRefusedError(self._describe(exc), len(bodies) - sent) from exc
        if len(payloads) < len(bodies):
            raise SendRefusedError(
                f"more than {MAX_PAYLOAD} bytes in ASCII, which this database needs since its encoding is not UTF8",
                len(bodies) - len(payloads),
            )

    async def check(self) -> None:
        if await self._run(self._publishing.fetchval("SELECT pg_is_in_recovery()")):
            raise NotPrimaryError("this server has become a standby: what is published on it reaches nobody")

    async def version(self) -> str:
        return f"PostgreSQL {await self._run(self._publishing.fetchval('SHOW server_version'))}"

    async def _run(self, statement: Awaitable[_T]) -> _T:
        try:
            return await statement
        except asyncio.CancelledError:
            # At once: to cancel a statement of an open session, asyncpg would make one more connection.
            self._publishing.terminate()
            raise

    # -- listening

    async def receive(self) -> AsyncIterator[Sequence[str]]:
        while True:
            while not self._arrived:
                if self._failure is not None:
                    raise self._failure
                self._news.clear()
                await self._news.wait()
            batch, self._arrived, self._held = self._arrived, [], 0
            yield batch

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if self._held > _HELD:
            self._fail(ConnectionError(f"{len(self._arrived)} notifications wait to be read: this process is too slow"))
            self._arrived.clear()
        elif isinstance(payload, str):
            self._arrived.append(payload)
            self._held += len(payload) + _EACH
            self._news.set()

    def _ended(self, connection: object) -> None:
        half = "listening" if connection is self._listening else "publishing"
        self._fail(
            ConnectionError(
                f"the {half} session was ended by the server or on the way: a restart, a failover, an administrator"
            )
        )

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        self._news.set()

    async def aclose(self) -> None:
        self._listening.terminate()
        self._publishing.terminate()
        # The event loop closes the sockets in its next turn.
        await asyncio.sleep(0)
