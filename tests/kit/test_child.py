"""The other process: its lines, and its death."""

import sys

import anyio
import pytest

from notification_bus import BusNotification, MemoryBus
from notification_bus.testing import MemoryHarness
from notification_bus.testing._process import FLOOD, Child, start_child
from notification_bus.testing.child import open_instance

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
SPECS = ["memory://", "notification_bus.testing:MemoryHarness", f"{__name__}:HARNESS", f"{__name__}:make_harness"]

HARNESS = MemoryHarness()


def make_harness() -> MemoryHarness:
    return HARNESS


async def _until(child: Child, number: int) -> None:
    with anyio.fail_after(30):
        while len(child.received) < number and not child.ended:
            await anyio.sleep(0.01)


async def _ready(child: Child) -> None:
    with anyio.fail_after(30):
        while not child.ready:
            assert not child.ended, str(child)
            await anyio.sleep(0.01)


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_is_a_url_or_the_name_of_a_harness_a_class_or_a_function(spec: str) -> None:
    async def main() -> None:
        instance, backend = open_instance(spec, "kit-child+&=ü")
        assert backend == "asyncio"
        async with instance as bus:
            assert isinstance(bus, MemoryBus)
            assert bus.channel == "kit-child+&=ü"

    anyio.run(main)


@BACKENDS
def test_a_child_publishes_what_it_is_told_and_tells_what_it_receives(backend: str) -> None:
    notification = BusNotification("notifications/test", {"text": "grüße\n😀", "number": 1})

    async def main() -> None:
        async with start_child("memory://", "kit-child", "talk") as child:
            await _ready(child)
            await child.publish(notification)
            await _until(child, 1)
            assert child.received == [notification]
            assert str(child) == "running, received 1"

    anyio.run(main, backend=backend)


@BACKENDS
def test_a_flooding_child_can_be_killed_in_the_middle(backend: str) -> None:
    async def main() -> None:
        async with start_child(f"{__name__}:HARNESS", "kit-child", "flood") as child:
            await _until(child, 20)
            await child.kill()
            with anyio.fail_after(10):
                while not child.ended:
                    await anyio.sleep(0.01)
            assert {n.method for n in child.received} == {FLOOD}
            for each in child.received:
                assert each.params is not None
                assert each.params["pad"] == "x" * int(str(each.params["size"]))

    anyio.run(main, backend=backend)


@BACKENDS
@pytest.mark.parametrize("mode", ["talk", "flood"])
def test_a_child_ends_when_nobody_holds_its_stdin(backend: str, mode: str) -> None:
    async def main() -> None:
        command = [sys.executable, "-m", "notification_bus.testing.child", "memory://", "kit-child", mode]
        with anyio.fail_after(30):
            result = await anyio.run_process(command, input=b"")
        assert result.returncode == 0
        assert result.stderr == b""

    anyio.run(main, backend=backend)


def test_a_child_that_cannot_start_says_why() -> None:
    async def main() -> None:
        async with start_child("nothing://here", "kit-child", "talk") as child:
            with anyio.fail_after(30):
                while not (child.ended and "no bus is known for nothing://" in str(child)):
                    await anyio.sleep(0.01)
            assert not child.ready

    anyio.run(main)


def test_a_failure_beside_a_child_is_raised_as_it_is() -> None:
    async def main() -> None:
        async with start_child("memory://", "kit-child", "talk"):
            raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        anyio.run(main)
