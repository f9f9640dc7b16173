"""A harness that lies is found out before the checks are run, and an honest one never is, whatever its bus does."""

import dataclasses
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from notification_bus import MemoryBus, NotificationBus
from notification_bus.testing import Capabilities, Link, MemoryHarness, Observed
from notification_bus.testing.gallery import MUTANTS, ReferenceBus, find_bus, gallery_harness
from notification_bus.testing.selfcheck import Examination, examine_harness
from notification_bus.testing.simulated import SimulatedHarness, SimulatedLink

PATIENCE = 1.5
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Harness:
    """That of the reference bus, for a test to replace one member of."""

    def __init__(self, bus: type[ReferenceBus] = ReferenceBus) -> None:
        self.honest: SimulatedHarness = gallery_harness(bus)
        self.capabilities: Capabilities = self.honest.capabilities
        self.wire: Any = self.honest.wire
        self.link: Any = self.honest.link
        self.instance: Any = self.honest.instance
        self.build: Any = self.honest.build
        self.child: Any = None


def found(harness: object, backend: str = "asyncio") -> Examination:
    return examine_harness(harness, backend=backend, patience=PATIENCE)  # type: ignore[arg-type]


def the_only(examination: Examination, member: str) -> str:
    """The text of the one fault that there is."""
    assert [fault.member for fault in examination.faults] == [member], str(examination)
    text = str(examination)
    assert text.startswith("the harness, not the bus: ")
    return text


# Honest ones


@BACKENDS
def test_an_honest_harness_is_believed_and_quickly(backend: str) -> None:
    for harness in (MemoryHarness(), Harness()):
        examination = found(harness, backend)
        assert not examination.faults
        assert examination.obstacle is None
        # Idle, it takes 0.3 s at most.
        assert examination.seconds < 3


def test_a_child_of_an_honest_harness_starts() -> None:
    assert not found(gallery_harness()).faults


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_bus_is_not_laid_at_the_door_of_its_harness(name: str) -> None:
    """The gallery has every way to be wrong that the checks know, on a harness that is right."""
    assert not found(Harness(find_bus(name))).faults


def test_a_bus_that_cannot_be_started_is_no_lie() -> None:
    harness = Harness()

    @asynccontextmanager
    async def instance(channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        raise ConnectionRefusedError("nothing listens at port 6379")
        yield

    harness.instance = instance
    examination = found(harness)
    assert not examination.faults
    assert examination.obstacle == "`instance` raised ConnectionRefusedError: nothing listens at port 6379"


def test_a_deaf_bus_is_no_lie() -> None:
    """Where nothing is heard at all, the checks have something to say."""
    harness = Harness()

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel) as speaking, MemoryBus(f"{channel}-elsewhere") as hearing:
            speaking.subscribe = hearing.subscribe  # type: ignore[method-assign]
            yield speaking

    harness.instance, harness.link, harness.wire = instance, None, None
    harness.capabilities = MemoryHarness.capabilities
    assert not found(harness).faults


# Its shape


def only_a_channel(channel: str) -> None:
    raise AssertionError("nobody calls it")


