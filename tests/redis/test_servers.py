"""RedisBus on servers with rights, roles and states of their own."""

import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from redis.asyncio.sentinel import Sentinel

from notification_bus import GAP, BusNotification, BusNotReadyError
from notification_bus_redis import RedisBus
from tests.brokers import Provider, free_port, witness
from tests.redis.support import PATIENCE, channel, eventually, marker_arrives, next_of, quick_bus, receives


async def test_a_user_without_the_channel_is_told_the_grant_and_works_after_it(
    brokers: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """R11 (a)."""
    with brokers.dedicated("redis") as server:
        name = channel()
        async with witness("redis", server.url, name) as raw:
            await raw.client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "+@all", "~*", "resetchannels")
            bus = quick_bus(f"redis://app:pw@{server.host}:{server.port}", name)
            async with bus:
                with pytest.raises(BusNotReadyError, match=f"(?s)NoPermissionError.*&{name}"):
                    await bus.wait_ready(2)
                await raw.client.execute_command("ACL", "SETUSER", "app", f"&{name}")
                async with bus.subscribe() as subscription:
                    await marker_arrives(bus, subscription)
    warnings = [record for record in caplog.records if "cannot connect" in record.getMessage()]
    assert len(warnings) == 1, "once in an outage, however often it was tried"


async def test_a_user_who_may_only_subscribe_receives_and_is_told_what_its_publishing_lacks(
    brokers: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """R11 (b)."""
    with brokers.dedicated("redis") as server:
        name = channel()
        async with witness("redis", server.url, name) as raw:
            await raw.client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "+@all", "-publish", "&*")
            bus = quick_bus(f"redis://app:pw@{server.host}:{server.port}", name, probe_interval=5.0)
            async with bus, bus.subscribe() as subscription:
                await raw.publish(b'{"method":"a"}')
                assert await next_of(subscription) == BusNotification("a")
                await bus.publish(BusNotification("b"))
                await eventually(lambda: bus.stats().dropped.get("refused") == 1, "the refusal is counted")
                await raw.publish(b'{"method":"c"}')
                assert await next_of(subscription) == BusNotification("c")
                assert bus.stats().reconnects == 0
                await raw.client.execute_command("ACL", "SETUSER", "app", "+publish")
                before = await marker_arrives(bus, subscription)
                assert before == [GAP], "what was refused is owed to everybody as a gap"
    assert any("+publish" in record.getMessage() for record in caplog.records)


async def test_a_grant_that_is_revoked_and_given_back_is_recovered_from(brokers: Provider) -> None:
    """R11 (c)."""
    with brokers.dedicated("redis") as server:
        name = channel()
        async with witness("redis", server.url, name) as raw:
            await raw.client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "+@all", f"&{name}")
            bus = quick_bus(f"redis://app:pw@{server.host}:{server.port}", name)
            async with bus, bus.subscribe() as subscription:
                await marker_arrives(bus, subscription)
                await raw.client.execute_command("ACL", "SETUSER", "app", "resetchannels")
                await eventually(lambda: "NOPERM" in repr(bus.stats()) or "NoPerm" in repr(bus.stats()), "it is said")
                await raw.client.execute_command("ACL", "SETUSER", "app", f"&{name}")
                await eventually(lambda: bus.stats().connected, "it is back")
                assert GAP in await marker_arrives(bus, subscription)


async def test_a_user_who_may_not_ask_for_the_role_works(brokers: Provider) -> None:
    with brokers.dedicated("redis") as server:
        name = channel()
        async with witness("redis", server.url, name) as raw:
            await raw.client.execute_command(
                "ACL", "SETUSER", "app", "on", ">pw", "+publish", "+subscribe", "+select", "+client", f"&{name}"
            )
            bus = quick_bus(f"redis://app:pw@{server.host}:{server.port}", name)
            async with bus, bus.subscribe() as subscription:
                await marker_arrives(bus, subscription)
                await eventually(lambda: bus.stats().reconnects == 0 and bus.stats().connected, "it stays")


