"""What comes of a check."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from notification_bus.testing.check import Level

__all__ = ["CheckFailedError", "KnownFailure", "Outcome", "Result", "UntestableError"]

Outcome: TypeAlias = Literal["passed", "failed", "not_declared", "untestable", "known_failure"]
"""`not_declared`: the bus does not claim it, or there is no broker to have it with. `untestable`: the harness lacks a
hook that the check needs. `known_failure`: it failed, and was declared to."""


class CheckFailedError(AssertionError):
    """A promise was not kept. Says what was promised, and what was seen."""

    def __init__(self, promised: str, seen: str) -> None:
        super().__init__(f"promised: {promised}\n    seen: {seen}")
        self.promised = promised
        self.seen = seen


class HarnessFaultError(CheckFailedError):
    """The harness does not do what it says: nothing can be concluded about the bus."""

    def __init__(self, *texts: str) -> None:
        super().__init__("the harness does what it says", "; ".join(texts))
        self.texts = texts


class UntestableError(Exception):
    """The harness lacks what a check needs, as it turned out while running it."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A check that this bus is known to fail. It is red when the check passes, and when there is no such check."""

    id: str
    """The check."""

    reason: str
    """Why it fails."""

    link: str
    """Where that is being followed up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check of one bus on one async library."""

    id: str
    backend: str
    outcome: Outcome
    reason: str = ""
    """Empty for a check that passed."""

    seconds: float = 0.0
    level: Level = "MUST"
    detail: str = ""
    """The traceback, where there is one."""

    def red(self, *, strict: bool = False) -> bool:
        """Whether it is to be reported as an error: a failure, or under `strict` a check that could not be run."""
        return self.outcome == "failed" or (strict and self.outcome == "untestable")
