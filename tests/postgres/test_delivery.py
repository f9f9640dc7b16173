"""What PostgreSQL's own rules would do to notifications, and must not."""

import asyncio
from collections.abc import Callable

import anyio
import asyncpg
import pytest

from notification_bus import BusNotification, BusURLError, NotificationTooLargeError
from notification_bus_postgres import PostgresBus
from tests.brokers import Provider, Server, witness
from tests.postgres._tools import admin, build, heard, number, sessions, until, with_database

# -- P04: the limit, in bytes after encoding


def of_size(size: int, unit: str) -> BusNotification:
    """A notification whose body has exactly that many bytes, most of them of this character."""
    bare = len(BusNotification("m", {"t": ""}).encode())
    each = len(BusNotification("m", {"t": unit}).encode()) - bare
    count, rest = divmod(size - bare, each)
    notification = BusNotification("m", {"t": unit * count + "x" * rest})
    assert len(notification.encode()) == size
    return notification


@pytest.mark.parametrize("unit", ["a", "é", "€", "😀", '"', "\n", "\x01"], ids=ascii)
async def test_the_limit_is_sharp_at_7999_encoded_bytes(server: Server, channel: str, unit: str) -> None:
    """P04. Below it every body arrives byte for byte, above it publishing raises, and the next one works."""
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, witness("postgres", server.url, channel) as raw:
        sizes = range(7990, 8011)
        sent: list[bytes] = []
        for size in sizes:
            notification = of_size(size, unit)
            if size <= 7999:
                await bus.publish(notification)
                sent.append(notification.encode())
            else:
                with pytest.raises(NotificationTooLargeError, match="7999"):
                    await bus.publish(notification)
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "the small one after the large ones")
        assert [notification.encode() for notification in mine.all[:-1]] == sent
        await until(lambda: len([b for b in raw.bodies if b"/bus/" not in b]) == len(sent) + 1, "the same on the wire")
        assert [body for body in raw.bodies if b"/bus/" not in body][:-1] == sent
        assert [row["state"] for row in await sessions(raw.connection, channel)] == ["idle", "idle"]
        assert bus.stats().dropped == {}


# -- P05: equal bodies


async def one_by_one(bus: PostgresBus, notification: BusNotification) -> None:
    for _ in range(50):
        await bus.publish(notification)


async def at_once(bus: PostgresBus, notification: BusNotification) -> None:
    await asyncio.gather(*(bus.publish(notification) for _ in range(50)))


@pytest.mark.parametrize("publish", [one_by_one, at_once])
@pytest.mark.parametrize("size", [40, 7998, 7999])
async def test_equal_notifications_all_arrive(
    server: Server, channel: str, publish: Callable[[PostgresBus, BusNotification], "asyncio.Future[None]"], size: int
) -> None:
    """P05: as many as were published, on each subscription of each instance, also where a body cannot grow."""
    here, there = build(server.url, channel), build(server.url, channel)
    async with here, there, heard(here) as first, heard(here) as second, heard(there) as third:
        await publish(here, of_size(size, "a"))
        await here.publish(number(1))
        for record in (first, second, third):
            await record.until(lambda seen: 1 in seen.numbers, "the one after them")
            assert len(record.all) == 51


async def test_equal_notifications_all_arrive_in_frames(server: Server, channel: str) -> None:
    bus = build(server.url, channel, frames=True)
    async with bus, heard(bus) as mine:
        for _ in range(1000):
            await bus.publish(BusNotification.tools_list_changed())
        await mine.until(lambda seen: len(seen.all) >= 1000, "a thousand")
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "the one after them")
        assert len(mine.all) == 1001


# -- P07: names