async def test_a_replica_is_said_and_left_for_the_primary(brokers: Provider) -> None:
    with brokers.dedicated("redis") as primary, brokers.dedicated("redis") as replica:
        async with witness("redis", replica.url, channel()) as raw:
            await raw.client.execute_command("REPLICAOF", primary.host, primary.port)
            bus = quick_bus(replica.url)
            async with bus:
                with pytest.raises(
                    BusNotReadyError, match=f"its primary is {primary.host}:{primary.port}.*point the URL"
                ):
                    await bus.wait_ready(2)
                await raw.client.execute_command("REPLICAOF", "NO", "ONE")
                async with bus.subscribe() as subscription:
                    await marker_arrives(bus, subscription)
                    # Demoted under live connections: the echo still comes, and yet nothing reaches the others.
                    await raw.client.execute_command("REPLICAOF", primary.host, primary.port)
                    await eventually(lambda: not bus.stats().connected, "the demotion is seen")
                    assert "NotPrimary" in repr(bus.stats())
                    await raw.client.execute_command("REPLICAOF", "NO", "ONE")
                    assert GAP in await marker_arrives(bus, subscription)


async def test_a_server_that_still_loads_its_data_is_no_trouble(brokers: Provider, tmp_path: Path) -> None:
    with brokers.dedicated("redis", args=["--dir", str(tmp_path)]) as server:
        program = program_of(server)
        async with witness("redis", server.url, channel()) as raw:
            await raw.client.mset({f"k{number}": "v" for number in range(5000)})
            await raw.client.save()
    port = free_port()
    # Slow on purpose: microseconds for each key, and a look at the clients in between.
    slow = ["--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024"]
    with running([program, "--port", str(port), "--dir", str(tmp_path), *slow]):
        bus = quick_bus(f"redis://127.0.0.1:{port}")
        async with bus, bus.subscribe() as subscription:
            await marker_arrives(bus, subscription)


def program_of(server: object) -> str:
    program = getattr(server, "_program", None)
    if program is None:
        pytest.skip("needs a server process of this machine")
    return str(program)


@contextmanager
def running(command: Sequence[str]) -> Generator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_a_client_of_sentinel_follows_the_primary(brokers: Provider, tmp_path: Path) -> None:
    """R13."""
    with brokers.dedicated("redis") as first, brokers.dedicated("redis") as second:
        program = program_of(first)
        port = free_port()
        config = tmp_path / "sentinel.conf"
        config.write_text(
            f"port {port}\ndir {tmp_path}\nsentinel monitor main {first.host} {first.port} 1\n"
            "sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n"
        )
        async with witness("redis", second.url, channel()) as raw:
            await raw.client.execute_command("REPLICAOF", first.host, first.port)
            with running([program, str(config), "--sentinel"]):
                sentinel = Sentinel([("127.0.0.1", port)], sentinel_kwargs={"protocol": 2})
                client: Any = sentinel.master_for("main")
                name = channel()
                bus = quick_bus(client, name)
                async with bus, bus.subscribe() as subscription:
                    await marker_arrives(bus, subscription)
                    info = await eventually_knows_replica(sentinel)
                    assert info
                    first.kill()
                    await eventually(lambda: bus.stats().reconnects > 0 and bus.stats().connected, "it follows")
                    async with witness("redis", second.url, name) as at_second:
                        await at_second.publish(b'{"method":"on-the-second"}')
                        await receives(subscription, BusNotification("on-the-second"))
                await client.aclose()
                for each in sentinel.sentinels:
                    await each.aclose()


async def eventually_knows_replica(sentinel: Sentinel) -> bool:
    """Sentinel learns of replicas by asking the primary, every ten seconds at the latest."""
    with anyio.fail_after(PATIENCE):
        while not await sentinel.discover_slaves("main"):
            await anyio.sleep(0.1)
    return True


async def test_one_bus_refuses_to_grow_beyond_two_connections(brokers: Provider) -> None:
    with brokers.dedicated("redis") as server:
        name = channel()
        bus = RedisBus(f"{server.url}?client_name={name}", channel=name)
        async with bus, bus.subscribe() as subscription, witness("redis", server.url, name) as raw:
            await marker_arrives(bus, subscription)
            mine = [client for client in await raw.client.client_list() if client["name"] == name]
            assert len(mine) == 2
