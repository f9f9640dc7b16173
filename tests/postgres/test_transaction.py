"""Publishing in the caller's transaction: what only PostgreSQL can give."""

import asyncpg
import pytest

from notification_bus import BusClosedError, BusNotification, NotificationTooLargeError
from notification_bus_postgres import Executes, PostgresBus
from tests.brokers import Server
from tests.postgres._tools import Heard, admin, build, heard, number, until
from tests.postgres.test_delivery import of_size


async def settled(bus: PostgresBus, record: Heard, mark: int) -> None:
    """Wait until whatever was to come has come: the bus's own come after it in order of commit."""
    await bus.publish(number(mark))
    await record.until(lambda seen: mark in seen.numbers, "the one after")


async def test_a_notification_of_a_transaction_is_sent_when_it_commits_and_not_before(
    server: Server, channel: str
) -> None:
    """With the echo as for any other, and on every instance."""
    here, there = build(server.url, channel), build(server.url, channel)
    async with here, there, heard(here) as mine, heard(there) as theirs, admin(server.url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await here.publish(number(1), connection=connection)
        await settled(here, mine, 2)
        assert mine.numbers == [2]
        await transaction.commit()
        for record in (mine, theirs):
            await record.until(lambda seen: seen.numbers == [2, 1], "both, in the order of their commits")
        assert here.stats().published == 2


async def test_a_notification_of_a_transaction_is_gone_when_it_rolls_back(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await bus.publish(number(1), connection=connection)
        await transaction.rollback()
        await settled(bus, mine, 2)
        assert mine.numbers == [2]
        assert mine.gaps == 0


async def test_a_savepoint_that_rolls_back_takes_only_its_own(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        async with connection.transaction():
            await bus.publish(number(1), connection=connection)
            savepoint = connection.transaction()
            await savepoint.start()
            await bus.publish(number(2), connection=connection)
            await savepoint.rollback()
            async with connection.transaction():
                await bus.publish(number(1), connection=connection)
            await bus.publish(number(3), connection=connection)
        await settled(bus, mine, 4)
        assert mine.numbers == [1, 1, 3, 4]


async def test_equal_notifications_of_one_transaction_all_arrive(server: Server, channel: str) -> None:
    """P05, also where several buses of one channel publish in it."""
    here, there = build(server.url, channel), build(server.url, channel)
    async with here, there, heard(here) as mine, admin(server.url) as connection:
        async with connection.transaction():
            for _ in range(50):
                await here.publish(BusNotification.tools_list_changed(), connection=connection)
                await there.publish(BusNotification.tools_list_changed(), connection=connection)
        await mine.until(lambda seen: len(seen.all) >= 100, "a hundred")
        await settled(here, mine, 1)
        assert mine.all[:-1] == [BusNotification.tools_list_changed()] * 100


async def test_the_limit_in_a_transaction_leaves_room_for_what_keeps_equal_ones_apart(
    server: Server, channel: str
) -> None:
    """P04: sharp, in encoded bytes, and the transaction goes on."""
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        async with connection.transaction():
            await bus.publish(of_size(7987, "é"), connection=connection)
            await bus.publish(of_size(7987, "é"), connection=connection)
            with pytest.raises(NotificationTooLargeError, match=r"7988 bytes.*7987"):
                await bus.publish(of_size(7988, "é"), connection=connection)
            await bus.publish(number(1), connection=connection)
        await mine.until(lambda seen: len(seen.all) == 3, "three")
        assert mine.all == [of_size(7987, "é")] * 2 + [number(1)]


async def test_without_a_transaction_it_is_sent_at_once(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        await bus.publish(number(1), connection=connection)
        await mine.until(lambda seen: seen.numbers == [1], "it")


async def test_a_pools_connection_carries_the_transaction_and_the_pool_itself_is_refused(
    server: Server, channel: str
) -> None:
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, asyncpg.create_pool(server.url, min_size=0, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            await bus.publish(number(1), connection=connection)
        await mine.until(lambda seen: seen.numbers == [1], "it")
        with pytest.raises(TypeError, match="outside of your transaction"):
            await bus.publish(number(2), connection=pool)


async def test_errors_of_the_callers_connection_reach_the_caller(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1/0")
        with pytest.raises(asyncpg.InFailedSQLTransactionError):
            await bus.publish(number(1), connection=connection)
        await transaction.rollback()
        connection.terminate()
        with pytest.raises(asyncpg.InterfaceError):
            await bus.publish(number(2), connection=connection)
        await settled(bus, mine, 3)
        assert mine.numbers == [3]
        assert bus.stats().published == 1


async def test_a_closed_bus_refuses_and_leaves_the_transaction_alone(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    async with admin(server.url) as connection, connection.transaction():
        with pytest.raises(BusClosedError):
            await bus.publish(number(1), connection=connection)
        assert await connection.fetchval("SELECT 1") == 1


class Wrapped:
    """A connection of somebody else's making, with no more than `execute`."""

    def __init__(self, inner: Executes) -> None:
        self.inner = inner
        self.calls: list[tuple[str, ...]] = []

    async def execute(self, query: str, *args: str) -> object:
        self.calls.append((query, *args))
        return await self.inner.execute(query, *args)


async def test_anything_with_execute_will_do(server: Server, channel: str) -> None:
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        wrapped = Wrapped(connection)
        await bus.publish(number(1), connection=wrapped)
        await mine.until(lambda seen: seen.numbers == [1], "it")
        ((query, name, body),) = wrapped.calls
        assert (query, name, body.rstrip()) == ("SELECT pg_notify($1, $2)", channel, number(1).encode().decode())


class _AsyncSession:
    async def execute(self, statement: object, parameters: object = None) -> object: ...


_AsyncSession.__module__ = "sqlalchemy.ext.asyncio.session"


@pytest.mark.parametrize(
    "other", [_AsyncSession(), object(), "postgresql://h/app"], ids=["sqlalchemy", "object", "DSN"]
)
async def test_what_takes_other_statements_is_told_the_one_to_run(
    server: Server, channel: str, other: Executes
) -> None:
    bus = build(server.url, channel)
    async with bus:
        with pytest.raises(TypeError, match="pg_notify_arguments"):
            await bus.publish(number(1), connection=other)


async def test_any_client_can_run_the_statement_itself(server: Server, channel: str) -> None:
    """SQLAlchemy's and psycopg's users: the arguments keep equal notifications apart, and need no open bus."""
    bus = build(server.url, channel)
    first = bus.pg_notify_arguments(number(1))
    second = bus.pg_notify_arguments(number(1))
    assert first != second
    with pytest.raises(NotificationTooLargeError):
        bus.pg_notify_arguments(of_size(7988, "a"))
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        async with connection.transaction():
            for name, body in (first, second):
                quoted = body.replace("'", "''")
                await connection.execute(f"SELECT pg_notify('{name}', E'{quoted}')")
        await mine.until(lambda seen: seen.numbers == [1, 1], "both")


async def test_what_a_transaction_published_reaches_a_bus_that_was_cut_off_as_a_gap(
    server: Server, channel: str
) -> None:
    """The guarantee holds for it as for any other."""
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        async with connection.transaction():
            await bus.publish(number(1), connection=connection)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
                f"{channel}:listen",
            )
            await until(lambda: bus.stats().reconnects == 1 or mine.gaps == 1, "the reconnect")
        await mine.until(lambda seen: seen.gaps >= 1 or 1 in seen.numbers, "it or a gap")