NAMES = [
    *("MixedCase", "with space", "semi;colon", 'quo"te', '"; DROP TABLE x; --', "ünïcode", "1digit", "select", "%s$1"),
    *("x" * 63, "ü" * 31 + "x", "x" * 61 + "ü", "a" * 62 + "A", " lead", "\t\n", "😀"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_a_channel_of_any_name_is_that_channel_and_no_other(server: Server, name: str) -> None:
    """P07: LISTEN takes an identifier and pg_notify takes text, and both must mean the same."""
    bus = build(server.url, name)
    async with (
        bus,
        heard(bus) as mine,
        witness("postgres", server.url, name) as raw,
        witness("postgres", server.url, name.swapcase() if name != name.swapcase() else f"{name[:-1]}0") as other,
    ):
        await raw.publish(number(1).encode())
        await bus.publish(number(2))
        await mine.until(lambda seen: set(seen.numbers) == {1, 2}, "the stranger's and its own")
        await until(lambda: number(2).encode() in raw.bodies, "the bus's own at the stranger")
        await other.publish(b"end")
        await other.wait_for(1)
        assert other.bodies == [b"end"]


async def test_names_that_differ_beyond_63_bytes_are_not_merged(server: Server) -> None:
    """P07: each of them is refused."""
    for name in ("x" * 63 + "a", "x" * 63 + "b", "x" * 62 + "üa"):
        with pytest.raises(BusURLError, match="63"):
            build(server.url, name)


# -- P08: transactions, and the lock of their commits


async def test_sessions_are_idle_outside_of_any_transaction_and_say_whose_they_are(
    server: Server, channel: str
) -> None:
    """P08 (a): the listening session runs nothing ever, the publishing one a short statement at a time."""
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        for n in range(500):
            await bus.publish(number(n))
            if n % 50 == 0:
                (listening,) = await sessions(connection, channel, "listen")
                # Reading the queue of notifications is a moment's transaction of the server's own; no statement is.
                assert listening["state"] == "idle"
                assert listening["query"] == f'LISTEN "{channel}"'
        await mine.until(lambda seen: len(seen.numbers) == 500, "all")

        async def both_idle() -> bool:
            return [(row["state"], row["xact_start"]) for row in await sessions(connection, channel)] == [
                ("idle", None)
            ] * 2

        await until(both_idle, "two idle sessions")


async def test_callers_with_open_transactions_on_an_exhausted_pool_publish_at_once(
    server: Server, channel: str
) -> None:
    """P08 (b): publishing needs nothing that they hold."""
    bus = build(server.url, channel)
    waiting = 0
    turn = asyncio.Event()
    async with bus, heard(bus) as mine, asyncpg.create_pool(server.url, min_size=0, max_size=10) as pool:

        async def caller(n: int) -> None:
            nonlocal waiting
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT 1")
                await bus.publish(number(n))
                waiting += 1
                # Ten hold the whole pool, with a transaction open, until all ten have published.
                if waiting >= 10:
                    turn.set()
                await turn.wait()

        with anyio.fail_after(20):
            await asyncio.gather(*(caller(n) for n in range(50)))
        await mine.until(lambda seen: len(seen.numbers) == 50, "all")


async def test_a_commit_that_keeps_the_lock_of_notify_holds_up_no_caller_and_piles_up_no_sessions(
    brokers: Provider, channel: str
) -> None:
    """P08 (c): the backlog is bounded and drops with a warning; once the lock is free, all goes on by itself."""
    async with anyio.create_task_group() as tasks:
        with brokers.dedicated("postgres", settings={"synchronous_standby_names": "nobody"}) as server:
            bus = build(server.url, channel, outbox=100, probe_timeout=1.0)
            async with bus, heard(bus) as mine, admin(server.url) as connection, admin(server.url) as culprit:
                await bus.publish(number(0))
                await mine.until(lambda seen: 0 in seen.numbers, "the first")

                async def hold() -> None:
                    # It waits for a standby that does not exist, in the midst of its commit.
                    await culprit.execute(
                        "SET synchronous_commit = on; BEGIN; CREATE TABLE t (); NOTIFY other, 'x'; COMMIT"
                    )

                tasks.start_soon(hold)
                pid = culprit.get_server_pid()

                async def held() -> bool:
                    wait = await connection.fetchval("SELECT wait_event FROM pg_stat_activity WHERE pid = $1", pid)
                    return str(wait) == "SyncRep"

                await until(held, "the lock to be held")
                for n in range(1, 1001):
                    with anyio.fail_after(1):
                        await bus.publish(number(n))
                await until(lambda: bus.stats().dropped.get("outbox", 0) >= 700, "drops from a bounded outbox")
                await until(lambda: "lock" in (bus.stats().last_error or ""), "a warning that names the lock")
                most = 0
                for n in range(1001, 1041):
                    await bus.publish(number(n))
                    most = max(most, len(await sessions(connection, channel)))
                    await anyio.sleep(0.1)
                assert most <= 4, "sessions that wait for the lock pile up"
                await connection.execute("SELECT pg_cancel_backend($1)", pid)
                await mine.until_recovered(bus, 5000)
                assert mine.gaps >= 1
                assert mine.numbers == sorted(set(mine.numbers))


# -- P11: concurrency


async def test_publishing_from_inside_a_subscription_works(server: Server, channel: str) -> None:
    """P11."""
    bus = build(server.url, channel)
    async with bus, bus.subscribe() as stream:
        await bus.publish(number(0))
        with anyio.fail_after(20):
            async for notification in stream:
                n = (notification.params or {})["n"]
                assert isinstance(n, int)
                if n == 20:
                    break
                await bus.publish(number(n + 1))


# -- databases


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
async def test_a_database_of_another_encoding_carries_every_character(
    server: Server, channel: str, encoding: str
) -> None:
    """One character that the database lacks would fail its whole batch."""
    database = f"db_{encoding.lower()}_{channel[5:]}"
    async with admin(server.url) as connection:
        await connection.execute(f"CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    bus = build(with_database(server.url, database), channel)
    texts = ["plain", "é", "日本", "😀", "\u2028", '"\\\n\x7f']
    async with bus, heard(bus) as mine:
        for text in texts:
            await bus.publish(BusNotification("m", {"t": text}))
        await mine.until(lambda seen: len(seen.all) >= len(texts), "all")
        assert [(notification.params or {})["t"] for notification in mine.all] == texts
        # Escaped it would be too large: dropped and told, with the others unharmed.
        await bus.publish(BusNotification("m", {"t": "😀" * 1900}))
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "the next")
        if encoding == "SQL_ASCII":
            assert bus.stats().dropped == {}
        else:
            assert bus.stats().dropped == {"refused": 1}
            await mine.until(lambda seen: seen.gaps == 1, "a gap for it")


async def test_databases_are_separate(server: Server, channel: str) -> None:
    """Rule 15, and a fact to know: the same name in another database is another channel."""
    async with admin(server.url) as connection:
        await connection.execute(f'CREATE DATABASE "{channel}"')
    here, there = build(server.url, channel), build(with_database(server.url, channel), channel)
    async with here, there, heard(here) as mine, heard(there) as theirs:
        await here.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "its own")
        await there.publish(number(2))
        await theirs.until(lambda seen: 2 in seen.numbers, "its own")
        assert (mine.numbers, theirs.numbers) == ([1], [2])


async def test_a_read_only_role_can_publish_and_listen(server: Server, channel: str) -> None:
    """Neither writes a table: a user for the bus needs nothing but CONNECT."""
    role = channel.replace("-", "_")
    async with admin(server.url) as connection:
        await connection.execute(f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET default_transaction_read_only = on")
    bus = build(server.url.replace("postgres@", f"{role}@"), channel)
    async with bus, heard(bus) as mine:
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "its own")
