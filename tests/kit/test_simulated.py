"""The simulated broker does what its faults say: a kit on a broker that lies would prove nothing."""

import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from threading import Thread

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.kit.simulated import BrokerRefusedError, SimulatedBroker, SimulatedConnection, SimulatedLink
from tests.kit.simulated.bridge import join, listen

BOUND = 5.0


async def settled(turns: int = 10) -> None:
    """Nothing here needs more than a few turns of the loop, unless a fault holds it back."""
    for _ in range(turns):
        await checkpoint()


async def comes_true(condition: Callable[[], object]) -> None:
    """Wait, within the bound, for what another task or thread brings about."""
    with anyio.fail_after(BOUND):
        while not condition():
            await checkpoint()


class Received:
    """A subscriber at the level of connections."""

    def __init__(self, connection: SimulatedConnection) -> None:
        self.bodies: list[bytes] = []
        self.error: Exception | None = None
        self._connection = connection

    async def run(self) -> None:
        try:
            while True:
                self.bodies += await self._connection.receive()
        except ConnectionError as exc:
            self.error = exc

    async def until(self, count: int) -> list[bytes]:
        await comes_true(lambda: len(self.bodies) >= count)
        return self.bodies


@asynccontextmanager
async def subscriber(broker: SimulatedBroker, link: SimulatedLink) -> AsyncGenerator[Received]:
    connection = await broker.connect(link)
    await connection.subscribe("c")
    received = Received(connection)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(received.run)
        yield received
        tasks.cancel_scope.cancel()
    await connection.aclose()


@pytest.fixture
def broker() -> SimulatedBroker:
    return SimulatedBroker(max_body=10)


async def test_a_body_reaches_every_subscriber_of_its_channel_and_no_other(broker: SimulatedBroker) -> None:
    async with broker.link() as link, subscriber(broker, link) as one, subscriber(broker, link) as two:
        sender = await broker.connect()
        await sender.send("c", [b"1", b"2"])
        await sender.send("d", [b"3"])
        await settled()
        assert one.bodies == two.bodies == [b"1", b"2"]
        await sender.aclose()
    assert broker.connections == 0


async def test_a_subscription_made_twice_is_sent_two_copies(broker: SimulatedBroker) -> None:
    connection = await broker.connect()
    await connection.subscribe("c")
    await connection.subscribe("c")
    await connection.send("c", [b"1"])
    assert await connection.receive() == [b"1", b"1"]
    await connection.unsubscribe("c")
    await connection.send("c", [b"2"])
    await connection.send("c", [b"3"], wait=False)
    await connection.subscribe("c")
    await connection.send("c", [b"4"])
    assert await connection.receive() == [b"4"]
    await connection.aclose()


async def test_a_stall_holds_everything_back_and_restoring_carries_it_in_order(broker: SimulatedBroker) -> None:
    async with broker.link() as link, subscriber(broker, link) as received, anyio.create_task_group() as tasks:
        connection = await broker.connect(link)
        await link.stall()
        await broker.inject("c", b"down")
        answered: list[str] = []

        async def send() -> None:
            await connection.send("c", [b"up"])
            answered.append("send")

        async def connect() -> None:
            await (await broker.connect(link)).aclose()
            answered.append("connect")

        tasks.start_soon(send)
        tasks.start_soon(connect)
        await connection.send("c", [b"unwaited"], wait=False)
        await settled()
        assert (received.bodies, answered) == ([], [])
        await link.restore()
        await received.until(3)
        assert received.bodies[0] == b"down"
        assert set(received.bodies[1:]) == {b"up", b"unwaited"}
        await settled()
        assert sorted(answered) == ["connect", "send"]
        await connection.aclose()


async def test_what_a_closed_connection_had_sent_into_a_stall_still_arrives(broker: SimulatedBroker) -> None:
    async with broker.link() as link, broker.observe("c") as observed:
        connection = await broker.connect(link)
        await link.stall()
        await connection.send("c", [b"1"], wait=False)
        await connection.aclose()
        assert list(observed.bodies) == []
        await link.restore()
        assert list(observed.bodies) == [b"1"]


