"""BrokerBus against connections that misbehave on purpose: what it says, what it counts, and how it stops."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_bus import (
    GAP,
    BrokerBus,
    BrokerConnection,
    BusBackendError,
    BusClosedError,
    BusNotification,
    BusNotReadyError,
    NotificationTooLargeError,
    NotPrimaryError,
    SendRefusedError,
)
from notification_bus._broker.outbox import BURST
from notification_bus._broker.session import _FRAME, _FRAME_BYTES, _pack
from notification_bus.notification import decode_bodies, encode_frame

PATIENCE = 5.0
"""Seconds to wait for what must come."""


class Connection(BrokerConnection):
    """Delivers what it is sent to itself, as a broker with one client does."""

    def __init__(self, *, max_body: int = 1000) -> None:
        self.max_body = max_body
        self.sent: list[bytes] = []
        self.closed = 0
        self.deaf = False
        self._inbox_in, self._inbox = anyio.create_memory_object_stream[Sequence[bytes]](1000)
        self.on_send: Callable[[], Awaitable[None]] | None = None
        self.on_close: Callable[[], Awaitable[None]] | None = None
        self.on_check: Callable[[], Awaitable[None]] | None = None

    async def send(self, bodies: Sequence[bytes]) -> None:
        if self.on_send is not None:
            await self.on_send()
        self.sent.extend(bodies)
        if not self.deaf:
            self._inbox_in.send_nowait(list(bodies))

    def inject(self, *bodies: bytes) -> None:
        self._inbox_in.send_nowait(bodies)

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        async for batch in self._inbox:
            yield batch

    def end(self) -> None:
        self._inbox_in.close()

    async def check(self) -> None:
        if self.on_check is not None:
            await self.on_check()

    async def aclose(self) -> None:
        self.closed += 1
        self._inbox_in.close()
        self._inbox.close()
        if self.on_close is not None:
            await self.on_close()


class Bus(BrokerBus):
    """Makes connections by a function that a test can exchange."""

    broker = "scripted"

    def __init__(self, connect: Callable[[], Awaitable[BrokerConnection]] | None = None, **options: Any) -> None:
        settings: dict[str, Any] = {"probe_interval": 0.2, "probe_timeout": 0.2, "backoff_cap": 0.05} | options
        super().__init__("scripted://host", channel="c", **settings)
        self.connections: list[Connection] = []
        self.connect_with = connect
        self.attempts = 0

    async def connect(self) -> BrokerConnection:
        self.attempts += 1
        if self.connect_with is not None:
            return await self.connect_with()
        connection = Connection()
        self.connections.append(connection)
        return connection


async def refuse() -> BrokerConnection:
    raise ConnectionRefusedError("no broker for secret-word here")


async def hang() -> None:
    await anyio.sleep_forever()


async def eventually(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.sleep(0.005)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_entering_does_not_wait_for_the_broker_and_publishing_does_not_fail_without_it() -> None:
    async with Bus(refuse) as bus:
        await bus.publish(BusNotification("a"))
        assert not bus.stats().connected
    assert bus.stats().dropped == {"closed": 1}


async def test_a_cause_is_logged_once_in_an_outage_with_its_remedy_and_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Remedied(Bus):
        def remedy(self, exc: BaseException) -> str | None:
            return "start one"

    bus = Remedied(refuse)
    bus._secrets = ("secret-word",)
    async with bus:
        await eventually(lambda: bus.attempts > 4)
        (warning,) = warnings_of(caplog)
        assert warning == (
            "<Remedied scripted://host channel='c'> cannot connect; trying again until it works: "
            "ConnectionRefusedError: no broker for *** here (start one)"
        )
        bus.connect_with = None
        await eventually(lambda: any("works again" in record.getMessage() for record in caplog.records))
    assert "secret-word" not in caplog.text


async def test_wait_ready_names_the_cause_and_chains_it() -> None:
    async with Bus(refuse) as bus:
        with pytest.raises(
            BusNotReadyError, match=r"not ready after 0\.1 s: cannot connect: ConnectionRefused"
        ) as caught:
            await bus.wait_ready(0.1)
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)


async def test_wait_ready_names_the_cause_of_each_host_the_last_one_last() -> None:
    """An adapter tries one host at a time, and each has its own trouble."""
    hosts = iter(["a", "b", "a", "b", "c"] * 1000)

    async def each() -> BrokerConnection:
        host = next(hosts)
        raise ConnectionError(f"{host} is down") if host != "c" else PermissionError("c says no")

    async with Bus(each) as bus:
        await eventually(lambda: bus.attempts >= 5)
        with pytest.raises(BusNotReadyError) as caught:
            await bus.wait_ready(0.01)
    told = str(caught.value)
    assert [
        told.count(f"cannot connect: {cause}")
        for cause in ("ConnectionError: a is down", "ConnectionError: b is down", "PermissionError: c says no")
    ] == [1, 1, 1]
    assert told.endswith(bus.stats().last_error or "?")


async def test_entering_a_subscription_raises_after_ready_timeout() -> None:
    async with Bus(refuse, ready_timeout=0.1) as bus:
        with pytest.raises(BusNotReadyError):
            async with bus.subscribe():
                pass
        assert bus.stats().subscriptions == 0


async def test_closing_wakes_whoever_waits_for_readiness() -> None:
    bus = Bus(refuse)
    raised: list[BaseException] = []

    async def wait() -> None:
        try:
            await bus.wait_ready(PATIENCE)
        except BusClosedError as exc:
            raised.append(exc)

    async with anyio.create_task_group() as tasks:
        await bus.__aenter__()
        tasks.start_soon(wait)
        await eventually(lambda: bus.attempts > 1)
        await bus.aclose()
    assert raised


async def test_a_connect_that_hangs_is_given_up_and_tried_again() -> None:
    async def never() -> BrokerConnection:
        await hang()
        raise AssertionError

    async with Bus(never) as bus:
        await eventually(lambda: bus.attempts >= 2)
        assert (bus.stats().last_error or "").startswith("cannot connect: TimeoutError: no answer within 0.2 s (")


@pytest.mark.parametrize("half", ["connect", "send", "receive"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_a_client_lets_escape_does_not_end_the_bus(half: str) -> None:
    """PERFORMANCE: client libraries cancel tasks of their own, and some let it out."""
    escaped = 0

    async def escape() -> None:
        nonlocal escaped
        if escaped < 2:
            escaped += 1
            raise asyncio.CancelledError

    async def connect() -> BrokerConnection:
        if half == "connect":
            await escape()
        connection = Connection()
        if half == "send":
            connection.on_send = escape
        elif half == "receive":

            async def receive() -> AsyncIterator[Sequence[bytes]]:
                await escape()
                async for batch in connection._inbox:
                    yield batch

            connection.receive = receive  # type: ignore[method-assign]
        return connection

    async with Bus(connect) as bus:
        await eventually(lambda: escaped == 2 and bus.stats().connected)
        async with bus.subscribe() as subscription:
            await bus.publish(BusNotification("a"))
            with anyio.fail_after(PATIENCE):
                while (await anext(subscription)).method != "a":
                    pass


async def test_a_subscription_that_the_client_ends_without_a_word_is_made_anew() -> None:
    async with Bus() as bus, bus.subscribe() as subscription:
        await eventually(lambda: bool(bus.connections[0].sent))
        bus.connections[0].end()
        with anyio.fail_after(PATIENCE):
            assert await anext(subscription) == GAP
        assert "ended the subscription" in (bus.stats().last_error or "")


async def test_a_broken_remedy_does_not_end_the_supervisor(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Bus):
        def remedy(self, exc: BaseException) -> str | None:
            raise RuntimeError("bug")

    async with Broken(refuse) as bus:
        await eventually(lambda: bus.attempts > 2)
        bus.connect_with = None
        await bus.wait_ready(PATIENCE)
    assert any("unexpected error" in text for text in warnings_of(caplog))


async def test_what_the_broker_refuses_is_dropped_counted_and_said_and_reading_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bus() as bus, bus.subscribe() as subscription:
        connection = bus.connections[0]
        await eventually(lambda: bool(connection.sent))

        async def deny() -> None:
            raise SendRefusedError("NOPERM: grant it")

        connection.on_send = deny
        await bus.publish(BusNotification("a"))
        await eventually(lambda: bus.stats().dropped == {"refused": 1})
        assert any("NOPERM: grant it" in text for text in warnings_of(caplog))
        connection.inject(b'{"method":"from-a-peer"}')
        assert (await anext(subscription)).method == "from-a-peer"
        connection.on_send = None
        await bus.publish(BusNotification("b"))
        with anyio.fail_after(PATIENCE):
            # What was refused is owed to everybody as a gap, and it comes before what was published later.
            assert [await anext(subscription), await anext(subscription)] == [GAP, BusNotification("b")]
        assert bus.stats().reconnects == 0


async def test_a_listener_that_may_not_publish_stays_connected_while_it_hears_something() -> None:
    async def connect() -> BrokerConnection:
        connection = Connection()

        async def deny() -> None:
            raise SendRefusedError("NOPERM")

        connection.on_send = deny
        bus.connections.append(connection)
        return connection

    async with Bus(connect, probe_interval=0.1) as bus, bus.subscribe() as subscription:
        for number in range(8):
            bus.connections[0].inject(b'{"method":"n"}')
            await anext(subscription)
            await anyio.sleep(0.05 if number else 0)
        assert bus.stats().reconnects == 0
        # Then silence: nothing proves the link any more, so it is made anew, and says so.
        with anyio.fail_after(PATIENCE):
            assert await anext(subscription) == GAP


async def test_the_limit_of_the_connected_broker_is_respected_and_learned(caplog: pytest.LogCaptureFixture) -> None:
    big = BusNotification("a", {"x": "y" * 2000})
    async with Bus(refuse) as bus:
        await bus.publish(big)  # no limit is known yet
        bus.connect_with = None
        await bus.wait_ready(PATIENCE)
        await eventually(lambda: bus.stats().dropped == {"too_large": 1})
        assert any("at most 1000 bytes" in text for text in warnings_of(caplog))
        with pytest.raises(NotificationTooLargeError, match=r"has 20\d\d bytes .* at most 1000"):
            await bus.publish(big)


async def test_a_node_that_stops_being_the_primary_is_left_and_peers_are_warned() -> None:
    async def demoted() -> None:
        raise NotPrimaryError("now a replica")

    async with Bus() as bus, bus.subscribe() as subscription:
        bus.connections[0].on_check = demoted
        with anyio.fail_after(PATIENCE):
            assert await anext(subscription) == GAP
        await eventually(lambda: any(b"notifications/bus/gap" in body for body in bus.connections[1].sent))


async def test_what_was_in_doubt_is_announced_on_the_wire_until_a_probe_has_confirmed_it() -> None:
    async with Bus(probe_interval=60.0) as bus:
        await bus.wait_ready(PATIENCE)
        await eventually(lambda: bool(bus.connections[0].sent))
        await bus.publish(BusNotification("a"))
        await eventually(lambda: any(b'"a"' in body for body in bus.connections[0].sent))
        bus.connections[0].end()
        await eventually(lambda: len(bus.connections) == 2 and len(bus.connections[1].sent) >= 2)
        assert bus.stats().in_doubt == 1
        assert [b"bus/gap" in body for body in bus.connections[1].sent] == [True, False]
        await eventually(lambda: bus._ledger.debt.paid == bus._ledger.debt.epoch)
        bus.connections[1].end()
        await eventually(lambda: len(bus.connections) == 3 and bool(bus.connections[2].sent))
        # The probe behind the gap came back, so nothing is owed any more.
        assert not any(b"bus/gap" in body for body in bus.connections[2].sent)


async def test_a_gap_of_a_peer_is_told_whatever_this_instance_has_announced_itself() -> None:
    async with Bus() as bus, bus.subscribe() as subscription:
        for _ in range(3):  # losses of its own, so that its numbers are ahead of the peer's
            await eventually(lambda: bus.stats().connected and bool(bus.connections[-1].sent))
            await bus.publish(BusNotification("a"))
            await eventually(lambda: any(b'"a"' in body for body in bus.connections[-1].sent))
            connections = len(bus.connections)
            bus.connections[-1].end()
            await eventually(lambda before=connections: len(bus.connections) > before)  # type: ignore[misc]
        await eventually(lambda: bus.stats().connected and bus._ledger.debt.paid == bus._ledger.debt.epoch)
        assert bus._ledger.debt.epoch >= 3
        bus.connections[-1].inject(b'{"method":"before"}')
        with anyio.fail_after(PATIENCE):
            while (await anext(subscription)).method != "before":
                pass
        for gap in (b'{"method":"notifications/bus/gap","params":{"from":"peer","epoch":1}}', GAP.encode()):
            bus.connections[-1].inject(gap)
            with anyio.fail_after(PATIENCE):
                assert await anext(subscription) == GAP


async def test_a_connection_that_delivers_nothing_is_given_up_with_the_reason() -> None:
    async with Bus() as bus:
        await bus.wait_ready(PATIENCE)
        await eventually(lambda: bool(bus.connections[0].sent))
        bus.connections[0].deaf = True
        await eventually(lambda: bus.stats().reconnects > 0)
        assert "did not come back within 0.2 s" in (bus.stats().last_error or "")


async def test_a_cancelled_publish_has_published() -> None:
    async with Bus() as bus, bus.subscribe() as subscription:
        number = -1
        with anyio.CancelScope() as scope:
            scope.cancel()
            for number in range(1000):
                await bus.publish(BusNotification("n", {"number": number}))
        # A lone publish is no place to be cancelled in, a burst is; the last one of it had been handed off already.
        assert scope.cancelled_caught
        with anyio.fail_after(PATIENCE):
            got = [await anext(subscription) for _ in range(number + 1)]
        assert [n.params for n in got] == [{"number": each} for each in range(number + 1)]


async def test_something_else_than_a_notification_is_refused_by_its_type() -> None:
    async with Bus() as bus:
        with pytest.raises(TypeError, match="dict"):
            await bus.publish({"method": "a"})  # type: ignore[arg-type]


async def test_malformed_bodies_are_counted_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async with Bus() as bus, bus.subscribe() as subscription:
        bus.connections[0].inject(
            *[b"secret " * 1000] * 50, b'{"method":"notifications/bus/probe"}', b'{"method":"ok"}'
        )
        with anyio.fail_after(PATIENCE):
            assert (await anext(subscription)).method == "ok"
        assert bus.stats().malformed == 51
    texts = [text for text in warnings_of(caplog) if "skipped" in text]
    assert len(texts) == 2, "one at once, the rest as a count when the bus closes"
    assert all(len(text) < 500 for text in texts)


async def test_closing_sends_what_is_queued_and_takes_leave() -> None:
    async with Bus() as bus:
        await bus.wait_ready(PATIENCE)
        for number in range(50):
            await bus.publish(BusNotification("n", {"number": number}))
    sent = [n for body in bus.connections[0].sent for n in decode_bodies(body)[0]]
    assert [n.params for n in sent if n.method == "n"] == [{"number": number} for number in range(50)]
    assert sent[-1].params is not None
    assert sent[-1].params["leaving"] is True
    assert bus.connections[0].closed == 1
    assert bus.stats().in_doubt == 0


@pytest.mark.parametrize("state", ["connecting", "backing off", "send hangs", "close hangs", "check hangs"])
async def test_closing_is_bounded_in_any_state(state: str) -> None:
    bus = Bus(close_timeout=0.3, probe_timeout=PATIENCE, backoff_cap=60.0)

    async def never() -> BrokerConnection:
        await hang()
        raise AssertionError

    async with anyio.create_task_group() as tasks:
        bus.connect_with = {"connecting": never, "backing off": refuse}.get(state)
        await bus.__aenter__()
        if state in {"connecting", "backing off"}:
            await eventually(lambda: bus.attempts > (3 if state == "backing off" else 0))
        else:
            await bus.wait_ready(PATIENCE)
            await eventually(lambda: bool(bus.connections[0].sent))
            setattr(
                bus.connections[0],
                {"send": "on_send", "close": "on_close", "check": "on_check"}[state.split(maxsplit=1)[0]],
                hang,
            )
        await bus.publish(BusNotification("a"))
        began = anyio.current_time()
        await bus.aclose()
        assert anyio.current_time() - began < 0.3 + 0.3
        assert not bus.stats().connected
        tasks.cancel_scope.cancel()
    with pytest.raises(BusClosedError):
        await bus.publish(BusNotification("a"))


async def test_the_last_exit_stops_and_a_new_entering_starts_again() -> None:
    bus = Bus()
    async with bus:
        async with bus:
            await bus.wait_ready(PATIENCE)
        assert bus.stats().connected
        await bus.publish(BusNotification("a"))
    assert not bus.stats().connected
    async with bus, bus.subscribe() as subscription:
        await bus.publish(BusNotification("b"))
        with anyio.fail_after(PATIENCE):
            assert (await anext(subscription)).method == "b"


def test_a_bus_built_without_a_loop_works_on_one_loop_after_the_other() -> None:
    bus = Bus()

    async def use() -> None:
        async with bus, bus.subscribe() as subscription:
            await bus.publish(BusNotification("a"))
            with anyio.fail_after(PATIENCE):
                assert (await anext(subscription)).method == "a"

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(use, backend=backend)


def test_a_loop_that_ended_without_closing_the_bus_does_not_spoil_it_for_the_next(
    recwarn: pytest.WarningsRecorder,
) -> None:
    bus = Bus()

    async def leave_open() -> None:
        await bus.__aenter__()
        await bus.wait_ready(PATIENCE)

    async def use() -> None:
        async with bus, bus.subscribe() as subscription:
            await bus.publish(BusNotification("a"))
            with anyio.fail_after(PATIENCE):
                assert (await anext(subscription)).method == "a"

    anyio.run(leave_open)
    anyio.run(use)


def test_the_wrong_async_library_is_refused_in_one_clear_sentence() -> None:
    class AsyncioOnly(Bus):
        backends = ("asyncio",)

    async def enter() -> None:
        async with AsyncioOnly():
            pass

    with pytest.raises(BusBackendError, match=r"AsyncioOnly runs on asyncio only.*this is trio.*backend='asyncio'"):
        anyio.run(enter, backend="trio")


def test_a_bus_on_another_loop_says_where_it_is_open() -> None:
    bus = Bus()

    async def elsewhere() -> None:
        with pytest.raises(BusClosedError, match="another event loop"):
            await bus.publish(BusNotification("a"))

    async def main() -> None:
        async with bus:
            await anyio.to_thread.run_sync(anyio.run, elsewhere)

    anyio.run(main)


async def test_frames_are_written_only_when_asked_for_and_read_always() -> None:
    async with Bus(frames=True, buffer=5000) as bus, bus.subscribe() as subscription:
        for number in range(1000):
            await bus.publish(BusNotification("n", {"number": number}))
        with anyio.fail_after(PATIENCE):
            got = [await anext(subscription) for _ in range(1000)]
        assert [n.params for n in got] == [{"number": number} for number in range(1000)]
        assert any(body.startswith(b"[") for body in bus.connections[0].sent)
    async with Bus(buffer=5000) as bus, bus.subscribe() as subscription:
        for number in range(300):
            await bus.publish(BusNotification("n", {"number": number}))
        for _ in range(300):
            await anext(subscription)
        assert not any(body.startswith(b"[") for body in bus.connections[0].sent)


async def test_a_burst_from_the_broker_does_not_overflow_a_reader_that_reads() -> None:
    async with Bus(buffer=8) as bus, bus.subscribe() as subscription:
        bodies = [BusNotification("n", {"number": number}).encode() for number in range(500)]
        bus.connections[0].inject(*bodies)
        with anyio.fail_after(PATIENCE):
            got = [(await anext(subscription)).params for _ in range(500)]
        assert got == [{"number": number} for number in range(500)]


async def test_frames_larger_than_a_turn_do_not_overflow_a_reader_that_reads() -> None:
    async with Bus() as bus, bus.subscribe() as subscription:
        bodies = [BusNotification("n", {"number": number}).encode() for number in range(5000)]
        bus.connections[0].inject(*(encode_frame(bodies[start : start + 100]) for start in range(0, 5000, 100)))
        with anyio.fail_after(PATIENCE):
            got = [(await anext(subscription)).params for _ in range(5000)]
        assert got == [{"number": number} for number in range(5000)]


async def test_without_subscriptions_only_the_probes_are_read() -> None:
    async with Bus() as bus:
        await bus.wait_ready()
        connection = bus.connections[0]
        connection.inject(*[b"no notification"] * 500, b'{"method":"\\u006eotifications/bus/probe"}')
        await eventually(lambda: bus.stats().malformed == 1)  # the probe that cannot be read, whatever its spelling
        probes = sum(b"probe" in body for body in connection.sent)
        await eventually(lambda: sum(b"probe" in body for body in connection.sent) > probes + 1)
        assert bus.stats().reconnects == 0, "its own probes still come back"
        async with bus.subscribe() as subscription:
            connection.inject(b"no notification", b'{"method":"ok"}')
            with anyio.fail_after(PATIENCE):
                assert (await anext(subscription)).method == "ok"
            assert bus.stats().malformed == 2


async def test_a_burst_is_sent_in_large_batches_and_gives_turns_before_a_small_outbox_overflows() -> None:
    sizes: list[int] = []

    class Counting(Connection):
        async def send(self, bodies: Sequence[bytes]) -> None:
            sizes.append(len(bodies))
            await super().send(bodies)

    async def connect() -> BrokerConnection:
        return Counting()

    async with Bus(connect, buffer=5000) as bus, bus.subscribe():
        for number in range(1000):
            await bus.publish(BusNotification("n", {"number": number}))
        await eventually(lambda: bus.stats().delivered == 1000)
        assert max(sizes) > 2 * BURST
    async with Bus(connect, outbox=8) as bus, bus.subscribe():
        for number in range(1000):
            await bus.publish(BusNotification("n", {"number": number}))
        await eventually(lambda: bus.stats().delivered == 1000)
        assert not bus.stats().dropped


@given(st.lists(st.integers(20, 40_000), min_size=1, max_size=300), st.integers(1000, _FRAME_BYTES))
def test_frames_keep_order_and_stay_within_their_limits(sizes: list[int], limit: int) -> None:
    bodies = [BusNotification("n", {"i": i, "x": "y" * size}).encode() for i, size in enumerate(sizes)]
    frames = _pack(bodies, limit)
    read = [n for frame in frames for n in decode_bodies(frame)[0]]
    assert [n.encode() for n in read] == bodies
    for frame in frames:
        assert len(frame) <= max(limit, *(len(body) for body in bodies))
        assert len(decode_bodies(frame)[0]) <= _FRAME
