"""The hub does what it says, for clients of several loops and processes: a kit on a broker that lies proves nothing."""

import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from threading import Thread

import anyio
import pytest

from notification_bus import SendRefusedError
from tests.kit.bridge import join, listen
from tests.kit.hub import Hub, HubConnection
from tests.kit.receiving import BOUND, Received, comes_true, settled


@asynccontextmanager
async def subscriber(hub: Hub) -> AsyncGenerator[Received]:
    async with Received.of(await hub.connect("c")) as received:
        yield received


async def first(connection: HubConnection) -> Sequence[bytes]:
    """The first batch that arrives."""
    async with aclosing(connection.receive()) as batches:
        with anyio.fail_after(BOUND):
            return await anext(batches)


@pytest.fixture
def hub() -> Hub:
    return Hub(max_body=10)


async def test_a_body_reaches_every_subscriber_of_its_channel_and_no_other(hub: Hub) -> None:
    async with subscriber(hub) as one, subscriber(hub) as two, hub.observe("c") as observed:
        sender, stranger = HubConnection(hub, "c"), HubConnection(hub, "d")
        await sender.send([b"1", b"2"])
        await stranger.send([b"3"])
        await settled()
        assert one.bodies == two.bodies == observed.bodies == [b"1", b"2"]
        assert hub.connections == 4
        await sender.aclose()
        await stranger.aclose()
    assert hub.connections == 0


async def test_a_subscription_made_twice_is_sent_two_copies(hub: Hub) -> None:
    connection = await hub.connect("c")
    connection.subscribe()
    await connection.send([b"1"])
    await settled()
    assert await first(connection) == [b"1", b"1"]
    connection.unsubscribe()
    await connection.send([b"2"])
    await connection.send([b"3"])
    connection.subscribe()
    await connection.send([b"4"])
    assert await first(connection) == [b"4"]
    await connection.aclose()


async def test_a_refused_batch_is_refused_whole_and_leaves_the_connection_good(hub: Hub) -> None:
    async with subscriber(hub) as received:
        connection = HubConnection(hub, "c")
        assert connection.max_body == 10
        with pytest.raises(SendRefusedError, match="11 bytes"):
            await connection.send([b"2", b"x" * 11])
        await connection.send([b"3"])
        assert await received.until(1) == [b"3"]
        await connection.aclose()


async def test_a_closed_connection_receives_and_sends_nothing_more(hub: Hub) -> None:
    async with subscriber(hub) as received, hub.observe("c") as observed:
        await received.connection.aclose()
        await received.connection.aclose()
        assert hub.connections == 0
        await hub.inject("c", b"1")
        for request in (received.connection.check(), received.connection.send([b"2"])):
            with pytest.raises(ConnectionError):
                await request
        await comes_true(lambda: received.ended)
        assert (received.bodies, observed.bodies) == ([], [b"1"])


async def test_a_client_whose_loop_has_ended_is_forgotten(hub: Hub) -> None:
    async def leave_it_open() -> None:
        await hub.connect("c")

    thread = Thread(target=lambda: anyio.run(leave_it_open))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert hub.connections == 1
    await hub.inject("c", b"1")
    assert hub.connections == 0


async def test_clients_of_two_loops_hear_each_other(hub: Hub) -> None:
    async def answer() -> None:
        connection, other = await hub.connect("c"), HubConnection(hub, "d")
        await other.send([b"ready"])
        assert await first(connection) == [b"1"]
        await other.send([b"2"])
        await connection.aclose()
        await other.aclose()

    connection, other = await hub.connect("d"), HubConnection(hub, "c")
    thread = Thread(target=lambda: anyio.run(answer))
    thread.start()
    assert await first(connection) == [b"ready"]
    await other.send([b"1"])
    assert await first(connection) == [b"2"]
    await anyio.to_thread.run_sync(thread.join)
    await connection.aclose()
    await other.aclose()


async def test_joined_hubs_are_one(hub: Hub) -> None:
    other, third = Hub(), Hub()
    port = listen(hub)
    join(other, port)
    join(third, port)
    async with subscriber(hub) as one, subscriber(other) as two, subscriber(third) as three:
        with anyio.fail_after(BOUND):
            while not (one.bodies and three.bodies):  # a bridge takes its time to stand
                await other.inject("c", b"1")
        await third.inject("c", b"2")
        await hub.inject("c", b"3")
        await comes_true(lambda: all({b"2", b"3"} <= set(received.bodies) for received in (one, two, three)))


async def test_a_body_that_a_dying_process_did_not_finish_is_not_published(hub: Hub) -> None:
    with socket.create_connection(("127.0.0.1", listen(hub))) as peer:
        async with hub.observe("c") as observed:
            await anyio.to_thread.run_sync(peer.sendall, b"\x00\x01\x00\x00\x00\x02c12" + b"\x00\x01\x00\x00\x00\x02c1")
            peer.shutdown(socket.SHUT_WR)
            # The hub ends its side when it has read everything there is.
            assert await anyio.to_thread.run_sync(peer.recv, 1) == b""
            assert observed.bodies == [b"12"]