async def test_a_delay_is_kept_in_both_directions_and_the_order_with_it(broker: SimulatedBroker) -> None:
    async with broker.link() as link, subscriber(broker, link) as received:
        connection = await broker.connect(link)
        await link.delay(0.03)
        began = anyio.current_time()
        await connection.ping()
        assert anyio.current_time() - began >= 0.06
        for number in range(5):
            await connection.send("c", [b"%d" % number], wait=False)
        assert received.bodies == []
        assert await received.until(5) == [b"0", b"1", b"2", b"3", b"4"]
        await connection.aclose()


async def test_restoring_ends_a_delay_at_once(broker: SimulatedBroker) -> None:
    async with broker.link() as link, subscriber(broker, link) as received:
        await link.delay(3600)
        await broker.inject("c", b"1")
        await link.restore()
        assert await received.until(1) == [b"1"]


async def test_a_cut_breaks_what_waits_and_loses_what_was_under_way(broker: SimulatedBroker) -> None:
    async with broker.link() as link, subscriber(broker, link) as received:
        connection = await broker.connect(link)
        await link.stall()
        await connection.send("c", [b"1"], wait=False)
        await link.cut()
        await link.restore()
        with pytest.raises(ConnectionError):
            await connection.ping()
        await broker.inject("c", b"2")
        await settled()
        assert received.bodies == []
        assert isinstance(received.error, ConnectionError)
        assert broker.connections == 0
        assert link.attempts == 2
        async with subscriber(broker, link) as again:
            await broker.inject("c", b"3")
            assert await again.until(1) == [b"3"]


async def test_a_send_under_way_when_the_link_is_cut_arrives_and_raises(broker: SimulatedBroker) -> None:
    async with broker.link() as link, broker.observe("c") as observed, anyio.create_task_group() as tasks:
        connection = await broker.connect(link)
        await link.delay(0.02)

        async def send() -> None:
            with pytest.raises(ConnectionResetError):
                await connection.send("c", [b"1"])

        tasks.start_soon(send)
        await comes_true(lambda: observed.bodies)
        await link.cut()


async def test_a_refusing_link_counts_the_attempts(broker: SimulatedBroker) -> None:
    async with broker.link() as link:
        await link.refuse()
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await broker.connect(link)
        await link.restore()
        await (await broker.connect(link)).aclose()
        assert link.attempts == 4


async def test_a_black_link_says_nothing_and_carries_nothing_while_new_connections_work(
    broker: SimulatedBroker,
) -> None:
    async with broker.link() as link, subscriber(broker, link) as received:
        old = await broker.connect(link)
        await link.blackhole()
        await broker.inject("c", b"1")
        with anyio.move_on_after(0.02) as scope:
            await old.ping()
        assert scope.cancelled_caught
        assert (received.bodies, received.error) == ([], None)
        async with subscriber(broker, link) as again:
            await broker.inject("c", b"2")
            assert await again.until(1) == [b"2"]
        await link.restore()
        assert received.bodies == []
        await old.aclose()


async def test_a_deaf_link_confirms_and_answers_and_delivers_nothing(broker: SimulatedBroker) -> None:
    async with broker.link() as link, broker.observe("c") as observed:
        await link.deaf()
        async with subscriber(broker, link) as received:
            connection = await broker.connect(link)
            await connection.ping()
            await connection.send("c", [b"1"])
            await settled()
            assert (received.bodies, observed.bodies) == ([], [b"1"])
            await link.restore()
            await connection.send("c", [b"2"])
            assert await received.until(1) == [b"2"]
            await connection.aclose()


