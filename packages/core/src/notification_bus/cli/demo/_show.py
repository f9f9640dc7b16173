"""The demo from beginning to end."""

import logging
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import Final, Literal, cast

import anyio

from notification_bus.cli._command import CommandError
from notification_bus.cli.demo._measure import Hearing, Tell, measure
from notification_bus.cli.demo._stage import Stage, set_stage

__all__ = ["Result", "show"]

_PATIENCE: Final = 0.25
"""Seconds that the client waits at least for what does not come without the bus."""

_FACTOR: Final = 10
"""So many times longer than the slowest crossing with the bus does it wait, at least."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the demo has seen."""

    replicas: Literal["processes", "in-process"]
    bus: str
    broker: str | None
    hint: str | None
    without_bus: Hearing
    with_bus: Hearing
    patience: float
    """Seconds that the client waited for what did not come without the bus, after its own replica's change."""
    seconds: float
    """What all this took."""

    @property
    def crossed(self) -> bool:
        """Whether every change reached the client with the bus."""
        return all(heard is not None for heard in self.with_bus.on_a.values())

    @property
    def conclusive(self) -> bool:
        """Whether silence without the bus means anything: B did publish, and the stream on A was alive."""
        return self.without_bus.sentinel is not None and None not in self.without_bus.on_b.values()


def show(bus_url: str | None, timeout: float, tell: Tell) -> Result:
    """Run the demo.

    Args:
        bus_url: The bus to use; `None` takes what is at hand.
        timeout: Seconds that the broker, and each notification with the bus, may take.
        tell: Takes what is being done.

    Raises:
        CommandError: It cannot be run: the URL is wrong, the broker does not answer, a process does not start.
    """
    # What a bus logs about its broker is in the error, where it matters.
    logging.getLogger("notification_bus").addHandler(logging.NullHandler())
    started = perf_counter()
    with _ending_in_order(), set_stage(bus_url, timeout, tell) as stage:
        try:
            without_bus, with_bus, patience = anyio.run(_measure_both, stage, timeout, tell)
        except Exception as exc:
            # The SDK's client lives in task groups, so whatever fails in it comes wrapped, often more than once.
            cause = _innermost(exc)
            if isinstance(cause, CommandError):
                raise cause from exc
            raise CommandError(f"the demo broke off: {type(cause).__name__}: {cause}") from exc
    return Result(
        stage.replicas,
        stage.bus,
        stage.broker,
        stage.hint,
        without_bus,
        with_bus,
        patience,
        perf_counter() - started,
    )


async def _measure_both(stage: Stage, timeout: float, tell: Tell) -> tuple[Hearing, Hearing, float]:
    # With the bus first: how long it takes there says how long to wait for nothing.
    with_bus = await measure(
        *stage.with_bus, patience=timeout, limit=timeout, tell=lambda text: tell(f"with the bus: {text}")
    )
    slowest = max((heard for heard in with_bus.on_a.values() if heard is not None), default=timeout)
    patience = min(timeout, max(_PATIENCE, _FACTOR * slowest))
    without_bus = await measure(
        *stage.without_bus, patience=patience, limit=timeout, tell=lambda text: tell(f"without the bus: {text}")
    )
    return without_bus, with_bus, patience


def _innermost(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


@contextmanager
def _ending_in_order() -> Generator[None]:
    """Let a request to end pass through every `finally`, so that it leaves no process behind, as Ctrl-C does."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in (signal.Signals[name] for name in names)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