@pytest.mark.parametrize(
    ("members", "member", "says"),
    [
        ({"capabilities": None}, "capabilities", "`capabilities` must be a `Capabilities`; there is none"),
        ({"capabilities": {"buffer": 1}}, "capabilities", "it is a dict"),
        ({"instance": None}, "instance", "there is no method `instance(channel, link=None)`"),
        ({"instance": lambda: None}, "instance", "cannot be called with a channel alone"),
        ({"instance": only_a_channel}, "instance", "there is a `link`, and `instance(channel)` cannot be given"),
        ({"link": 7}, "link", "`link` must be a method, or None; it is 7"),
        ({"build": "bus"}, "build", "`build` must be a method"),
        ({"wire": object()}, "wire", "which has no `inject`, no `observe`"),
        ({"child": "redis"}, "child", "give a URL for `open_bus`, or `package.module:name`"),
    ],
)
def test_a_member_of_the_wrong_kind_is_named(members: dict[str, Any], member: str, says: str) -> None:
    harness = Harness()
    for name, value in members.items():
        setattr(harness, name, value)
    assert says in str(found(harness))
    assert member in {fault.member for fault in found(harness).faults}


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"buffer": 0}, "buffer=0 is impossible"),
        ({"buffer": "16"}, "buffer='16' is impossible"),
        ({"buffer": True}, "buffer=True is impossible"),
        ({"slack": -1}, "slack=-1 is impossible: give a number, 0 or more"),
        ({"outbox": 0}, "outbox=0 is impossible"),
        ({"max_body": -1}, "max_body=-1 is impossible"),
        ({"ready_timeout": 0}, "ready_timeout=0 is impossible"),
        ({"close_timeout": float("inf")}, "close_timeout=inf is impossible"),
        ({"liveness": float("nan")}, "liveness=nan is impossible"),
        ({"liveness": None, "end_to_end": True}, "end_to_end is impossible without `liveness`"),
        ({"has_broker": False}, "liveness=2.0 is impossible with has_broker=False"),
        ({"fifo": "yes"}, "fifo='yes' is impossible: give True or False"),
        ({"backends": ()}, "backends=() is impossible"),
        ({"backends": ("curio",)}, "backends=('curio',) is impossible: name one or both of asyncio and trio"),
        ({"backends": "asyncio"}, "backends='asyncio' is impossible"),
        ({"drop_logger": None}, "drop_logger=None is impossible"),
        ({"buffer": 17}, "buffer=17 is impossible for the bus that `instance` builds, which has buffer=16"),
        ({"outbox": 1000}, "outbox=1000 is impossible for the bus"),
        (
            {"max_body": 10_000},
            "max_body=10000 is impossible for the bus that `instance` builds, which has max_body=8192",
        ),
    ],
)
def test_a_capability_that_cannot_be_is_named_with_its_value(claims: dict[str, Any], says: str) -> None:
    harness = Harness()
    harness.capabilities = dataclasses.replace(harness.capabilities, **claims)
    assert says in str(found(harness))


# Its instances


def same(bus: NotificationBus, _channel: str) -> NotificationBus:
    return bus


def at_one_place(harness: Harness, _channel: str, link: Any = None) -> Any:
    return harness.honest.instance("always-the-same", link)


def past_the_link(harness: Harness, channel: str, _link: Any = None) -> Any:
    return harness.honest.instance(channel)


def test_one_that_gives_the_same_object_twice() -> None:
    harness = Harness()
    shared = MemoryBus("kit")

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with shared:
            yield shared

    harness.instance, harness.build = instance, None
    assert "`instance` yielded the same object twice" in the_only(found(harness), "instance")


def test_one_that_builds_the_same_object_twice() -> None:
    harness = Harness()
    bus = MemoryBus("kit")
    harness.build = partial(same, bus)
    assert "`build` returned the same object twice" in the_only(found(harness), "build")


def test_one_that_gives_no_bus() -> None:
    harness = Harness()

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[object]:
        yield 7

    harness.instance = instance
    assert "gave a int, which is no bus: it has no `publish` and no `subscribe`" in the_only(found(harness), "instance")


def test_one_that_forgot_the_decorator() -> None:
    harness = Harness()

    async def instance(channel: str, link: Any = None) -> NotificationBus:
        return MemoryBus(channel)

    harness.instance = instance
    text = the_only(found(harness), "instance")
    assert "`instance` returned a coroutine, which is no async context manager" in text


