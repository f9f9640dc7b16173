"""Clusters: named servers and those that they tell of are used on reconnecting: issue 3, item 1."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest

from tests.brokers import LocalServer, Provider, free_port, is_process, witness
from tests.brokers import until as until_blocking
from tests.brokers._listener import listening, note, proven
from tests.nats.helpers import bus_on, until


@pytest.fixture
def cluster(brokers: Provider, flavour: str) -> Iterator[list[LocalServer]]:
    """Three servers that know each other."""
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as stack:
        servers: list[LocalServer] = []
        for port in ports:
            config = f"cluster {{ name: c, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n"
            config += "authorization { user: bus, password: secret }\n"
            server = stack.enter_context(brokers.dedicated("nats", flavour, text=config, args=["-n", f"n{port}"]))
            assert is_process(server)
            servers.append(server)
        until_blocking(lambda: all(joined(server) for server in servers), 15, "the cluster")
        yield servers


def joined(server: LocalServer) -> bool:
    """Whether the server tells its clients of both others."""
    with socket.create_connection((server.host, server.port), 2) as connection:
        info = connection.recv(8192)
    return info.count(b"127.0.0.1:") >= 3


def url(*servers: LocalServer) -> str:
    return "nats://bus:secret@" + ",".join(f"{server.host}:{server.port}" for server in servers)


async def test_servers_that_were_discovered_are_used_when_the_only_named_one_is_gone(
    cluster: list[LocalServer], channel: str
) -> None:
    """With the credentials of the named one."""
    named, *others = cluster
    bus, peer = bus_on(url(named), channel), bus_on(url(others[0]), channel)
    async with bus, peer, listening(bus) as ear, listening(peer) as other:
        await proven(bus, other)
        named.kill()
        await until(lambda: bus.stats().reconnects == 1)
        await proven(peer, ear, start=2_000_000)
        await proven(bus, other, start=3_000_000)
        assert ear.gaps == 1


async def test_bus_moves_on_through_the_cluster_and_comes_back(cluster: list[LocalServer], channel: str) -> None:
    bus = bus_on(url(cluster[0]), channel)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        for index, server in enumerate(cluster[:2]):
            server.kill()
            await proven(bus, ear, start=(index + 2) * 1_000_000)
        cluster[0].restart()
        await until(lambda: joined_any(cluster[0]))
        cluster[2].kill()
        await proven(bus, ear, start=5_000_000)


def joined_any(server: LocalServer) -> bool:
    try:
        with socket.create_connection((server.host, server.port), 2) as connection:
            return connection.recv(8192).count(b"127.0.0.1:") >= 2
    except OSError:
        return False


async def test_server_that_joins_later_is_used_as_well(brokers: Provider, channel: str) -> None:
    first, second = free_port(), free_port()
    config = "cluster {{ name: c, listen: 127.0.0.1:{}, routes: ['nats://127.0.0.1:{}'] }}\n"
    with brokers.dedicated("nats", text=config.format(first, second)) as old:
        bus = bus_on(old, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            with brokers.dedicated("nats", text=config.format(second, first)) as new:
                assert isinstance(old, LocalServer)
                assert isinstance(new, LocalServer)
                await until(lambda: joined_any(old))
                await proven(bus, ear, start=2_000_000)
                old.kill()
                await proven(bus, ear, start=3_000_000)


async def test_list_of_servers_survives_the_loss_of_each(brokers: Provider, channel: str) -> None:
    """Servers that do not know each other, as two behind one name may be."""
    with brokers.dedicated("nats") as one, brokers.dedicated("nats") as two:
        bus = bus_on(f"nats://{one.host}:{one.port},{two.host}:{two.port}", channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            one.kill()
            await proven(bus, ear, start=2_000_000)
            one.restart()
            two.kill()
            await proven(bus, ear, start=3_000_000)


async def test_server_that_takes_its_leave_is_left_with_a_gap(brokers: Provider, channel: str) -> None:
    """A rolling upgrade: the server sends its clients away one after the other."""
    leave = "lame_duck_grace_period: 100ms, lame_duck_duration: 30s"
    with brokers.dedicated("nats", text=leave) as one, brokers.dedicated("nats") as two:
        assert isinstance(one, LocalServer)
        bus = bus_on([one.url, two.url], channel, dont_randomize=True)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            os.kill(one.pid, signal.SIGUSR2)
            await until(lambda: bus.stats().reconnects == 1)
            await proven(bus, ear, start=2_000_000)
            assert ear.gaps == 1


async def test_frozen_server_is_left_for_another(cluster: list[LocalServer], channel: str) -> None:
    bus = bus_on(url(*cluster), channel, dont_randomize=True, connect_timeout=0.5)
    async with bus, listening(bus) as ear:
        await proven(bus, ear)
        cluster[0].freeze()
        await until(lambda: bus.stats().reconnects == 1)
        await proven(bus, ear, start=2_000_000)
        assert "did not come back" in (bus.stats().last_error or "")


async def test_what_is_published_anywhere_after_entering_is_heard(cluster: list[LocalServer], channel: str) -> None:
    """The other servers of a cluster learn of an interest some time after the server that has confirmed it."""
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(witness("nats", url(server), channel)) for server in cluster[1:]]
        warm = bus_on(url(cluster[0]), channel)
        async with warm:
            await warm.wait_ready()
            for other in others:  # the routes between the servers are all there
                await until(lambda other=other: other.bodies)  # type: ignore[misc]
        for number in range(100):
            bus = bus_on(url(cluster[0]), f"{channel}.{number}")
            async with bus, listening(bus) as ear:
                for place, other in enumerate(others):
                    await other._client.publish(bus.subject, note(place).encode())
                await ear.wait_for(note(0), note(1), limit=3)
