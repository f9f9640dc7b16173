"""The guarantee, as a property of whole fleets under scripted faults, in virtual time and without a broker.

A notification that was published while a subscription was open is either yielded by it or followed there by a GAP; none
is yielded twice; those of one publisher arrive in order. Everything else about BrokerBus may change, this may not.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio
import pytest
import trio
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from notification_bus import (
    GAP,
    BrokerBus,
    BrokerConnection,
    BusClosedError,
    BusNotification,
    NotPrimaryError,
    SendRefusedError,
)
from notification_bus._fanout import Subscription

INTERVAL = 2.0
TIMEOUT = 1.0
OUTBOX = 8
BUFFER = 8
SETTLE = 60.0
"""Virtual seconds: more than any detection and back-off can take."""

Fault: TypeAlias = Literal["cut", "refuse", "deaf", "stall", "blackhole", "deny", "strand", "demote", "restore"]


@dataclass
class Link:
    """What one instance's way to the hub does to it."""

    refuse: bool = False
    deaf: bool = False
    deny: bool = False
    stalled: bool = False
    strand: bool = False
    connections: list["ScriptedConnection"] = field(default_factory=list["ScriptedConnection"])

    def cut(self) -> None:
        for connection in self.connections:
            connection.cut = True
            connection.wake()


class Hub:
    """The channel: what is sent is delivered at once, in order, to every connection on the sender's node."""

    def __init__(self) -> None:
        self.connections: list[ScriptedConnection] = []

    def deliver(self, sender: "ScriptedConnection", bodies: Sequence[bytes]) -> None:
        for connection in self.connections:
            if sender.demoted and connection is not sender:
                continue
            if connection.node == sender.node and not connection.black and not connection.deaf:
                connection.queue.extend(bodies)
                connection.wake()


