"""Wires that show or inject nothing, and links whose faults do nothing, are found out before the checks are run."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from notification_bus import BrokerConnection
from notification_bus.testing import FaultyLink, Observed
from tests.kit.harness import HubHarness
from tests.kit.lies import Harness, found, the_only

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def past_the_link(harness: Harness, channel: str, _link: Any = None) -> Any:
    return harness.honest.instance(channel)


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
    text = the_only(found(harness, backend), "harness.wire")
    assert "`wire.observe` shows nothing: neither what an instance published, and another received" in text
    assert "nor does an instance hear" not in text


@BACKENDS
def test_one_that_injects_nothing(backend: str) -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    harness.wire.inject = inject_nothing
    assert "`wire.inject` injects nothing" in the_only(found(harness, backend), "harness.wire")


def test_one_that_observes_and_injects_nothing() -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    harness.wire.inject, harness.wire.observe = inject_nothing, observe_nothing
    text = the_only(found(harness), "harness.wire")
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
    assert "`wire` is not on the channel that the instances are on" in the_only(found(harness), "harness.wire")


@pytest.mark.parametrize(
    ("half", "does", "says"),
    [
        ("inject", inject_raises, "`wire.inject` raised RuntimeError: no client"),
        ("observe", observe_text, "bodies that are not bytes, 'text' for instance"),
        ("observe", observe_no_bodies, "a list whose `bodies` are None"),
    ],
)
def test_one_whose_wire_breaks_says_how(half: str, does: object, says: str) -> None:
    harness = Harness()
    harness.wire = Wire(harness)
    setattr(harness.wire, half, does)
    assert says in the_only(found(harness), "harness.wire")


# Its links


def lying_link(harness: Harness, fault: str, does: Callable[[FaultyLink], Callable[..., Any]]) -> None:
    """Let one method of each link do something else."""

    @asynccontextmanager
    async def link() -> AsyncGenerator[FaultyLink]:
        async with harness.honest.link() as made:
            setattr(made, fault, does(made))
            yield made

    harness.replace(link=link)


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
    text = the_only(found(harness, backend), "harness.links")
    # A refusal of this link begins with its cut.
    also = " and `refuse`" if fault == "cut" else ""
    assert f"after `{fault}`{also} notifications arrive through the link as if nothing had happened" in text


def test_one_that_refuses_nothing_and_only_cuts() -> None:
    harness = Harness()
    lying_link(harness, "refuse", lambda link: link.cut)
    assert "after `refuse` notifications arrive" in the_only(found(harness), "harness.links")


def test_one_that_does_not_restore() -> None:
    harness = Harness()
    lying_link(harness, "restore", lambda _link: do_nothing)
    assert "after `refuse` and `restore` nothing comes through the link" in the_only(found(harness), "harness.links")


@pytest.mark.parametrize("fault", ["stall", "restore"])
def test_one_with_a_fault_that_raises(fault: str) -> None:
    async def raises() -> None:
        raise NotImplementedError("later")

    harness = Harness()
    lying_link(harness, fault, lambda _link: raises)
    assert f"`link.{fault}` raised NotImplementedError: later" in the_only(found(harness), "harness.links")


class Counting(FaultyLink):
    """Counts the first connection, and no refused one."""

    async def _connect(self, connect: Callable[[], Awaitable[BrokerConnection]]) -> BrokerConnection:
        if self._refusing:
            await checkpoint()
            raise ConnectionRefusedError
        return await super()._connect(connect)


def test_one_that_does_not_count_refused_connections() -> None:
    harness = Harness()
    harness.replace(link=Counting.open)
    assert "`attempts` does not grow while `refuse` refuses connections" in the_only(found(harness), "harness.links")


class Uncounted(FaultyLink):
    @property
    def attempts(self) -> int:
        return 0

    @attempts.setter
    def attempts(self, value: int) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        pass


def test_one_that_counts_nothing() -> None:
    harness = Harness()
    harness.replace(link=Uncounted.open)
    assert "`attempts` is 0 after an instance has connected through the link" in str(found(harness))


def test_one_whose_instances_ignore_their_link() -> None:
    harness = Harness()
    harness.replace(instance=partial(past_the_link, harness))
    text = str(found(harness))
    assert "either `instance` does not go through the link that it is given" in text
    assert "after `delay`, `stall`, `blackhole`, `cut`, `refuse` and `deaf` notifications arrive" in text


def test_one_whose_link_leads_nowhere() -> None:
    harness = Harness()
    elsewhere = HubHarness()

    def instance(channel: str, link: Any = None) -> Any:
        return (elsewhere if link else harness.honest).instance(channel, link)

    harness.replace(instance=instance)
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
    harness.replace(link=few)
    assert "yielded a Few, which has no `delay`, no `stall`, no `blackhole`" in the_only(
        found(harness), "harness.links"
    )
    harness.replace(link=raises)
    assert "`link` raised OSError: no port is free" in the_only(found(harness), "harness.links")
    harness.replace(link=Few)
    assert "`link` returned a Few, which is not an async context manager" in the_only(found(harness), "harness.links")


def test_what_a_fault_says_is_told_once() -> None:
    """Though several probes come upon it."""
    harness = Harness()
    harness.replace(instance=partial(past_the_link, harness))
    lines = str(found(harness)).splitlines()
    assert len(lines) == len(set(lines))
