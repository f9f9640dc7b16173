"""Connections that end, silently or not: P01, and what belongs to no other broker."""

import pytest

from notification_bus.testing import FaultProxy
from notification_bus_postgres import _connection
from tests.brokers import Provider, Server, witness
from tests.postgres._tools import admin, build, heard, number, sessions, until


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