class ScriptedConnection(BrokerConnection):
    def __init__(self, hub: Hub, link: Link) -> None:
        self.hub, self.link = hub, link
        # A stranded connection is attached to a node that everybody else has left, and never comes back from there.
        self.node = object() if link.strand else hub
        self.queue: deque[bytes] = deque()
        self.cut = self.black = self.closed = False
        # Confirmed and never served: what a pooler does to a LISTEN. Only a new connection mends it.
        self.deaf = link.deaf
        # A primary no more: it hears the new one and echoes to itself, and nothing sent on it reaches anybody else.
        self.demoted = False
        self._event = anyio.Event()
        hub.connections.append(self)
        link.connections.append(self)

    def wake(self) -> None:
        self._event.set()
        self._event = anyio.Event()

    async def send(self, bodies: Sequence[bytes]) -> None:
        await anyio.sleep(0.01)
        while self.link.stalled and not self.cut:
            await self._event.wait()
        if self.cut:
            # Half of the batch went through: which half, the sender cannot know.
            if not self.black:
                self.hub.deliver(self, bodies[: len(bodies) // 2])
            raise ConnectionResetError("cut")
        if self.black:
            return
        if self.link.deny:
            raise SendRefusedError("NOPERM")
        self.hub.deliver(self, bodies)

    async def check(self) -> None:
        await anyio.sleep(0.01)
        if self.demoted:
            raise NotPrimaryError("demoted")

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            while not self.queue and not self.cut:
                await self._event.wait()
            if self.cut:
                raise ConnectionResetError("cut")
            if self.link.stalled:
                await self._event.wait()
                continue
            batch = list(self.queue)
            self.queue.clear()
            yield batch

    async def aclose(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        self.hub.connections.remove(self)
        self.link.connections.remove(self)


class ScriptedBus(BrokerBus):
    def __init__(self, hub: Hub, link: Link, name: str) -> None:
        super().__init__(
            f"hub://{name}",
            channel="fleet",
            outbox=OUTBOX,
            buffer=BUFFER,
            probe_interval=INTERVAL,
            probe_timeout=TIMEOUT,
            ready_timeout=SETTLE,
        )
        self.hub, self.link = hub, link

    async def connect(self) -> BrokerConnection:
        await anyio.sleep(0.02)
        if self.link.refuse:
            raise ConnectionRefusedError("refused")
        while self.link.stalled:
            await anyio.sleep(0.1)
        return ScriptedConnection(self.hub, self.link)


@dataclass
class Published:
    instance: int
    number: int
    at: int
    witnesses: list["Reader"]
    excused: bool = False


@dataclass
class Reader:
    """A subscription and what it has yielded, each with its place in the order of everything that happened."""

    instance: int
    subscription: Subscription
    slow: bool
    seen: list[tuple[int, BusNotification]] = field(default_factory=list[tuple[int, BusNotification]])
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    open: bool = True
    ended_early: bool = False


Step: TypeAlias = (
    tuple[Literal["publish"], int, int]
    | tuple[Literal["fault"], int, Fault]
    | tuple[Literal["subscribe"], int, bool]
    | tuple[Literal["leave"], int, int]
    | tuple[Literal["cancel_publish"], int, int]
    | tuple[Literal["cancel_enter"], int, int]
    | tuple[Literal["cancel_read"], int, int]
    | tuple[Literal["wait"], int, float]
    | tuple[Literal["restart"], int, int]
)


class Fleet:
    def __init__(self, size: int) -> None:
        self.hub = Hub()
        self.links = [Link() for _ in range(size)]
        self.buses = [ScriptedBus(self.hub, link, str(i)) for i, link in enumerate(self.links)]
        self.published: list[Published] = []
        self.readers: list[Reader] = []
        self.clock = 0
        self.stop = anyio.Event()

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    async def publish(self, instance: int) -> None:
        witnesses = [reader for reader in self.readers if reader.open]
        number = len(self.published)
        # The moment of publishing comes before the call: what happens within it happens after.
        self.published.append(Published(instance, number, self.tick(), witnesses))
        await self.buses[instance].publish(BusNotification("n", {"instance": instance, "number": number}))

    async def subscribe(self, tasks: anyio.abc.TaskGroup, instance: int, *, slow: bool) -> None:
        async def read() -> None:
            # Whoever subscribes while the bus is being restarted is told so, which is all that is promised then.
            with suppress(BusClosedError):
                await listen()

        async def listen() -> None:
            async with self.buses[instance].subscribe() as subscription:
                reader = Reader(instance, subscription, slow)
                self.readers.append(reader)
                with reader.scope:
                    try:
                        if slow:
                            await self.stop.wait()
                        async for notification in subscription:
                            reader.seen.append((self.tick(), notification))
                    finally:
                        reader.open = False
                        # A stream that its owner or its bus has ended is owed nothing more.
                        reader.ended_early = reader.ended_early or not self.stop.is_set()

        tasks.start_soon(read)

    async def run(self, steps: Sequence[Step]) -> None:
        async with anyio.create_task_group() as tasks:
            for bus in self.buses:
                await bus.__aenter__()
                await bus.wait_ready()
            for instance in range(len(self.buses)):
                await self.subscribe(tasks, instance, slow=False)
            await anyio.sleep(1)
            for step in steps:
                await self.step(tasks, step)
            for link in self.links:
                self.fault(link, "restore")
            await anyio.sleep(SETTLE)
            self.stop.set()
            await anyio.sleep(1)
            for bus in self.buses:
                assert bus.stats().connected, f"{bus!r} is not back: {bus.stats()}"
                await bus.aclose()
            tasks.cancel_scope.cancel()
        assert not self.hub.connections, "a connection was left open"

    async def step(self, tasks: anyio.abc.TaskGroup, step: Step) -> None:
        match step:
            case ("publish", instance, count):
                for _ in range(count):
                    await self.publish(instance)
            case ("fault", instance, fault):
                self.fault(self.links[instance], fault)
            case ("subscribe", instance, slow):
                await self.subscribe(tasks, instance, slow=slow)
            case ("leave", _, which):
                still_open = [reader for reader in self.readers if reader.open]
                if still_open:
                    reader = still_open[which % len(still_open)]
                    reader.open = False
                    reader.scope.cancel()
            case ("cancel_publish", instance, count):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    for _ in range(count):
                        await self.publish(instance)
            case ("cancel_enter", instance, _):
                with anyio.move_on_after(0.05):
                    async with self.buses[instance].subscribe():
                        pass
            case ("cancel_read", instance, _):
                with anyio.move_on_after(5):
                    async with self.buses[instance].subscribe() as subscription:
                        for _ in range(3):
                            with anyio.move_on_after(0.01):
                                await anext(subscription)
            case ("wait", _, seconds):
                await anyio.sleep(seconds)
            case ("restart", instance, _):
                await self.restart(tasks, instance)

    async def restart(self, tasks: anyio.abc.TaskGroup, instance: int) -> None:
        healthy = self.links[instance] == Link(connections=self.links[instance].connections)
        if not healthy:
            # What this process held is its own to lose: it is stopped while it cannot reach anybody.
            for published in self.published:
                published.excused = published.excused or published.instance == instance
        for reader in self.readers:
            reader.ended_early = reader.ended_early or reader.instance == instance
        await self.buses[instance].aclose()
        await self.buses[instance].__aenter__()
        await self.subscribe(tasks, instance, slow=False)

    def fault(self, link: Link, fault: Fault) -> None:
        match fault:
            case "cut":
                link.cut()
            case "refuse":
                link.refuse = True
                link.cut()
            case "deaf":
                link.deaf = True
                for connection in link.connections:
                    connection.deaf = True
            case "stall":
                link.stalled = True
            case "blackhole":
                for connection in link.connections:
                    connection.black = True
            case "deny":
                link.deny = True
            case "demote":
                for connection in link.connections:
                    connection.demoted = True
            case "strand":
                link.strand = True
                link.cut()
            case "restore":
                link.refuse = link.deaf = link.deny = link.stalled = link.strand = False
                for connection in link.connections:
                    connection.wake()

    def check(self) -> None:
        for reader in self.readers:
            seen = [
                (n.params["instance"], int(str(n.params["number"]))) for _, n in reader.seen if n.params is not None
            ]
            assert len(seen) == len(set(seen)), f"yielded twice: {seen}"
            for instance in range(len(self.buses)):
                own = [number for publisher, number in seen if publisher == instance]
                assert own == sorted(own), f"out of order from {instance}: {own}"
        for published in self.published:
            if published.excused:
                continue
            for reader in published.witnesses:
                if reader.ended_early:
                    continue
                yielded = any(n.params is not None and n.params["number"] == published.number for _, n in reader.seen)
                warned = any(n == GAP and at > published.at for at, n in reader.seen)
                assert yielded or warned, (
                    f"notification {published.number} of instance {published.instance} was missed without a word by a "
                    f"subscription of instance {reader.instance}: {reader.seen}"
                )


def run_fleet(size: int, steps: Sequence[Step]) -> Fleet:
    async def main() -> Fleet:
        fleet = Fleet(size)
        await fleet.run(steps)
        return fleet

    return trio.run(main, clock=MockClock(autojump_threshold=0))


instances = st.integers(0, 2)
faults = st.sampled_from(("cut", "refuse", "deaf", "stall", "blackhole", "deny", "demote", "restore", "restore"))
steps_strategy: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), instances, st.integers(1, 3 * OUTBOX)),
        st.tuples(st.just("fault"), instances, faults),
        st.tuples(st.just("subscribe"), instances, st.booleans()),
        st.tuples(st.just("leave"), instances, st.integers(0, 5)),
        st.tuples(st.just("cancel_publish"), instances, st.integers(1, 3)),
        st.tuples(st.just("cancel_enter"), instances, st.just(0)),
        st.tuples(st.just("cancel_read"), instances, st.just(0)),
        st.tuples(st.just("wait"), instances, st.sampled_from((0.005, 0.05, 0.5, 2.0, 8.0))),
        st.tuples(st.just("restart"), instances, st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_strategy)
@example(steps=[("fault", 0, "cut"), ("publish", 1, 2)])
@example(steps=[("fault", 0, "blackhole"), ("publish", 0, 3), ("wait", 0, 8.0), ("publish", 1, 1)])
@example(
    steps=[("fault", 0, "stall"), ("publish", 0, 5), ("wait", 0, 0.05), ("fault", 0, "cut"), ("fault", 0, "restore")]
)
@example(steps=[("fault", 0, "refuse"), ("publish", 0, 3 * OUTBOX), ("wait", 0, 2.0)])
@example(steps=[("fault", 0, "deny"), ("publish", 0, 1), ("wait", 0, 8.0)])
@example(steps=[("fault", 0, "deaf"), ("publish", 1, 3), ("wait", 0, 0.5), ("fault", 0, "restore")])
def test_a_notification_is_yielded_or_followed_by_a_gap(steps: list[Step]) -> None:
    """DESIGN: the guarantee."""
    fleet = run_fleet(3, steps)
    for bus in fleet.buses:
        note(f"{bus!r}: {bus.stats()}")
    fleet.check()


@pytest.mark.parametrize("stranded", [0, 1])
def test_an_instance_on_a_node_that_all_others_have_left_reconnects_with_a_gap(stranded: int) -> None:
    """DESIGN: silence of the peers. Its own echo works all the time, so nothing else can tell it."""
    fleet = run_fleet(
        3,
        [
            ("wait", 0, 8.0),
            ("fault", stranded, "strand"),
            ("wait", 0, 1.0),
            ("publish", 2, 1),
            ("publish", stranded, 1),
            ("fault", stranded, "restore"),
        ],
    )
    fleet.check()


def test_peers_that_were_away_together_are_not_taken_for_lost_when_all_come_back() -> None:
    """An outage of everybody, longer than it takes to miss a peer, costs one reconnect and one gap, not two."""
    everybody: list[Step] = [("fault", instance, "refuse") for instance in range(3)]
    back: list[Step] = [("fault", instance, "restore") for instance in range(3)]
    fleet = run_fleet(3, [("wait", 0, 8.0), *everybody, ("wait", 0, 30.0), *back])
    assert [bus.stats().reconnects for bus in fleet.buses] == [1, 1, 1]
    for reader in fleet.readers:
        assert [n for _, n in reader.seen] == [GAP]
