"""Standbys: LISTEN and NOTIFY exist on the primary only, which is found and followed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from notification_bus import BusNotReadyError, NotPrimaryError
from notification_bus.testing import FaultProxy
from tests.brokers import Provider, has_pgbouncer, outage_warnings, pgbouncer
from tests.brokers._postgres import PostgresServer
from tests.postgres._standby import allow_replication, local, make_standby_of, standby_of
from tests.postgres._tools import LIMIT, admin, build, heard, number, sessions, until
from tests.postgres.conftest import FLAVOURS


@dataclass
class Pair:
    primary: PostgresServer
    standby: PostgresServer

    def dsn(self, *servers: PostgresServer, query: str = "") -> str:
        hosts = ",".join(f"{server.host}:{server.port}" for server in servers)
        return f"postgresql://postgres@{hosts}/postgres{query}"


@pytest.fixture(params=FLAVOURS[:1])
async def pair(request: pytest.FixtureRequest, brokers: Provider) -> AsyncIterator[Pair]:
    if request.param not in brokers.flavours("postgres"):
        pytest.skip(f"no {request.param} among this machine's programs")
    with brokers.dedicated("postgres", request.param) as server:
        primary = local(server)
        await allow_replication(primary)
        with standby_of(brokers, primary) as standby:
            yield Pair(primary, standby)


async def promote(server: PostgresServer) -> None:
    async with admin(server.url) as connection:
        assert await connection.fetchval("SELECT pg_promote(true, 20)")


@pytest.mark.parametrize("pair", FLAVOURS, indirect=True)
async def test_a_standby_alone_is_said_once_and_used_when_it_is_promoted(
    pair: Pair, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 3, item 2: recognised, said, left for the primary."""
    bus = build(pair.standby.url, channel)
    async with bus:
        with pytest.raises(BusNotReadyError, match=r"is a standby.*name all hosts") as caught:
            await bus.wait_ready(1)
        assert isinstance(caught.value.__cause__, NotPrimaryError)
        assert len([line for line in outage_warnings(caplog) if "is a standby" in line]) == 1
        await promote(pair.standby)
        async with heard(bus) as mine:
            await bus.publish(number(1))
            await mine.until(lambda seen: 1 in seen.numbers, "it")


@pytest.mark.parametrize("query", ["", "?target_session_attrs=any", "?target_session_attrs=read-write"])
async def test_of_several_hosts_both_halves_take_the_primary(pair: Pair, channel: str, query: str) -> None:
    """Wherever it stands in the list, and also where the standby would do for other purposes."""
    for servers in ((pair.standby, pair.primary), (pair.primary, pair.standby)):
        bus = build(pair.dsn(*servers, query=query), channel)
        async with bus, heard(bus) as mine, admin(pair.primary.url) as connection:
            await bus.publish(number(1))
            await mine.until(lambda seen: 1 in seen.numbers, "it")
            assert len(await sessions(connection, channel)) == 2


async def test_hosts_of_the_environment_are_tried_until_one_is_the_primary(
    pair: Pair, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As libpq's users write them; asyncpg finds these by itself."""
    monkeypatch.setenv("PGHOST", "127.0.0.1,127.0.0.1")
    monkeypatch.setenv("PGPORT", f"{pair.standby.port},{pair.primary.port}")
    bus = build("postgresql://postgres@/postgres", channel)
    async with bus, heard(bus) as mine:
        await bus.publish(number(1))
        await mine.until(lambda seen: 1 in seen.numbers, "it")


@pytest.mark.parametrize("pair", FLAVOURS, indirect=True)
async def test_instances_meet_on_the_new_primary_after_a_failover(pair: Pair, channel: str) -> None:
    """And on the old one again, when it has come back as a standby and is promoted in its turn."""
    dsn = pair.dsn(pair.primary, pair.standby)
    here, there = build(dsn, channel), build(dsn, channel)
    async with here, there, heard(here) as mine, heard(there) as theirs:
        await here.publish(number(1))
        for record in (mine, theirs):
            await record.until(lambda seen: 1 in seen.numbers, "it")
        pair.primary.kill()
        await promote(pair.standby)
        await mine.until_recovered(there, 1000)
        await theirs.until_recovered(here, 2000)
        make_standby_of(pair.primary, pair.standby)
        pair.standby.kill()
        await promote(pair.primary)
        await mine.until_recovered(there, 3000)
        await theirs.until_recovered(here, 4000)
        for record in (mine, theirs):
            assert record.gaps >= 2
            assert len(record.numbers) == len(set(record.numbers))


async def test_a_host_that_swallows_connections_does_not_keep_from_the_next(pair: Pair, channel: str) -> None:
    """The machine of the old primary is often not refused but gone; asyncpg alone would wait for it each time."""
    async with FaultProxy(pair.primary.host, pair.primary.port) as gone:
        await gone.blackhole(new="accept")
        dsn = f"postgresql://postgres@{gone.host}:{gone.port},{pair.primary.host}:{pair.primary.port}/postgres"
        bus = build(dsn, channel, ready_timeout=LIMIT)
        async with bus, heard(bus) as mine:
            await bus.publish(number(1))
            await mine.until(lambda seen: 1 in seen.numbers, "it")
            assert gone.accepted == 1
            assert bus.stats().reconnects == 0
            # The one that was found is tried first from then on.
            async with admin(pair.primary.url) as connection:
                for row in await sessions(connection, channel):
                    await connection.execute("SELECT pg_terminate_backend($1)", row["pid"])
            await mine.until_recovered(bus, 1000)
            assert gone.accepted == 1


async def test_of_hosts_that_will_all_not_do_each_is_told(pair: Pair, channel: str) -> None:
    async with FaultProxy(pair.primary.host, pair.primary.port) as refusing:
        await refusing.refuse(listening=False)
        dsn = f"postgresql://postgres@{refusing.host}:{refusing.port},127.0.0.1:{pair.standby.port}/postgres"
        bus = build(dsn, channel)
        async with bus:
            with pytest.raises(BusNotReadyError) as caught:
                await bus.wait_ready(2)
            said = str(caught.value)
            assert f"127.0.0.1:{refusing.port}: ConnectionRefusedError" in said
            assert "Connect call failed" in said
            assert f"127.0.0.1:{pair.standby.port} is a standby" in said


@pytest.mark.skipif(not has_pgbouncer(), reason="no pgbouncer here")
async def test_a_node_demoted_behind_a_pooler_is_left(pair: Pair, channel: str) -> None:
    """The pooler's client keeps its connection; the server behind it is a standby from one statement to the next."""
    with pgbouncer(pair.standby, "transaction") as dsn:
        await promote(pair.standby)
        connection = await build(dsn, channel, listen_dsn=pair.primary.url, probe_timeout=5.0).connect()
        try:
            await connection.send([b"{}"])
            await connection.check()
            make_standby_of(pair.standby, pair.primary)

            async def demoted() -> bool:
                try:
                    await connection.check()
                except NotPrimaryError:
                    return True
                except asyncpg.PostgresError:
                    pass  # the session that the pooler had is lost
                return False

            await until(demoted, "the word of the node")
            with pytest.raises(NotPrimaryError, match="recovery"):
                await connection.send([b"{}"])
        finally:
            await connection.aclose()
