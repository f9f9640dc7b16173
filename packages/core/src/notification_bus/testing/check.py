"""What a check is: a decorated `async` function of a `Context`, whose docstring is the sentence that reports show."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import getdoc
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from notification_bus.testing.harness import Capabilities

if TYPE_CHECKING:
    from notification_bus.testing.context import Context

__all__ = ["CLAIMS", "Check", "Claim", "Level", "Need", "check"]

Level: TypeAlias = Literal["MUST", "SHOULD", "CAPABILITY"]
"""`MUST`: every bus keeps it. `SHOULD`: as MUST, but a bus with a good reason declares a known failure. `CAPABILITY`:
only for a bus that claims it."""

Need: TypeAlias = Literal["two", "delay", "stall", "cut", "deaf", "wire", "process", "build"]
"""What a check does beyond using one instance: `two` instances (every harness can), a fault of a link (`delay`, `stall`
for everything that keeps sockets open and carries nothing, `cut` for everything that breaks or refuses, `deaf`), a hook
of the harness (`wire`, `process` for its `child`, `build`)."""

Claim: TypeAlias = Literal["fifo", "gaps", "outbox_gaps", "liveness", "end_to_end", "distinct"]
"""A capability that a check depends on."""

CLAIMS: Final[Mapping[Claim, tuple[Callable[[Capabilities], bool], str]]] = {
    "fifo": (lambda c: c.fifo, "the bus does not declare `fifo`"),
    "gaps": (lambda c: c.gaps, "the bus does not declare `gaps`"),
    "outbox_gaps": (lambda c: c.gaps and c.outbox is not None, "the bus does not declare `gaps` and an `outbox`"),
    "liveness": (lambda c: c.liveness is not None, "the bus does not declare `liveness`"),
    "end_to_end": (
        lambda c: c.end_to_end and c.liveness is not None,
        "the bus does not declare `end_to_end` and `liveness`",
    ),
    "distinct": (lambda c: not c.coalesces, "the bus declares `coalesces`: equal notifications may be merged"),
}
"""For each claim, whether a bus makes it, and the reason to report if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the kit: what `check` makes of a function."""

    id: str
    """Stable: known failures and reports refer to it."""

    function: "Callable[[Context], Awaitable[None]]"
    """Runs the check. Raises `CheckFailedError` through the context if a promise is broken."""

    level: Level
    """How binding it is."""

    rule: str
    """The bold word of the rule that it proves, in the docstring of `NotificationBus`."""

    needs: frozenset[Need] = frozenset()
    """What the harness must have for it."""

    claim: Claim | None = None
    """What the bus must claim for it to run."""

    brokerless: bool = False
    """Whether it runs without its faults if there is no broker: they only make it sharper."""

    @property
    def behaviour(self) -> str:
        """What is checked, in one sentence: the docstring of the function."""
        return getdoc(self.function) or ""


def check(
    id_: str,
    level: Level,
    rule: str,
    *,
    needs: Iterable[Need] = (),
    claim: Claim | None = None,
    brokerless: bool = False,
) -> "Callable[[Callable[[Context], Awaitable[None]]], Check]":
    """Make a check of a function; the arguments are the fields of `Check`."""

    def decorate(function: "Callable[[Context], Awaitable[None]]") -> Check:
        return Check(
            id=id_,
            function=function,
            level=level,
            rule=rule,
            needs=frozenset(needs),
            claim=claim,
            brokerless=brokerless,
        )

    return decorate
