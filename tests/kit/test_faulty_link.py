"""A `FaultyLink` does what its faults say: a kit on a link that lies proves nothing."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from threading import Thread

import anyio
import pytest

from notification_bus import BrokerConnection, SendRefusedError
from notification_bus.testing import FaultyLink
from tests.kit.hub import Hub, HubConnection
from tests.kit.receiving import BOUND, Received, comes_true, settled


class Client:
    """What a bus is to a link: something that connects."""

    def __init__(self, hub: Hub, link: FaultyLink) -> None:
        self._hub = hub
        link.lead(self)

    async def connect(self) -> BrokerConnection:
        return await self._hub.connect("c")


async def connect(hub: Hub, link: FaultyLink) -> BrokerConnection:
    return await Client(hub, link).connect()


@asynccontextmanager
async def subscriber(hub: Hub, link: FaultyLink) -> AsyncGenerator[Received]:
    async with Received.of(await connect(hub, link)) as received:
        yield received


@pytest.fixture
def hub() -> Hub:
    return Hub(max_body=10)


async def test_without_a_fault_everything_is_carried(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received:
        connection = await connect(hub, link)
        assert connection.max_body == 10
        await connection.check()
        await connection.send([b"1", b"2"])
        await hub.inject("c", b"3")
        assert await received.until(3) == [b"1", b"2", b"3"]
        with pytest.raises(SendRefusedError, match="11 bytes"):
            await connection.send([b"x" * 11])
        await connection.aclose()
        assert hub.connections == 1
    assert hub.connections == 0


async def test_a_stall_holds_everything_back_and_restoring_carries_it_in_order(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received, anyio.create_task_group() as tasks:
        connection = await connect(hub, link)
        await link.stall()
        await hub.inject("c", b"down")
        answered: list[str] = []

        async def send() -> None:
            await connection.send([b"up"])
            answered.append("send")

        async def connect_anew() -> None:
            await (await connect(hub, link)).aclose()
            answered.append("connect")

        tasks.start_soon(send)
        await settled()
        tasks.start_soon(connect_anew)
        tasks.start_soon(connection.send, [b"later"])
        await settled()
        assert (received.bodies, answered) == ([], [])
        await link.restore()
        assert await received.until(3) == [b"down", b"up", b"later"]
        await comes_true(lambda: sorted(answered) == ["connect", "send"])
        await connection.aclose()


async def test_what_a_closed_connection_had_sent_into_a_stall_still_arrives(hub: Hub) -> None:
    async with (
        FaultyLink.open() as link,
        subscriber(hub, link) as received,
        hub.observe("c") as observed,
        anyio.create_task_group() as tasks,
    ):
        await link.stall()
        tasks.start_soon(received.connection.send, [b"1"])
        await settled()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await received.connection.aclose()
            await settled()
            assert observed.bodies == []
            await link.restore()
            await comes_true(lambda: hub.connections == 0)
            assert observed.bodies == [b"1"]
            assert received.bodies == []


async def test_a_delay_is_kept_in_both_directions_and_the_order_with_it(hub: Hub) -> None:
    async with (
        FaultyLink.open() as link,
        subscriber(hub, link) as received,
        anyio.create_task_group() as tasks,
    ):
        connection = await connect(hub, link)
        await link.delay(0.03)
        began = anyio.current_time()
        await connection.check()
        assert anyio.current_time() - began >= 0.06
        for number in range(5):
            tasks.start_soon(connection.send, [b"%d" % number])
        await settled()
        assert received.bodies == []
        assert sorted(await received.until(5), key=str) == [b"0", b"1", b"2", b"3", b"4"]
        for number in range(5):
            await hub.inject("c", b"%d" % number)
        assert (await received.until(10))[5:] == [b"0", b"1", b"2", b"3", b"4"]
        await connection.aclose()


async def test_a_delay_is_one_of_the_way_and_not_one_for_each(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received:
        await link.delay(0.1)
        began = anyio.current_time()
        for _ in range(20):
            await hub.inject("c", b"1")
            await settled()
        await received.until(20)
        assert 0.1 <= anyio.current_time() - began < 1.0


async def test_restoring_ends_a_delay_at_once(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received:
        await link.delay(3600)
        await hub.inject("c", b"1")
        await link.restore()
        assert await received.until(1) == [b"1"]


async def test_a_cut_breaks_what_waits_and_loses_what_was_under_way(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received, hub.observe("c") as observed:
        connection = await connect(hub, link)
        await link.stall()

        async def send() -> None:
            with pytest.raises(ConnectionResetError, match="the link was cut"):
                await connection.send([b"1"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await settled()
            await link.cut()
        await link.restore()
        for request in (connection.check(), connection.send([b"2"])):
            with pytest.raises(ConnectionError):
                await request
        await comes_true(lambda: received.ended)
        assert isinstance(received.error, ConnectionError)
        await comes_true(lambda: hub.connections == 0)
        await hub.inject("c", b"3")
        await settled()
        assert (received.bodies, observed.bodies) == ([], [b"3"])
        assert link.attempts == 2
        async with subscriber(hub, link) as again:
            await hub.inject("c", b"4")
            assert await again.until(1) == [b"4"]


async def test_a_send_under_way_when_the_link_is_cut_arrives_and_raises(hub: Hub) -> None:
    async with FaultyLink.open() as link, hub.observe("c") as observed, anyio.create_task_group() as tasks:
        connection = await connect(hub, link)
        await link.delay(0.02)

        async def send() -> None:
            with pytest.raises(ConnectionResetError):
                await connection.send([b"1"])

        tasks.start_soon(send)
        await comes_true(lambda: observed.bodies)
        await link.cut()


async def test_a_connection_that_is_being_made_when_the_link_is_cut_is_closed(hub: Hub) -> None:
    async with FaultyLink.open() as link, anyio.create_task_group() as tasks:
        await link.delay(0.02)

        async def fail_to_connect() -> None:
            with pytest.raises(ConnectionResetError):
                await connect(hub, link)

        tasks.start_soon(fail_to_connect)
        await comes_true(lambda: hub.connections == 1)
        await link.cut()
    assert hub.connections == 0


async def test_a_refusing_link_counts_the_attempts(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received:
        await link.refuse()
        await comes_true(lambda: received.ended)
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await connect(hub, link)
        await link.restore()
        await (await connect(hub, link)).aclose()
        assert link.attempts == 5


async def test_a_black_link_says_nothing_and_carries_nothing_while_new_connections_work(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received, hub.observe("c") as observed:
        old = await connect(hub, link)
        await link.blackhole()
        await link.cut()  # which is for the connections that are present: these are not
        await hub.inject("c", b"1")
        for request in (old.check, lambda: old.send([b"lost"])):
            with anyio.move_on_after(0.02) as scope:
                await request()
            assert scope.cancelled_caught
        assert (received.bodies, received.error) == ([], None)
        async with subscriber(hub, link) as again:
            await hub.inject("c", b"2")
            assert await again.until(1) == [b"2"]
        await link.restore()
        await settled()
        assert (received.bodies, received.error) == ([], None)
        assert observed.bodies == [b"1", b"2"]
        await old.aclose()


async def test_a_deaf_link_confirms_and_answers_and_delivers_nothing(hub: Hub) -> None:
    async with FaultyLink.open() as link, hub.observe("c") as observed:
        await link.deaf()
        async with subscriber(hub, link) as received:
            connection = await connect(hub, link)
            await connection.check()
            await connection.send([b"1"])
            await settled()
            assert (received.bodies, observed.bodies) == ([], [b"1"])
            await link.restore()
            await connection.send([b"2"])
            assert await received.until(1) == [b"2"]
            await connection.aclose()


async def test_a_link_that_denies_leaves_the_connection_good(hub: Hub) -> None:
    async with FaultyLink.open() as link, subscriber(hub, link) as received:
        connection = await connect(hub, link)
        await link.deny()
        with pytest.raises(SendRefusedError, match="permission"):
            await connection.send([b"1"])
        await link.restore()
        await connection.send([b"2"])
        assert await received.until(1) == [b"2"]
        await connection.aclose()


class Failing(HubConnection):
    """Ends its stream and cannot be closed, each with an error of its own."""

    async def receive(self) -> AsyncGenerator[Sequence[bytes]]:
        yield [b"1"]
        raise ConnectionAbortedError("the broker has gone")

    async def aclose(self) -> None:
        await super().aclose()
        raise OSError("the client cannot be closed")


async def test_errors_of_the_connection_itself_are_raised_as_they_are(hub: Hub) -> None:
    class FailingClient(Client):
        async def connect(self) -> BrokerConnection:
            return Failing(self._hub, "c")

    async with FaultyLink.open() as link:
        connection = await FailingClient(hub, link).connect()
        batches = connection.receive()
        assert await anext(batches) == [b"1"]
        with pytest.raises(ConnectionAbortedError, match="the broker has gone"):
            await anext(batches)
        with pytest.raises(OSError, match="cannot be closed"):
            await connection.aclose()


async def test_a_link_can_be_cut_when_the_loop_of_its_client_has_ended(hub: Hub) -> None:
    async with FaultyLink.open() as link:

        async def leave_it_open() -> None:
            await connect(hub, link)

        thread = Thread(target=lambda: anyio.run(leave_it_open))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        await link.cut()
        assert hub.connections == 0


Fault = Callable[[FaultyLink], Coroutine[None, None, None]]


@pytest.mark.parametrize(
    "fault", [FaultyLink.stall, FaultyLink.blackhole, FaultyLink.refuse, FaultyLink.deaf, FaultyLink.deny]
)
async def test_closing_is_prompt_whatever_the_link_does(hub: Hub, fault: Fault) -> None:
    async with FaultyLink.open() as link:
        connection = await connect(hub, link)
        await fault(link)
        with anyio.fail_after(BOUND):
            await connection.aclose()
            await connection.aclose()
        assert hub.connections == 0


async def test_a_link_that_ends_leaves_no_connection(hub: Hub) -> None:
    """Nor one that was closed while the link held back what it had sent."""
    async with anyio.create_task_group() as tasks, FaultyLink.open() as link:
        closed, _open = await connect(hub, link), await connect(hub, link)
        await link.stall()
        tasks.start_soon(closed.send, [b"1"])
        await settled()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await closed.aclose()
            assert hub.connections == 2
    assert hub.connections == 0
