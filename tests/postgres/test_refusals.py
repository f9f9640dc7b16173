"""Bad input and servers that refuse: one clear line with cause and remedy, tried again, and no secret anywhere."""

import asyncio
import inspect
import logging
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from notification_bus import BusNotification, BusNotReadyError
from notification_bus_postgres import PostgresBus
from tests.brokers import Provider, Server, available_flavours, certificates
from tests.brokers._listener import leftovers
from tests.postgres._tools import LIMIT, admin, build, heard, number, sessions, until, with_database

if TYPE_CHECKING:
    from tests.postgres._tools import Connection

SECRET = "hunter2"

_NEEDS_TLS = pytest.mark.skipif(
    "postgres-15" not in available_flavours("postgres"), reason="no PostgreSQL 15 here, and the wheel's has no TLS"
)


@pytest.fixture(autouse=True)
def _no_secret(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.DEBUG, "notification_bus")
    yield
    assert SECRET not in caplog.text


async def refused(bus: PostgresBus, pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    """The cause is raised by `wait_ready` and by entering, logged in one line once, and shows no secret."""
    async with bus:
        await until(lambda: re.search(pattern, bus.stats().last_error or "") is not None, f"the cause: {pattern}")
        with pytest.raises(BusNotReadyError, match=pattern) as caught:
            await bus.wait_ready(0.5)
        assert caught.value.__cause__ is not None
        with pytest.raises(BusNotReadyError):
            async with bus.subscribe():
                pass
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len([line for line in warnings if re.search(pattern, line)]) == 1
        assert all("\n" not in line for line in warnings)
        for text in (repr(bus), repr(bus.stats()), str(caught.value), *warnings):
            assert SECRET not in text


async def test_a_wrong_password_is_told_and_a_mended_one_is_found(
    brokers: Provider, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    with brokers.dedicated("postgres", password="a right one") as server:
        wrong = f"postgresql://postgres:{SECRET}@{server.host}:{server.port}/postgres"
        bus = build(wrong, channel, ready_timeout=0.5)
        await refused(bus, r"InvalidPasswordError.*check the user and the password", caplog)
        async with bus, admin(server.url) as connection:
            await until(lambda: not bus.stats().connected, "a first try")
            await connection.execute(f"ALTER ROLE postgres PASSWORD '{SECRET}'")
            await until(lambda: bus.stats().connected, "the mended password")


async def test_a_user_that_does_not_exist_is_told(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = build(server.url.replace("postgres@", f"nobody:{SECRET}@"), channel, ready_timeout=0.5)
    await refused(bus, r'role "nobody" does not exist.*check the user', caplog)


async def test_a_database_that_does_not_exist_is_told_and_found_when_it_does(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = build(with_database(server.url, channel), channel, ready_timeout=0.5)
    await refused(bus, rf'database "{channel}" does not exist.*or create it', caplog)
    async with bus, admin(server.url) as connection:
        await connection.execute(f'CREATE DATABASE "{channel}"')
        await until(lambda: bus.stats().connected, "the new database")


async def test_nothing_listening_is_told(channel: str, caplog: pytest.LogCaptureFixture) -> None:
    bus = build(f"postgresql://u:{SECRET}@127.0.0.1:9/app", channel, ready_timeout=0.5)
    await refused(bus, r"nothing listens there", caplog)
    bus = build(f"postgresql:///app?host=/nonexistent&password={SECRET}", channel, ready_timeout=0.5)
    await refused(bus, r"nothing listens at that socket", caplog)


async def test_a_host_that_does_not_exist_is_told(channel: str, caplog: pytest.LogCaptureFixture) -> None:
    bus = build(f"postgresql://u:{SECRET}@no-such-host.invalid/app", channel, ready_timeout=0.5, probe_timeout=LIMIT)
    await refused(bus, r"check the host's name", caplog)


@asynccontextmanager
async def talker(greeting: bytes, answer: bytes) -> AsyncGenerator[int]:
    """A server that speaks, but another protocol; its port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while await reader.read(1000):
            writer.write(answer)
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@pytest.mark.parametrize("mode", ["prefer", "disable", "require"])
@pytest.mark.parametrize(
    ("greeting", "answer"),
    [(b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"), (b"INFO {}\r\n", b""), (b"", b"-ERR unknown\r\n"), (b"", b"")],
    ids=["HTTP", "NATS", "Redis", "silence"],
)
async def test_a_server_of_another_protocol_is_told(
    channel: str, caplog: pytest.LogCaptureFixture, greeting: bytes, answer: bytes, mode: str
) -> None:
    async with talker(greeting, answer) as port:
        dsn = f"postgresql://u:{SECRET}@127.0.0.1:{port}/app?sslmode={mode}"
        bus = build(dsn, channel, ready_timeout=0.3, probe_timeout=0.5)
        await refused(bus, r"PostgreSQL|check the port|check host, port", caplog)


async def test_a_real_redis_on_that_port_is_told(
    brokers: Provider, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = brokers.get("redis")
    bus = build(f"postgresql://{server.host}:{server.port}/app", channel, ready_timeout=0.5, probe_timeout=0.5)
    await refused(bus, r"no answer within 0.5 s .*what listens there is PostgreSQL", caplog)


async def test_tls_that_the_server_lacks_is_told(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = build(f"{server.url}?sslmode=require", channel, ready_timeout=0.5)
    await refused(bus, r"rejected SSL upgrade.*sslmode=disable", caplog)


@_NEEDS_TLS
async def test_tls_is_checked_as_sslmode_says(
    brokers: Provider, channel: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 3, item 2: the modes of libpq. And a mismatch is told."""
    tls = certificates(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = certificates(tmp_path / "other")
    with brokers.dedicated("postgres", "postgres-15", tls=tls) as server:
        base = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        for query in (
            "sslmode=require",
            "sslmode=prefer",
            f"sslmode=verify-ca&sslrootcert={tls.ca}",
            f"sslmode=verify-full&sslrootcert={tls.ca}",
        ):
            bus = build(f"{base}?{query}", channel)
            async with bus, heard(bus) as mine:
                await bus.publish(number(1))
                await mine.until(lambda seen: 1 in seen.numbers, query)
        bus = build(f"{base}?sslmode=disable", channel, ready_timeout=0.5)
        await refused(bus, r"no encryption.*sslmode=require", caplog)
        bus = build(f"{base}?sslmode=verify-full&sslrootcert={stranger.ca}", channel, ready_timeout=0.5)
        await refused(bus, r"CERTIFICATE_VERIFY_FAILED.*sslrootcert", caplog)
        bus = build(f"{base}?sslmode=verify-full&sslrootcert={tmp_path}/none.crt", channel, ready_timeout=0.5)
        await refused(bus, r"No such file.*a file of sslrootcert", caplog)


async def test_too_many_connections_are_told(server: Server, channel: str, caplog: pytest.LogCaptureFixture) -> None:
    role = channel.replace("-", "_")
    async with admin(server.url) as connection:
        await connection.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1")
        bus = build(server.url.replace("postgres@", f"{role}@"), channel, ready_timeout=0.5)
        await refused(bus, r"too many connections for role.*two connections", caplog)
        async with bus:
            await connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT 2")
            await until(lambda: bus.stats().connected, "the higher limit")


async def test_a_user_who_may_not_connect_is_told(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    role = channel.replace("-", "_")
    async with admin(server.url) as connection:
        await connection.execute(f"CREATE ROLE {role} LOGIN")
        await connection.execute(f'CREATE DATABASE "{channel}"')
        await connection.execute(f'REVOKE CONNECT ON DATABASE "{channel}" FROM PUBLIC')
    dsn = with_database(server.url.replace("postgres@", f"{role}@"), channel)
    await refused(build(dsn, channel, ready_timeout=0.5), r"permission denied for database.*CONNECT", caplog)


async def test_a_user_who_may_not_notify_listens_and_drops_with_a_warning_until_it_is_granted(
    brokers: Provider, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The one permission that there is; changed under a running bus."""
    with brokers.dedicated("postgres") as server:
        async with admin(server.url) as connection:
            await connection.execute(
                "CREATE ROLE app LOGIN; GRANT EXECUTE ON FUNCTION pg_notify TO app;"
                "REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC"
            )
            bus = build(server.url.replace("postgres@", "app@"), channel)
            async with bus, heard(bus) as mine:
                await bus.publish(number(1))
                await mine.until(lambda seen: 1 in seen.numbers, "it")
                await connection.execute("REVOKE EXECUTE ON FUNCTION pg_notify FROM app")
                await bus.publish(number(2))
                await until(lambda: bus.stats().dropped.get("refused", 0) == 1, "the drop")
                assert "permission denied for function pg_notify" in caplog.text
                assert "EXECUTE on pg_notify" in caplog.text
                await connection.execute("SELECT pg_notify($1, $2)", channel, number(3).encode().decode())
                await mine.until(lambda seen: 3 in seen.numbers, "what others publish")
                await connection.execute("GRANT EXECUTE ON FUNCTION pg_notify TO app")
                await mine.until_recovered(bus, 1000)
                await mine.until(lambda seen: seen.gaps >= 1, "a gap for what was dropped")
                assert bus.stats().reconnects == 0


# -- what libpq's users have


async def test_a_password_file_and_a_service_file_are_read(
    brokers: Provider, channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3, item 2."""
    with brokers.dedicated("postgres", password=SECRET) as server:
        passwords = tmp_path / "pgpass"
        passwords.write_text(f"{server.host}:{server.port}:*:postgres:{SECRET}\n", "utf-8")
        passwords.chmod(0o600)
        services = tmp_path / "services"
        services.write_text(
            f"[board]\nhost={server.host}\nport={server.port}\nuser=postgres\ndbname=postgres\n", "utf-8"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        dsns = [f"postgresql://postgres@{server.host}:{server.port}/postgres?passfile={passwords}"]
        if "service" in inspect.signature(asyncpg.connect).parameters:
            dsns.append(f"postgresql://?service=board&passfile={passwords}")
        for dsn in dsns:
            bus = build(dsn, channel)
            async with bus, heard(bus) as mine:
                await bus.publish(number(1))
                await mine.until(lambda seen: 1 in seen.numbers, dsn)


async def test_a_unix_socket_is_used(brokers: Provider, channel: str) -> None:
    with brokers.dedicated("postgres") as server:
        folder = server._folder  # type: ignore[union-attr]
        bus = build(f"postgresql://postgres@/postgres?host={folder}&port={server.port}", channel)
        async with bus, heard(bus) as mine, admin(server.url) as connection:
            await bus.publish(number(1))
            await mine.until(lambda seen: 1 in seen.numbers, "it")
            assert len(await sessions(connection, channel)) == 2


async def test_settings_of_the_dsn_reach_the_server(server: Server, channel: str) -> None:
    dsn = f"{server.url}?options=-c%20geqo%3Doff%20-c%20statement_timeout%3D7s&search_path=pg_temp&application_name=me"
    connection = await PostgresBus(dsn, channel=channel).connect()
    try:
        names = ("geqo", "statement_timeout", "search_path", "application_name", "idle_session_timeout")
        settings = [await connection._publishing.fetchval("SELECT current_setting($1)", name) for name in names]
        assert settings == ["off", "7s", "pg_temp", "me:publish", "0"]
    finally:
        await connection.aclose()


async def test_a_dead_address_of_a_host_does_not_keep_from_the_next(
    server: Server, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, asyncio tries addresses in the resolver's order; the first would use up every attempt."""
    resolve = socket.getaddrinfo

    def two_addresses(host: object, port: Any, *args: Any, **options: Any) -> list[Any]:
        if host != "db.invalid":
            return resolve(host, port, *args, **options)  # type: ignore[arg-type]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    async with silent("127.0.0.2", server.port):
        dsn = f"postgresql://postgres@db.invalid:{server.port}/postgres"
        bus = build(dsn, channel, probe_timeout=1.0, ready_timeout=LIMIT)
        async with bus, heard(bus) as mine:
            await bus.publish(number(1))
            await mine.until(lambda seen: 1 in seen.numbers, "it")


@asynccontextmanager
async def silent(host: str, port: int) -> AsyncGenerator[None]:
    """A server that accepts connections and says nothing."""

    async def listen_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(listen_only, host, port)
    try:
        yield
    finally:
        listener.close()


# -- connection factories


async def test_a_factory_makes_both_connections_with_whatever_asyncpg_can(server: Server, channel: str) -> None:
    """Issue 3, item 2: for what a DSN cannot say, such as a password that changes."""
    asked = 0

    async def password() -> str:
        nonlocal asked
        asked += 1
        return SECRET

    async def connect() -> "Connection":
        return await asyncpg.connect(server.url, password=password, server_settings={"application_name": f"{channel}:"})

    bus = PostgresBus(connect, channel=channel)
    assert "connect" in repr(bus)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "it")
        assert len(await sessions(connection, channel)) == 2
        assert asked == 2


async def test_a_factory_may_serve_one_half(server: Server, channel: str) -> None:
    bus = PostgresBus(server.url, channel=channel, listen_dsn=lambda: asyncpg.connect(server.url))
    async with bus, heard(bus) as mine:
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "it")


Make = Callable[[str], Awaitable[Any]]


async def pooled(dsn: str) -> Any:
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
    connection = await pool.acquire()
    asyncio.get_running_loop().call_later(1, pool.terminate)
    return connection


async def in_transaction(dsn: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("BEGIN")
    except BaseException:  # cancelled between the two, the bus has not got it and cannot close it
        connection.terminate()
        raise
    return connection


_one: list[Any] = []


async def the_same(dsn: str) -> Any:
    if not _one or _one[0].is_closed():
        _one[:] = [await asyncpg.connect(dsn)]
    return _one[0]


async def nothing(_dsn: str) -> Any:
    return None


async def failing(_dsn: str) -> Any:
    raise LookupError("no credentials today")


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (pooled, "a pool's connection"),
        (in_transaction, "open transaction"),
        (the_same, "same connection twice"),
        (nothing, "a NoneType, not an asyncpg.Connection"),
        (failing, "LookupError: no credentials today"),
    ],
)
async def test_a_factory_that_makes_what_cannot_listen_is_told(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture, make: Make, pattern: str
) -> None:
    """P02, also where the pool was out of sight at construction."""
    before = leftovers()
    bus = PostgresBus(lambda: make(server.url), channel=channel, ready_timeout=0.5, backoff_cap=0.1)
    await refused(bus, pattern, caplog)
    await until(lambda: leftovers() <= before, "the end of all that the factory made")


@_NEEDS_TLS
async def test_an_ssl_context_goes_through_a_factory(brokers: Provider, channel: str, tmp_path: Path) -> None:
    tls = certificates(tmp_path)
    with brokers.dedicated("postgres", "postgres-15", tls=tls) as server:
        context = ssl.create_default_context(cafile=str(tls.ca))
        dsn = f"postgresql://postgres@localhost:{server.port}/postgres"
        bus = PostgresBus(lambda: asyncpg.connect(dsn, ssl=context), channel=channel)
        async with bus, heard(bus) as mine:
            with anyio.fail_after(LIMIT):
                await bus.publish(BusNotification.tools_list_changed())
            await mine.until(lambda seen: len(seen.all) == 1, "it")
