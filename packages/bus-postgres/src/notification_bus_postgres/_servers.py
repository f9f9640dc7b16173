"""Where the sessions of a bus are made: at the hosts of a DSN in turn, or by a function of the caller's."""

import asyncio
import inspect
import re
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urlencode

import anyio
import asyncpg

from notification_bus import BusURLError, NotPrimaryError
from notification_bus.url import refuse_unknown, split_url, url_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    # The stubs make it generic, asyncpg itself does not.
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Factory: TypeAlias = Callable[[], Awaitable[Connection]]

__all__ = ["FactoryServer", "Hosts", "Session", "server_of"]

_KNOWN: Final = (
    # Read here.
    *("listen_dsn", "connect_timeout", "application_name"),
    # Read by asyncpg, which would send any other option to the server as a setting.
    *("host", "port", "user", "password", "passfile", "dbname", "database", "service", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib"),
    # Settings of the server that a DSN shared with the application is likely to have; `options` sets any other.
    *("options", "role", "search_path", "statement_timeout"),
)
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_HOST: Final = re.compile(r"(/.*|\[[^\[\]]+\]|[^:\[\]]*)(?::(\d*))?")

# A pooler reports a process id of its own to its clients, since it serves them with changing sessions.
_EXAMINE: Final = """
SELECT pg_is_in_recovery() AS standby, pg_backend_pid() AS pid, CASE WHEN pg_backend_pid() = $1 THEN {settle} END
"""

# For sessions that only the bus uses. The listening one is idle by design; and the server has to notice a dead link,
# since a session that nobody reads holds up the queue of notifications for everybody.
_SETTLE: Final = """
set_config('idle_session_timeout', '0', false) || set_config('tcp_keepalives_idle', '60', false)
|| set_config('tcp_keepalives_interval', '10', false) || set_config('tcp_keepalives_count', '6', false)
|| set_config('tcp_user_timeout', '120000', false)
"""


class Session(NamedTuple):
    """A connection to a server that is not a standby."""

    connection: "Connection"
    pooled: bool
    """Whether a connection pooler stands between."""


@dataclass(slots=True)
class _Host:
    name: str
    port: str
    failures: int = 0

    def __str__(self) -> str:
        return ":".join(filter(None, (self.name, self.port)))


class Hosts:
    """The hosts of a DSN. One is tried at a time, and one that failed goes to the end of the list.

    Both sessions of a bus that share this object are made at the same host, and so is the next one after an outage.

    Args:
        text: The DSN. Errors do not show it: where a DSN cannot be read, nothing tells which part is the password.

    Raises:
        BusURLError: It cannot be read, or has an option that neither asyncpg nor this package knows.
    """

    def __init__(self, text: str) -> None:
        if not text.startswith(("postgresql://", "postgres://")):
            raise BusURLError(
                "a DSN starts with postgresql://, as in 'postgresql://user:password@host:5432/database' (leave out a "
                "driver's name such as +asyncpg; a list of keywords such as 'host=… dbname=…' is not read)"
            )
        base, ours, options = split_url(text)
        if ours:
            raise BusURLError(
                f"{', '.join(ours)} in a DSN: these are options of the bus, so give them as keywords, "
                "or the whole as a URL to PostgresBus.from_url"
            )
        netloc, slash, path = base.partition("://")[2].partition("/")
        userinfo, at, hosts = netloc.rpartition("@")
        if "@" in userinfo:
            raise BusURLError("the DSN cannot be read: in the user and the password, write @ as %40")
        query = {name: value for name, value in options if value}
        _check_options(query)
        self.secrets = url_secrets(text)
        self.listen_dsn = query.pop("listen_dsn", None)
        self._application_name = query.pop("application_name", "notification-bus")
        timeout = int(query.pop("connect_timeout", "0"))
        self._timeout = timeout if timeout > 0 else None
        if query.get("target_session_attrs") != "read-write":
            # Hosts that the DSN names are asked in SQL: asyncpg goes by what the server said in its greeting, which a
            # pooler remembers. asyncpg's own search is for hosts in a service file or in the environment.
            query["target_session_attrs"] = "any" if hosts or "host" in query else "primary"
        self._hosts = deque(_read_hosts(hosts, query))
        self.address = f"postgresql://{','.join(map(str, self._hosts))}{slash}{path}"
        self._dsn = f"postgresql://{userinfo}{at}{slash}{path}?{urlencode(query)}"

    async def attach(self, half: str, share: float) -> Session:
        """Make a session at the first host of the list.

        Args:
            half: What it is for, in a word for `application_name`.
            share: Seconds for one of several hosts without a `connect_timeout`; a single one has the supervisor's.
        """
        host, several = self._hosts[0], len(self._hosts) > 1
        try:
            return await self._attach(host, half, self._timeout or (share if several else None))
        except BaseException as exc:
            host.failures += 1
            self._hosts.rotate(-1)
            if several and isinstance(exc, Exception) and not isinstance(exc, NotPrimaryError):
                raise ConnectionError(f"{host}: {type(exc).__name__}: {exc}") from exc
            raise

    async def _attach(self, host: _Host, half: str, limit: float | None) -> Session:
        name = str(host) or "the default host"
        connecting = asyncpg.connect(
            self._dsn,
            host=host.name.strip("[]") or None,
            port=int(host.port) if host.port else None,
            timeout=limit,  # type: ignore[arg-type]  # the stubs lack None
            # A statement that asyncpg prepares and keeps belongs to a session, which a pooler shares out.
            statement_cache_size=0,
            server_settings={"application_name": f"{self._application_name}:{half}"},
            loop=cast("asyncio.AbstractEventLoop", _RotatingLoop(asyncio.get_running_loop(), host.failures)),
        )
        try:
            return await _examine(await _finish(connecting), name)
        except asyncpg.TargetServerAttributeNotMatched:
            raise _standby(name) from None
        except TimeoutError as exc:
            if limit is None or str(exc):
                raise
            raise TimeoutError(f"no answer within {limit:g} s") from None


class _RotatingLoop:
    """The event loop as asyncpg is to see it: of a host's addresses, another one is tried first after each failure.

    asyncio tries them in the resolver's order without a time limit, so that an unreachable first address would use up
    every attempt. asyncpg given the address instead of the name could not check a certificate or send the name in TLS.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, failures: int) -> None:
        self._loop = loop
        self._failures = failures

    def __getattr__(self, name: str) -> object:
        value: object = getattr(self._loop, name)
        setattr(self, name, value)  # looked up once: asyncpg asks for `call_soon` at each notification
        return value

    async def create_connection(
        self, factory: "Callable[[], asyncio.Protocol]", host: str, port: int, **options: object
    ) -> object:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [host] if len(found) == 1 else [str(info[4][0]) for info in found]
        if options.get("ssl"):
            options["server_hostname"] = host
        connect = cast("Callable[..., Awaitable[object]]", self._loop.create_connection)
        first = self._failures % len(addresses)
        *others, last = addresses[first:] + addresses[:first]
        for address in others:
            with suppress(OSError):
                return await connect(factory, address, port, **options)
        return await connect(factory, last, port, **options)


class FactoryServer:
    """A function of the caller's that makes a new connection at each call."""

    secrets: Final[list[str]] = []
    listen_dsn: Final = None

    def __init__(self, factory: "Factory") -> None:
        self._factory = factory
        self.address = f"postgresql (connections by {getattr(factory, '__qualname__', type(factory).__name__)})"

    async def attach(self, _half: str, _share: float) -> Session:
        """Make a session."""
        connection: object = await _finish(self._factory())
        if isinstance(connection, asyncpg.pool.PoolConnectionProxy):
            connection.terminate()
            raise TypeError(
                "the connection factory returned a pool's connection, which forgets its LISTEN when it is given back: "
                "return one of asyncpg.connect"
            )
        if not isinstance(connection, asyncpg.Connection):
            raise TypeError(f"the connection factory returned a {type(connection).__name__}, not an asyncpg.Connection")
        return await _examine(connection, "the server of the connection factory")


def server_of(source: object) -> Hosts | FactoryServer:
    """Return the server that a DSN or a connection factory stands for.

    Raises:
        TypeError: It is neither, such as a pool.
        BusURLError: The DSN cannot be read.
    """
    if isinstance(source, str):
        return Hosts(source)
    function: object = getattr(source, "func", source)  # of a functools.partial
    if isinstance(getattr(function, "__self__", function), asyncpg.Pool):
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


def _check_options(query: dict[str, str]) -> None:
    known = list(_KNOWN)
    if "service" not in inspect.signature(asyncpg.connect).parameters:
        known.remove("service")  # asyncpg before 0.31
    refuse_unknown(
        [(name, value) for name, value in query.items() if name not in known],
        f"of asyncpg and the server {', '.join(known)} (any other setting of the server goes into "
        "options=-c%20name=value)",
    )
    mode, target = query.get("sslmode", "prefer").replace("_", "-"), query.get("target_session_attrs", "any")
    if mode not in _SSL_MODES:
        raise BusURLError(f"sslmode={mode!r} is none of {', '.join(_SSL_MODES)}")
    if target not in {"any", "primary", "read-write"}:
        raise BusURLError(f"target_session_attrs={target!r}: LISTEN and NOTIFY exist on the primary only")
    timeout = query.get("connect_timeout", "0")
    if not re.fullmatch(r"-?\d+", timeout, re.ASCII):
        raise BusURLError(f"connect_timeout={timeout!r} is not a number of seconds")


def _read_hosts(netloc: str, query: dict[str, str]) -> list[_Host]:
    """Read the hosts before the path, or else those of the query. A part is empty where asyncpg has a default."""
    names = (netloc or query.pop("host", "")).split(",")
    ports = query.pop("port", "").split(",")
    if len(ports) not in {1, len(names)}:
        raise BusURLError(f"the DSN names {len(names)} hosts and {len(ports)} ports: give one port for each, or one")
    hosts: list[_Host] = []
    for name, port in zip(names, ports * (len(names) // len(ports)), strict=True):
        match = _HOST.fullmatch(name)
        if match is None or not (match[1] or len(names) == 1) or not re.fullmatch(r"\d*", port, re.ASCII):
            raise BusURLError("the DSN has a host without a name in its list, or a port that is not a number")
        hosts.append(_Host(unquote(match[1]) if netloc else match[1], match[2] or port))
    return hosts


async def _finish(connecting: "Awaitable[Connection]") -> "Connection":
    """Wait for a connection. Nothing of it is left where that is cancelled."""
    task = asyncio.ensure_future(connecting)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                if not _has_unannounced_transport(task):
                    break
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            task.result().terminate()
        raise
    return task.result()


def _has_unannounced_transport(task: "asyncio.Future[Connection]") -> bool:
    """Return whether the event loop has made a transport that asyncpg has not got yet, for one turn.

    Cancelled then, asyncpg before 0.32 leaves a future whose error nobody retrieves, which the event loop reports.
    """
    step: object = task.get_coro() if isinstance(task, asyncio.Task) else None
    while step is not None:
        if getattr(step, "__name__", "") == "_create_connection_transport":
            return True
        step = getattr(step, "cr_await", None)
    return False


async def _examine(connection: "Connection", name: str) -> Session:
    """Ask a server for its role, and set up a session that is the bus's own."""
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
    return Session(connection, pooled=row["pid"] != pid)


def _standby(name: str) -> NotPrimaryError:
    return NotPrimaryError(
        f"{name} is a standby, and LISTEN and NOTIFY exist on the primary only: name all hosts in the DSN, "
        "as in postgresql://a,b/database, and the primary is found"
    )