@BACKENDS
@pytest.mark.parametrize("suffix", ["-{n}", ""], ids=["its own beside the given", "the given ignored"])
def test_one_whose_instances_are_on_different_channels(backend: str, suffix: str) -> None:
    numbers = count()

    def name_of(channel: str) -> str:
        return f"{channel}{suffix.format(n=next(numbers))}" if suffix else f"mine-{next(numbers)}"

    harness = Harness()
    harness.capabilities, harness.wire, harness.link, harness.build = MemoryHarness.capabilities, None, None, None

    @asynccontextmanager
    async def instance(channel: str, link: Any = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(name_of(channel), buffer=16, max_body=65_536) as bus:
            yield bus

    harness.instance = instance
    text = the_only(found(harness, backend), "instance")
    assert "two instances for one channel do not hear each other, and each hears itself" in text
    assert ("they are on the channels 'kit-self-check-one-" in text) == bool(suffix)


def test_one_whose_instances_are_all_on_one_channel() -> None:
    harness = Harness()
    harness.instance = partial(at_one_place, harness)
    assert "`instance` does not use the channel that it is given" in str(found(harness))


# Its wire


class Wire:
    """The honest one, for a test to replace a half of."""

    def __init__(self, harness: Harness) -> None:
        honest = harness.honest.wire
        self.inject: Callable[[str, bytes], Any] = honest.inject
        self.observe: Callable[[str], AbstractAsyncContextManager[Any]] = honest.observe


class Nothing:
    bodies: tuple[bytes, ...] = ()


@asynccontextmanager
async def observe_nothing(channel: str) -> AsyncGenerator[Observed]:
    yield Nothing()


async def inject_nothing(channel: str, body: bytes) -> None:
    pass


async def inject_raises(channel: str, body: bytes) -> None:
    raise RuntimeError("no client")


@asynccontextmanager
async def observe_text(channel: str) -> AsyncGenerator[object]:
    class Text:
        bodies = ("text",)

    yield Text()


@asynccontextmanager
async def observe_no_bodies(channel: str) -> AsyncGenerator[object]:
    yield []


@BACKENDS
def test_one_that_observes_nothing(backend: str) -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    harness.wire.observe = observe_nothing
    text = the_only(found(harness, backend), "wire")
    assert "`wire.observe` shows nothing: neither what an instance published, and another received" in text
    assert "nor does an instance hear" not in text


@BACKENDS
def test_one_that_injects_nothing(backend: str) -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    harness.wire.inject = inject_nothing
    assert "`wire.inject` injects nothing" in the_only(found(harness, backend), "wire")


def test_one_that_observes_and_injects_nothing() -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    harness.wire.inject, harness.wire.observe = inject_nothing, observe_nothing
    text = the_only(found(harness), "wire")
    assert "`wire.observe` shows nothing" in text
    assert "nor does an instance hear what `wire.inject` injects" in text


def test_one_whose_wire_is_on_another_channel_than_its_instances() -> None:
    harness = Harness()
    wire = harness.honest.wire
    harness.wire = Wire(harness)

    def inject(channel: str, body: bytes) -> Any:
        return wire.inject(f"app:{channel}", body)

    def observe(channel: str) -> Any:
        return wire.observe(f"app:{channel}")

    harness.wire.inject, harness.wire.observe = inject, observe
    assert "`wire` is not on the channel that the instances are on" in the_only(found(harness), "wire")


@pytest.mark.parametrize(
    ("half", "does", "says"),
    [
        ("inject", inject_raises, "`wire.inject` raised RuntimeError: no client"),
        ("observe", observe_text, "bodies that are no bytes, 'text' for instance"),
        ("observe", observe_no_bodies, "a list whose `bodies` are None"),
    ],
)
def test_one_whose_wire_breaks_says_how(half: str, does: object, says: str) -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    setattr(harness.wire, half, does)
    assert says in the_only(found(harness), "wire")


# Its links


def lying_link(harness: Harness, fault: str, does: Callable[[SimulatedLink], Callable[..., Any]]) -> None:
    """Let one method of each link do something else."""

    @asynccontextmanager
    async def link() -> AsyncGenerator[SimulatedLink]:
        async with harness.honest.link() as made:
            setattr(made, fault, does(made))
            yield made

    harness.link = link


async def do_nothing(*_: object) -> None:
    await checkpoint()


@BACKENDS
@pytest.mark.parametrize("by_wire", [True, False], ids=["seen by the wire", "seen by a peer"])
@pytest.mark.parametrize("fault", ["delay", "stall", "blackhole", "cut", "refuse", "deaf"])
def test_one_with_a_fault_that_does_nothing(backend: str, fault: str, by_wire: bool) -> None:
    harness = Harness()
    lying_link(harness, fault, lambda _link: do_nothing)
    if not by_wire:
        harness.wire = None
    text = the_only(found(harness, backend), "link")
    # A refusal of this link begins with its cut.
    also = " and `refuse`" if fault == "cut" else ""
    assert f"after `{fault}`{also} notifications arrive through the link as if nothing had happened" in text


def test_one_that_refuses_nothing_and_only_cuts() -> None:
    harness = Harness()
    lying_link(harness, "refuse", lambda link: link.cut)
    assert "after `refuse` notifications arrive" in the_only(found(harness), "link")


def test_one_that_does_not_restore() -> None:
    harness = Harness()
    lying_link(harness, "restore", lambda _link: do_nothing)
    assert "after `refuse` and `restore` nothing comes through the link" in the_only(found(harness), "link")


@pytest.mark.parametrize("fault", ["stall", "restore"])
def test_one_with_a_fault_that_raises(fault: str) -> None:
    async def raises() -> None:
        raise NotImplementedError("later")

    harness = Harness()
    lying_link(harness, fault, lambda _link: raises)
    assert f"`link.{fault}` raised NotImplementedError: later" in the_only(found(harness), "link")


class Counting(SimulatedLink):
    """Counts the first connection, and no refused one."""

    async def connect(self) -> Any:
        if self._refusing:
            await checkpoint()
            raise ConnectionRefusedError
        return await super().connect()


def test_one_that_does_not_count_refused_connections() -> None:
    harness = Harness()

    @asynccontextmanager
    async def link() -> AsyncGenerator[SimulatedLink]:
        made = Counting(harness.honest.simulated)
        yield made
        await made.aclose()

    harness.link = link
    assert "`attempts` does not grow while `refuse` refuses connections" in the_only(found(harness), "link")


class Uncounted(SimulatedLink):
    @property
    def attempts(self) -> int:
        return 0

    @attempts.setter
    def attempts(self, value: int) -> None:
        pass


def test_one_that_counts_nothing() -> None:
    harness = Harness()

    @asynccontextmanager
    async def link() -> AsyncGenerator[SimulatedLink]:
        made = Uncounted(harness.honest.simulated)
        yield made
        await made.aclose()

    harness.link = link
    assert "`attempts` is 0 after an instance has connected through the link" in str(found(harness))


def test_one_whose_instances_ignore_their_link() -> None:
    harness = Harness()
    harness.instance = partial(past_the_link, harness)
    text = str(found(harness))
    assert "either `instance` does not go through the link that it is given" in text
    assert "after `delay`, `stall`, `blackhole`, `cut`, `refuse` and `deaf` notifications arrive" in text


def test_one_whose_link_leads_nowhere() -> None:
    harness = Harness()
    elsewhere = gallery_harness()
    harness.link = elsewhere.link
    assert "an instance that goes through a link with no fault on it hears nothing, and others do" in str(
        found(harness)
    )


def test_one_whose_link_cannot_be_entered_or_lacks_a_fault() -> None:
    class Few:
        attempts = 0
        cut = refuse = restore = do_nothing

    @asynccontextmanager
    async def few() -> AsyncGenerator[object]:
        yield Few()

    @asynccontextmanager
    async def raises() -> AsyncGenerator[object]:
        raise OSError("no port is free")
        yield

    harness = Harness()
    harness.link = few
    assert "yielded a Few, which has no `delay`, no `stall`, no `blackhole`" in the_only(found(harness), "link")
    harness.link = raises
    assert "`link` raised OSError: no port is free" in the_only(found(harness), "link")
    harness.link = Few
    assert "`link` returned a Few, which is no async context manager" in the_only(found(harness), "link")


# Its child


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nothing://here", "no bus is known for nothing://"),
        ("no.such.module:harness", "No module named"),
        ("notification_bus.testing:no_such_name", "no_such_name"),
    ],
)
def test_one_whose_child_does_not_start(spec: str, says: str) -> None:
    harness = Harness()
    harness.child = spec
    text = the_only(found(harness), "child")
    assert "the child process that `child` names does not start" in text
    assert says in text


def test_what_a_fault_says_is_told_once() -> None:
    """Though several probes come upon it."""
    harness = Harness()
    harness.instance = partial(past_the_link, harness)
    lines = str(found(harness)).splitlines()
    assert len(lines) == len(set(lines))
