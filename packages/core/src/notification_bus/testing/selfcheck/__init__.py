"""Is the harness to be believed? Looked at before the checks, so that a bus is not blamed for what its harness does.

A harness lies where its faults do nothing, its wire shows or injects nothing, its instances do not share the channel
that they were given, its child does not start, or its capabilities cannot be true. Whoever runs the checks all the same
is told of promises that nobody broke, or, worse, of promises kept that nobody tested.

What is reported here was seen: something that arrived while nothing could, or that did not arrive where others of its
kind did. Where the bus may be to blame as well, nothing is said, and the checks say it better.
"""

import time
from dataclasses import dataclass, field

import anyio

from notification_bus.testing._tasks import LoopThread, base_backend, start_loop
from notification_bus.testing._watch import Watch
from notification_bus.testing.harness import Harness
from notification_bus.testing.selfcheck._desk import Desk, HarnessFault, ObstacleError, shown
from notification_bus.testing.selfcheck._instances import examine_build, examine_child, examine_instances
from notification_bus.testing.selfcheck._links import examine_links
from notification_bus.testing.selfcheck._shape import examine_shape
from notification_bus.testing.selfcheck._wire import examine_wire

__all__ = ["Examination", "HarnessFault", "examine_harness"]

_LIMIT = 30.0
"""Seconds after which an examination is given up, whatever holds it: a bus that hangs is a matter of the checks."""

_GRACE = 3.0
"""Seconds for leaving nothing behind where it is interrupted."""


@dataclass(slots=True, kw_only=True)
class Examination:
    """What came of looking at a harness."""

    faults: list[HarnessFault] = field(default_factory=list[HarnessFault])
    """The ways in which it cannot be believed; none where it can."""

    obstacle: str | None = None
    """Why no bus could be started or looked at, where none could: the broker is away, for instance. That is no lie."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def examine_harness(harness: Harness, *, backend: str | None = None, patience: float = 3.0) -> Examination:
    """Look whether a harness does what it says. Quick: what takes its time is only ever a lie.

    Args:
        harness: The harness.
        backend: The async library to do it on; the first that the bus declares where it is not given.
        patience: Seconds to wait for what must come.
    """
    began = time.perf_counter()
    found = Examination(faults=examine_shape(harness))
    if not found.faults:
        desk = Desk(harness, patience)
        examine_build(desk)
        declared = list(harness.capabilities.backends)
        # One that the bus does not run on would only say so.
        name = backend if backend is not None and base_backend(backend) in declared else declared[0]
        found.obstacle = _run(desk, name)
        found.faults = list(dict.fromkeys(desk.faults))
    found.seconds = time.perf_counter() - began
    return found


def _run(desk: Desk, backend: str) -> str | None:
    """Everything for which an event loop is needed; the obstacle, where there is one."""
    obstacles: list[str] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            desk.tasks = tasks
            try:
                await _examine(desk)
            except ObstacleError as exc:
                obstacles.append(str(exc))
            tasks.cancel_scope.cancel()

    # Whatever the bus logs or leaves behind meanwhile is a matter of the checks.
    with Watch(desk.harness.capabilities.drop_logger).around():
        thread = LoopThread(lambda: start_loop(main, backend))
        thread.start()
        thread.finish(_LIMIT, _GRACE)
    if thread.error is not None:
        obstacles.append(f"looking at the harness ended with {shown(thread.error)}")
    return next(iter(obstacles), None)


async def _examine(desk: Desk) -> None:
    child = desk.begin(examine_child) if desk.harness.child is not None else None
    async with examine_instances(desk) as footing:
        wire_works = footing is not None and await examine_wire(desk, footing)
    if footing is None or desk.faults:
        # What follows would lean on what is in doubt already.
        return
    if desk.harness.link() is not None:
        await examine_links(desk, by_wire=wire_works)
    if child is not None:
        await child()