async def test_a_refused_batch_leaves_the_connection_good(broker: SimulatedBroker) -> None:
    async with broker.link() as link, subscriber(broker, link) as received:
        connection = await broker.connect(link)
        await link.deny()
        with pytest.raises(BrokerRefusedError, match="permission"):
            await connection.send("c", [b"1"])
        await link.restore()
        with pytest.raises(BrokerRefusedError, match="11 bytes"):
            await connection.send("c", [b"2", b"x" * 11])
        await connection.send("c", [b"3"])
        assert await received.until(1) == [b"3"]
        await connection.aclose()


async def test_a_client_whose_loop_has_ended_is_forgotten(broker: SimulatedBroker) -> None:
    async def leave_it_open() -> None:
        await (await broker.connect()).subscribe("c")

    thread = Thread(target=lambda: anyio.run(leave_it_open))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert broker.connections == 1
    await broker.inject("c", b"1")
    assert broker.connections == 0


async def test_a_link_can_be_cut_when_the_loop_of_its_client_has_ended(broker: SimulatedBroker) -> None:
    async with broker.link() as link:

        async def leave_it_open() -> None:
            await broker.connect(link)

        thread = Thread(target=lambda: anyio.run(leave_it_open))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert (broker.connections, link.connections) == (1, 1)
        await link.cut()
        assert (broker.connections, link.connections) == (0, 0)


async def test_clients_of_two_loops_hear_each_other(broker: SimulatedBroker) -> None:
    async def answer() -> None:
        connection = await broker.connect()
        await connection.subscribe("c")
        await connection.send("d", [b"ready"])
        assert await connection.receive() == [b"1"]
        await connection.send("d", [b"2"])
        await connection.aclose()

    connection = await broker.connect()
    await connection.subscribe("d")
    thread = Thread(target=lambda: anyio.run(answer))
    thread.start()
    with anyio.fail_after(BOUND):
        assert await connection.receive() == [b"ready"]
        await connection.send("c", [b"1"])
        assert await connection.receive() == [b"2"]
        await anyio.to_thread.run_sync(thread.join)
    await connection.aclose()


async def test_joined_brokers_are_one(broker: SimulatedBroker) -> None:
    other, third = SimulatedBroker(), SimulatedBroker()
    port = listen(broker)
    join(other, port)
    join(third, port)
    async with (
        broker.link() as here,
        other.link() as there,
        third.link() as beyond,
        subscriber(broker, here) as one,
        subscriber(other, there) as two,
        subscriber(third, beyond) as three,
    ):
        with anyio.fail_after(BOUND):
            while not (one.bodies and three.bodies):  # a bridge takes its time to stand
                await other.inject("c", b"1")
        await third.inject("c", b"2")
        await broker.inject("c", b"3")
        await comes_true(lambda: all({b"2", b"3"} <= set(received.bodies) for received in (one, two, three)))


async def test_a_body_that_a_dying_process_did_not_finish_is_not_published(broker: SimulatedBroker) -> None:
    with socket.create_connection(("127.0.0.1", listen(broker))) as peer:
        async with broker.observe("c") as observed:
            await anyio.to_thread.run_sync(peer.sendall, b"\x00\x01\x00\x00\x00\x02c12" + b"\x00\x01\x00\x00\x00\x02c1")
            peer.shutdown(socket.SHUT_WR)
            # The broker ends its side when it has read everything there is.
            assert await anyio.to_thread.run_sync(peer.recv, 1) == b""
            assert observed.bodies == [b"12"]


Fault = Callable[[SimulatedLink], Coroutine[None, None, None]]


@pytest.mark.parametrize("fault", [SimulatedLink.stall, SimulatedLink.blackhole, SimulatedLink.refuse])
async def test_closing_is_prompt_whatever_the_link_does(broker: SimulatedBroker, fault: Fault) -> None:
    async with broker.link() as link:
        connection = await broker.connect(link)
        await fault(link)
        with anyio.fail_after(BOUND):
            await connection.aclose()
            await connection.aclose()
        assert broker.connections == 0
