"""Connections that end, silently or not: P01, and what belongs to no other broker."""

import time

import anyio
import pytest

from notification_bus.testing import FaultProxy
from notification_bus_postgres import _connection
from tests.brokers import Provider, Server, witness
from tests.postgres._tools import LIMIT, admin, build, heard, number, sessions, until


@pytest.mark.parametrize("half", ["listen", "publish", ""], ids=["listening", "publishing", "both"])
async def test_a_session_that_the_server_ends_is_made_anew_with_a_gap(server: Server, channel: str, half: str) -> None:
    """P01: `pg_terminate_backend`, ten times, noticed without a probe; and never more than one listening session."""
    bus = build(server.url, channel, probe_interval=60.0)
    async with bus, heard(bus) as mine, admin(server.url) as connection:
        for round_ in range(10):
            for row in await sessions(connection, channel, half):
                await connection.execute("SELECT pg_terminate_backend($1)", row["pid"])
            await until(lambda: bus.stats().reconnects == round_ + 1, "the reconnect")  # noqa: B023
            await mine.until_recovered(bus, (round_ + 1) * 1000)

        async def two() -> bool:
            return [row["application_name"] for row in await sessions(connection, channel)] == [
                f"{channel}:listen",
                f"{channel}:publish",
            ]

        await until(two, "one session of each half")
        assert mine.gaps >= 10
        assert mine.numbers == sorted(set(mine.numbers))
        assert not mine.ended


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "while sending"])
async def test_a_link_that_dies_without_a_word_is_noticed_and_replaced_by_two_connections(
    server: Server, channel: str, *, busy: bool
) -> None:
    """P01, also on an idle channel. Cancelling what was being sent must not open a third connection."""
    async with FaultProxy(server.host, server.port) as proxy:
        bus = build(server.via(proxy.host, proxy.port), channel, probe_timeout=1.0)
        async with bus, heard(bus) as mine, witness("postgres", server.url, channel) as raw:
            await raw.publish(number(0).encode())
            await mine.until(lambda seen: 0 in seen.numbers, "one before the fault")
            before = proxy.accepted
            await proxy.blackhole()
            if busy:
                await bus.publish(number(1))
            await until(lambda: bus.stats().reconnects == 1, "the reconnect", limit=0.5 + 1.0 + 5)
            await raw.publish(number(2).encode())
            await mine.until(lambda seen: 2 in seen.numbers, "one after it")
            assert proxy.accepted - before == 2
            assert mine.gaps >= 1


async def test_a_backend_that_ends_behind_a_held_link_is_noticed(server: Server, channel: str) -> None:
    """P01: the server's end is gone, and the client's is held open by what stands between."""
    async with FaultProxy(server.host, server.port) as proxy:
        bus = build(server.via(proxy.host, proxy.port), channel, probe_timeout=1.0)
        async with bus, heard(bus) as mine, admin(server.url) as connection:
            await proxy.stall()
            for row in await sessions(connection, channel):
                await connection.execute("SELECT pg_terminate_backend($1)", row["pid"])
            await until(lambda: not bus.stats().connected, "the loss to be noticed")
            await proxy.restore()
            await mine.until_recovered(bus, 1)
            assert mine.gaps >= 1


async def test_a_server_that_was_frozen_goes_on_with_one_session_of_each_half(brokers: Provider, channel: str) -> None:
    """P01, X03: publishing never waits meanwhile, and no session is left behind."""
    with brokers.dedicated("postgres") as server:
        bus = build(server.url, channel, probe_timeout=1.0, outbox=500)
        async with bus, heard(bus) as mine:
            server.freeze()
            latest = 0.0
            for n in range(1, 2001):
                began = time.perf_counter()
                await bus.publish(number(n))
                latest = max(latest, time.perf_counter() - began)
            assert latest < 1
            await until(lambda: not bus.stats().connected, "the loss to be noticed")
            await until(lambda: "no answer" in (bus.stats().last_error or ""), "a failed try to connect")
            server.thaw()
            await mine.until_recovered(bus, 10_000)
            assert mine.gaps >= 1
            assert bus.stats().dropped["outbox"] >= 1
            async with admin(server.url) as connection:

                async def two() -> bool:
                    return len(await sessions(connection, channel)) == 2

                await until(two, "one session of each half")


