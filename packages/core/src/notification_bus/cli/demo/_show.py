"""Both measurements, on what has been started."""

from dataclasses import dataclass
from time import perf_counter
from typing import Final, Literal, TypeAlias, cast

import anyio

from notification_bus.cli._command import CommandError
from notification_bus.cli.demo._board import Board, build
from notification_bus.cli.demo._measure import Hearing, measure
from notification_bus.cli.demo._stage import Stage, Tell
from notification_bus.cli.demo._url import open_checked
from notification_bus.mcp import McpSubscriptions

__all__ = ["Result", "show"]

_PATIENCE: Final = 0.25
"""Seconds that the client waits at least for what does not come without the bus."""

_FACTOR: Final = 10
"""So many times longer than the slowest crossing with the bus does it wait, at least."""

_Pair: TypeAlias = "tuple[str, str] | tuple[Board, Board]"


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


def show(stage: Stage, timeout: float, started: float, tell: Tell) -> Result:
    """Measure.

    Args:
        stage: What has been started.
        timeout: Seconds that each notification with the bus may take.
        started: When the demo began, by `time.perf_counter`.
        tell: Takes what is being done.

    Raises:
        CommandError: A replica does not start, or something breaks off.
    """
    without: _Pair
    with_bus: _Pair
    if stage.processes:
        without, with_bus = stage.wait()
    else:
        without = (build(None), build(None))
        a, b = (McpSubscriptions(open_checked(stage.url)) for _ in "AB")
        with_bus = (build(a), build(b))
    try:
        hearings = anyio.run(_measure_both, without, with_bus, timeout, tell)
    except Exception as exc:
        # The SDK's client lives in task groups, so whatever fails in it comes wrapped, often more than once.
        cause = _innermost(exc)
        if isinstance(cause, CommandError):
            raise cause from exc
        raise CommandError(f"the demo broke off: {type(cause).__name__}: {cause}") from exc
    return Result(
        "processes" if stage.processes else "in-process",
        stage.shown_url,
        stage.broker,
        stage.hint,
        *hearings,
        perf_counter() - started,
    )


async def _measure_both(without: _Pair, with_bus: _Pair, timeout: float, tell: Tell) -> tuple[Hearing, Hearing, float]:
    # With the bus first: how long it takes there says how long to wait for nothing.
    heard_with = await measure(
        *with_bus, patience=timeout, limit=timeout, tell=lambda text: tell(f"with the bus: {text}")
    )
    slowest = max((heard for heard in heard_with.on_a.values() if heard is not None), default=timeout)
    patience = min(timeout, max(_PATIENCE, _FACTOR * slowest))
    heard_without = await measure(
        *without, patience=patience, limit=timeout, tell=lambda text: tell(f"without the bus: {text}")
    )
    return heard_without, heard_with, patience


def _innermost(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc
