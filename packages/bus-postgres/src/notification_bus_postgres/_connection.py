"""One attachment to PostgreSQL: a session that listens, and one that publishes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import asyncpg

from notification_bus import BrokerConnection, NotPrimaryError, SendRefusedError
from notification_bus_postgres._payload import MAX_PAYLOAD, escaped, transactions
from notification_bus_postgres._remedy import remedy
from notification_bus_postgres._servers import Attached, Server

if TYPE_CHECKING:
    from notification_bus_postgres._servers import Connection

__all__ = ["PostgresConnection"]

# Counting leaves one row to send back instead of one for each body, in half of the time. The commit of a NOTIFY takes
# a lock of the whole server: a session that has given up waiting must not go on standing in line for it.
_NOTIFY: Final = """
SELECT count(pg_notify($1, body)), set_config('lock_timeout', $3, true) FROM unnest($2::text[]) AS body
"""

_HELD: Final = 32 * 1024 * 1024
"""Bytes, about, that wait for the reader; one that is further behind will not catch up."""

_EACH: Final = 64
"""Bytes, about, that a payload takes beyond its characters."""


class PostgresConnection(BrokerConnection):
    """Two sessions, since one that is busy with a statement hears nothing. The listening one is always idle."""

    max_body = MAX_PAYLOAD

    def __init__(self, channel: str, patience: float) -> None:
        self._channel = channel
        self._lock_timeout = str(max(1, int(patience * 500)))
        self._listening: Connection | None = None
        self._publishing: Connection | None = None
        self._notify: Callable[[str, Sequence[str], str], Awaitable[object]]
        self._ascii = False
        self._arrived: list[str] = []
        self._held = 0
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self.pooled = False
        """Whether a connection pooler stands between the listening session and its server."""

    @classmethod
    async def open(cls, channel: str, listening: Server, publishing: Server, patience: float) -> "PostgresConnection":
        """Open both sessions.

        Args:
            channel: The name to listen to.
            listening: Where to.
            publishing: Where the other session is made.
            patience: Seconds that all this may take, and that a statement may.
        """
        self = cls(channel, patience)
        tries = listening.tries + publishing.tries
        # With one host each the caller's limit is enough; of more, a dead one must leave time for the next.
        limit = patience / tries if tries > 2 else None
        try:
            await self._listen(await listening.attach("listen", limit))
            await self._prepare(await publishing.attach("publish", limit))
        except BaseException:
            self._terminate()
            raise
        return self

    async def _listen(self, attached: Attached) -> None:
        self._listening, self.pooled = attached
        self._listening.add_termination_listener(self._ended)
        await self._listening.add_listener(self._channel, self._heard)

    async def _prepare(self, attached: Attached) -> None:
        publishing = self._publishing = attached.connection
        if publishing is self._listening:
            raise TypeError("the connection factory returned the same connection twice: make a new one at each call")
        publishing.add_termination_listener(self._ended)
        self._ascii = getattr(publishing.get_settings(), "server_encoding", "UTF8") not in {"UTF8", "SQL_ASCII"}
        if attached.pooled:
            # A statement prepared here would be unknown to the next session that the pooler takes.
            self._notify = partial(publishing.execute, _NOTIFY)
        else:
            # Without a name, asyncpg would have it parsed anew each time.
            self._notify = (await publishing.prepare(_NOTIFY, name="notification_bus")).fetch

    # -- publishing

    async def send(self, bodies: Sequence[bytes]) -> None:
        payloads = [body.decode() for body in bodies]
        if self._ascii:
            payloads = [payload for payload in map(escaped, payloads) if len(payload) <= MAX_PAYLOAD]
        sent = 0
        try:
            for transaction in transactions(payloads):
                await self._notify(self._channel, transaction, self._lock_timeout)
                sent += len(transaction)
        except asyncpg.ReadOnlySQLTransactionError as exc:
            raise NotPrimaryError(str(exc)) from exc
        except asyncpg.PostgresError as exc:
            if exc.severity_en != "ERROR" or isinstance(exc, _BROKEN):
                raise
            advice = remedy(exc)
            reason = f"{type(exc).__name__}: {exc}" + (f" ({advice})" if advice else "")
            raise SendRefusedError(reason, len(bodies) - sent) from exc
        except asyncio.CancelledError:
            self._abandon()
            raise
        if len(payloads) < len(bodies):
            raise SendRefusedError(
                f"more than {MAX_PAYLOAD} bytes in ASCII, which this database needs since its encoding is not UTF8",
                len(bodies) - len(payloads),
            )

    async def check(self) -> None:
        assert self._publishing is not None  # noqa: S101  # opened
        try:
            if await self._publishing.fetchval("SELECT pg_is_in_recovery()"):
                raise NotPrimaryError("this server has become a standby: what is published on it reaches nobody")
        except asyncio.CancelledError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        # At once: with the cancelled statement still its own, asyncpg would open one more connection to cancel it.
        assert self._publishing is not None  # noqa: S101  # opened
        self._publishing.terminate()

    # -- listening

    def receive(self) -> "PostgresConnection":
        return self

    def __aiter__(self) -> "PostgresConnection":
        return self

    async def __anext__(self) -> Sequence[str]:
        while not self._arrived:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        batch, self._arrived, self._held = self._arrived, [], 0
        return batch

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

    # -- closing

    async def aclose(self) -> None:
        self._terminate()
        # The event loop closes the sockets in its next turn.
        await asyncio.sleep(0)

    def _terminate(self) -> None:
        for connection in (self._listening, self._publishing):
            if connection is not None:
                connection.terminate()


_BROKEN: Final = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
    asyncpg.InFailedSQLTransactionError,
    asyncpg.ProtocolViolationError,
)
"""Errors after which this session is of no use, although the server keeps it."""