async def test_a_killed_server_that_comes_back_is_found_again(brokers: Provider, channel: str) -> None:
    """X05 and X07: by two instances, each with an echo and the other's, one copy each, as often as it happens."""
    with brokers.dedicated("postgres") as server:
        here, there = build(server.url, channel), build(server.url, channel)
        async with here, there, heard(here) as mine, heard(there) as theirs:
            for round_ in range(1, 4):
                server.kill()
                await until(lambda: not here.stats().connected and not there.stats().connected, "the loss")
                await here.publish(number(round_))
                server.restart()
                await mine.until_recovered(here, round_ * 1000)
                await theirs.until_recovered(there, round_ * 1000 + 500)
            for record in (mine, theirs):
                assert record.gaps >= 3
                assert len(record.numbers) == len(set(record.numbers))


async def test_a_bus_that_starts_before_its_server_is_ready_when_the_server_is(brokers: Provider, channel: str) -> None:
    """X05 (a)."""
    with brokers.dedicated("postgres") as server:
        server.kill()
        bus = build(server.url, channel, ready_timeout=LIMIT)
        async with bus:
            await until(lambda: "nothing listens there" in (bus.stats().last_error or ""), "the failed try")
            server.restart()
            async with heard(bus) as mine:
                await bus.publish(number(1))
                await mine.until(lambda seen: 1 in seen.numbers, "it")


async def test_the_servers_limit_for_idle_sessions_does_not_concern_the_bus(brokers: Provider, channel: str) -> None:
    """To be idle is what a listening session is for; cut each time, it would have a gap each time."""
    settings = {"idle_session_timeout": "500ms"}
    with brokers.dedicated("postgres", settings=settings) as server:
        bus = build(server.url, channel, probe_interval=30.0)
        async with bus, heard(bus) as mine, admin(server.url) as other:
            await bus.publish(number(1))
            await mine.until(lambda seen: 1 in seen.numbers, "it")
            await until(other.is_closed, "the end of another idle session")
            await bus.publish(number(2))
            await mine.until(lambda seen: 2 in seen.numbers, "it")
            assert (bus.stats().reconnects, mine.gaps) == (0, 0)


async def test_a_reader_too_far_behind_reconnects_with_a_gap_instead_of_hoarding(
    server: Server, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X02: what waits between the connection and the bus is bounded too."""
    monkeypatch.setattr(_connection, "_HELD", 10_000)
    bus = build(server.url, channel)
    async with bus, heard(bus) as mine, witness("postgres", server.url, channel) as raw:
        await raw.connection.execute(
            """SELECT pg_notify($1, '{"method":"m","params":{"n":' || n || '}}') FROM generate_series(1, 5000) AS n""",
            channel,
        )
        await until(lambda: bus.stats().reconnects == 1, "the reconnect")
        await mine.until_recovered(bus, 10_000)
        assert mine.gaps >= 1
        assert len([n for n in mine.numbers if n <= 5000]) < 5000


@pytest.mark.parametrize("fault", ["stall", "throttle"])
async def test_publishing_never_waits_for_a_link_that_carries_little_or_nothing(
    server: Server, channel: str, fault: str
) -> None:
    """X03: ten tasks publish 20,000, the event loop goes on, the outbox is bounded and drops with a count."""
    late = 0.0
    async with FaultProxy(server.host, server.port) as proxy:
        bus = build(server.via(proxy.host, proxy.port), channel, probe_timeout=1.0, outbox=1000)

        async def tick() -> None:
            nonlocal late
            while True:
                due = time.perf_counter() + 0.01
                await anyio.sleep(0.01)
                late = max(late, time.perf_counter() - due)

        async def publish(task: int) -> None:
            for n in range(2000):
                await bus.publish(number(task * 2000 + n))

        async with bus, heard(bus) as mine:
            await (proxy.stall() if fault == "stall" else proxy.throttle(1000))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick)
                with anyio.fail_after(LIMIT):
                    async with anyio.create_task_group() as publishers:
                        for task in range(10):
                            publishers.start_soon(publish, task)
                tasks.cancel_scope.cancel()
            # Generous for a machine that runs other things: blocked by a broker it would be seconds.
            assert late < 1
            await until(lambda: bus.stats().dropped.get("outbox", 0) >= 10_000, "drops with a count")
            await proxy.restore()
            await mine.until_recovered(bus, 100_000)
            assert mine.gaps >= 1
