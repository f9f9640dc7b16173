"""Behind pgbouncer: publishing works in every mode, listening only with a session of one's own."""

import logging
from contextlib import AsyncExitStack

import pytest

from notification_bus import BusNotification, open_bus
from tests.brokers import PoolMode, Server, has_pgbouncer, pgbouncer
from tests.postgres._tools import admin, build, heard, number, sessions, until, with_options

pytestmark = pytest.mark.skipif(not has_pgbouncer(), reason="no pgbouncer here")


async def test_listening_through_a_transaction_pooler_is_told_from_silence(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P03: LISTEN is accepted there and forgotten. Within the time of a probe the bus says so, and what to do."""
    with pgbouncer(server, "transaction") as dsn:
        bus = build(dsn, channel, probe_timeout=1.0)
        async with bus, heard(bus) as mine:
            await until(lambda: "listen_dsn" in caplog.text, "the warning", limit=10)
            await until(lambda: bus.stats().reconnects >= 1, "another try")
            assert not mine.ended
        warning = next(record for record in caplog.records if "listen_dsn" in record.getMessage())
        assert warning.levelno == logging.WARNING
        assert "did not come back" in warning.getMessage()
        assert "goes through a connection pooler" in warning.getMessage()
        assert bus.stats().last_error is not None


@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
async def test_publishing_through_a_pooler_and_listening_directly_works(
    server: Server, channel: str, mode: PoolMode
) -> None:
    """P03. Five instances share the pooler's sessions, and leave neither a prepared statement nor a setting in them."""
    with pgbouncer(server, mode) as dsn:
        buses = [build(dsn, channel, listen_dsn=server.url) for _ in range(5)]
        async with AsyncExitStack() as stack:
            for bus in buses:
                await stack.enter_async_context(bus)
            records = [await stack.enter_async_context(heard(bus)) for bus in buses]
            for n in range(500):
                await buses[n % 5].publish(number(n))
                await buses[n % 5].publish(BusNotification.tools_list_changed())
            for record in records:
                await record.until(lambda seen: len(seen.all) >= 1000, "all")
                for remainder in range(5):
                    own = [n for n in record.numbers if n % 5 == remainder]
                    assert own == list(range(remainder, 500, 5))
            assert all(bus.stats().reconnects == 0 for bus in buses)
            async with admin(server.url) as connection, admin(dsn) as through:
                assert len(await sessions(connection, channel, "listen")) == 5
                assert await through.execute("SELECT FROM pg_prepared_statements") == "SELECT 0"
                changed = "SELECT FROM pg_settings WHERE source = 'session' AND name ~ 'timeout|keepalive'"
                assert await through.execute(changed) == "SELECT 0"


async def test_a_publisher_that_the_pooler_moves_to_other_sessions_goes_on(server: Server, channel: str) -> None:
    """P03: it has left nothing in the one before that it would miss, or that others would trip over."""
    with pgbouncer(server, "transaction") as dsn:
        bus = build(dsn, channel, listen_dsn=server.url)
        async with bus, heard(bus) as mine, admin(dsn) as first, admin(dsn) as second:
            for n, holder in enumerate((first, second)):
                await bus.publish(number(n))
                await mine.until(lambda seen, n=n: n in seen.numbers, "it")  # type: ignore[misc]
                # The session that was used last is the first to be given out, and is kept.
                await holder.execute("BEGIN; SELECT 1")
                assert await holder.execute("SELECT FROM pg_prepared_statements") == "SELECT 0"
            await bus.publish(number(2))
            await mine.until(lambda seen: 2 in seen.numbers, "it")
            assert bus.stats().reconnects == 0


async def test_a_pooler_in_session_mode_carries_both_halves(server: Server, channel: str) -> None:
    """P03."""
    with pgbouncer(server, "session") as dsn:
        here, there = build(dsn, channel), build(server.url, channel)
        async with here, there, heard(here) as mine, heard(there) as theirs:
            for n in range(100):
                await (here, there)[n % 2].publish(number(n))
            for record in (mine, theirs):
                await record.until(lambda seen: len(seen.numbers) == 100, "all")
            await until(lambda: here.stats().reconnects == 0 and here.stats().in_doubt == 0, "health")


async def test_a_url_names_both_ways(server: Server, channel: str) -> None:
    with pgbouncer(server, "transaction") as dsn:
        bus = open_bus(with_options(dsn, channel=channel, listen_dsn=server.url))
        async with bus, bus.subscribe() as stream:
            await bus.publish(number(1))
            assert await anext(stream) == number(1)


async def test_a_transaction_of_the_caller_may_go_through_a_pooler(server: Server, channel: str) -> None:
    with pgbouncer(server, "transaction") as dsn:
        bus = build(server.url, channel)
        async with bus, heard(bus) as mine, admin(dsn) as connection:
            async with connection.transaction():
                await connection.execute("SELECT 1")
                for name, body in (bus.pg_notify_arguments(number(n)) for n in (1, 1, 2)):
                    await connection.execute(f"SELECT pg_notify('{name}', E'{body}')")
            await mine.until(lambda seen: seen.numbers == [1, 1, 2], "all")


async def test_a_session_that_ends_behind_the_pooler_is_an_outage_like_any_other(server: Server, channel: str) -> None:
    with pgbouncer(server, "transaction") as dsn:
        bus = build(dsn, channel, listen_dsn=server.url)
        async with bus, heard(bus) as mine, admin(server.url) as connection:
            await bus.publish(number(0))
            await mine.until(lambda seen: 0 in seen.numbers, "one before")
            for row in await sessions(connection, channel, "publish"):
                await connection.execute("SELECT pg_terminate_backend($1)", row["pid"])
            await mine.until_recovered(bus, 1)
