"""Where a half's connection comes from: the hosts of a DSN in turn, or a function of the caller's."""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, cast

import anyio
import asyncpg

from notification_bus import NotPrimaryError
from notification_bus_postgres._dsn import Dsn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    # The stubs make it generic, asyncpg itself does not.
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Factory: TypeAlias = Callable[[], Awaitable[Connection]]

__all__ = ["Attached", "FactoryServer", "Hosts", "Server", "server_of"]

# A pooler gives out a process id of its own, since its client's session is on changing connections.
_EXAMINE: Final = """
SELECT pg_is_in_recovery() AS standby, pg_backend_pid() AS pid, CASE WHEN pg_backend_pid() = $1 THEN {settle} END
"""

# For the sessions that are the bus's alone. To be idle is what they are for; and the server is to notice when the link
# to one is dead, since a session that nobody reads holds up the queue of notifications for everybody.
_SETTLE: Final = """
set_config('idle_session_timeout', '0', false) || set_config('tcp_keepalives_idle', '60', false)
|| set_config('tcp_keepalives_interval', '10', false) || set_config('tcp_keepalives_count', '6', false)
|| set_config('tcp_user_timeout', '120000', false)
"""


class Attached(NamedTuple):
    """A connection to a server that is no standby."""

    connection: "Connection"
    pooled: bool
    """Whether a connection pooler stands between."""


class Server(Protocol):
    """Where one half's connection comes from."""

    address: str
    secrets: tuple[str, ...]
    tries: int
    """Connections that may have to be tried before one is found."""

    async def attach(self, half: str, limit: float | None) -> Attached:
        """Make a connection of one's own to a server that is no standby.

        Args:
            half: What the connection is for, in a word for `application_name`.
            limit: Seconds for one host; `None` leaves it to the caller.
        """
        ...


class Hosts:
    """The hosts of a DSN. asyncpg would wait for a dead one for ever, and never come to the next."""

    def __init__(self, dsn: Dsn) -> None:
        self._dsn = dsn
        # The one that was the primary last is tried first, so both halves meet on it, and so does the next try.
        self._first = 0
        self.address = dsn.address
        self.secrets = dsn.secrets
        self.tries = len(dsn.hosts)

    async def attach(self, half: str, limit: float | None) -> Attached:
        limits = [seconds for seconds in (limit, self._dsn.connect_timeout) if seconds is not None]
        problems: list[tuple[str, Exception]] = []
        for offset in range(self.tries):
            position = (self._first + offset) % self.tries
            name, dsn = self._dsn.hosts[position]
            try:
                attached = await self._attach(name, dsn, half, min(limits, default=None))
            except Exception as exc:
                problems.append((name, exc))
            else:
                self._first = position
                return attached
        if len(problems) == 1:
            raise problems[0][1]
        told = "; ".join(f"{name}: {type(exc).__name__}: {exc}" for name, exc in problems)
        standbys = any(isinstance(exc, NotPrimaryError) for _, exc in problems)
        kind = NotPrimaryError if standbys else ConnectionError
        raise kind(f"none of the {self.tries} hosts will do: {told}") from problems[-1][1]

    async def _attach(self, name: str, dsn: str, half: str, limit: float | None) -> Attached:
        expiry = asyncio.timeout(limit)
        try:
            async with expiry:
                connecting = asyncpg.connect(
                    dsn,
                    # Statements that asyncpg prepares and keeps belong to a session, which a pooler shares out.
                    statement_cache_size=0,
                    server_settings={"application_name": f"{self._dsn.application_name}:{half}"},
                )
                return await _examined(await _made(connecting), name)
        except asyncpg.TargetServerAttributeNotMatched:
            raise _standby(name) from None
        except TimeoutError:
            if expiry.expired():
                raise TimeoutError(f"no answer within {limit:g} s") from None
            raise


class FactoryServer:
    """A function of the caller's that makes a connection, a new one at each call."""

    tries = 1
    secrets: tuple[str, ...] = ()

    def __init__(self, factory: "Factory") -> None:
        self._factory = factory
        self.address = f"postgresql (connections by {getattr(factory, '__qualname__', type(factory).__name__)})"

    async def attach(self, half: str, limit: float | None) -> Attached:
        connection: object = await _made(self._factory())
        if isinstance(connection, asyncpg.pool.PoolConnectionProxy):
            connection.terminate()
            raise TypeError(
                "the connection factory returned a pool's connection, which forgets its LISTEN when it is given back: "
                "return one of asyncpg.connect"
            )
        if not isinstance(connection, asyncpg.Connection):
            raise TypeError(f"the connection factory returned a {type(connection).__name__}, not an asyncpg.Connection")
        return await _examined(connection, "the server of the connection factory")


async def _made(connecting: "Awaitable[Connection]") -> "Connection":
    """Wait for a connection, and leave nothing of it when cancelled."""
    task = asyncio.ensure_future(connecting)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                if not _has_untold_transport(task):
                    break
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            task.result().terminate()
        raise
    return task.result()


def _has_untold_transport(task: "asyncio.Future[Connection]") -> bool:
    """Whether the event loop has made a transport that asyncpg has not got yet. It lasts a turn.

    Cancelled just then, asyncpg leaves a future behind whose error nobody retrieves, which the event loop reports.
    """
    step: object = task.get_coro() if isinstance(task, asyncio.Task) else None
    while step is not None:
        if getattr(step, "__name__", "") == "_create_connection_transport":
            return True
        step = getattr(step, "cr_await", None)
    return False


async def _examined(connection: "Connection", name: str) -> Attached:
    pid = connection.get_server_pid()
    settle = _SETTLE if connection.get_server_version() >= (14,) else "NULL"
    try:
        if connection.is_in_transaction():
            raise TypeError("the connection factory returned a connection with an open transaction")
        row = await connection.fetchrow(_EXAMINE.format(settle=settle), pid)
        if row is None or row["standby"]:
            raise _standby(name)
    except BaseException:
        connection.terminate()
        raise
    return Attached(connection, pooled=row["pid"] != pid)


def _standby(name: str) -> NotPrimaryError:
    return NotPrimaryError(
        f"{name} is a standby, and LISTEN and NOTIFY exist on the primary only: name all hosts in the DSN, "
        "as in postgresql://a,b/database, and the primary is found"
    )


def server_of(source: object) -> Server:
    """The server that a DSN or a connection factory stands for.

    Raises:
        TypeError: It is neither, such as a pool.
        BusURLError: The DSN cannot be read.
    """
    if isinstance(source, str):
        return Hosts(Dsn.parse(source))
    function: object = getattr(source, "func", source)  # of a functools.partial
    owner = getattr(function, "__self__", function)
    if isinstance(owner, asyncpg.Pool):
        raise TypeError(
            "PostgresBus cannot use a pool: a connection given back forgets its LISTEN, and the pool's users would "
            "miss two connections. Give a DSN, or a function that calls asyncpg.connect"
        )
    if not callable(source):
        raise TypeError(
            f"PostgresBus cannot use a {type(source).__module__}.{type(source).__qualname__}: give a DSN, or a "
            "function that makes a new asyncpg connection at each call"
        )
    return FactoryServer(cast("Factory", source))
