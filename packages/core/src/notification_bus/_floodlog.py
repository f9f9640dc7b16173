"""Rate-limited warnings: the first of a kind at once, the following ones as a count."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

__all__ = ["FLOOD_INTERVAL", "FloodLog"]

FLOOD_INTERVAL: Final = 5.0
"""Seconds between two warnings of one kind."""


class FloodLog:
    """Counts occurrences by kind and logs each kind at most once an interval, with the count since the last warning.

    Each record has the fields `notification_bus_event` (the kind) and `notification_bus_count`, for programs.
    """

    def __init__(
        self, logger: logging.Logger, *, interval: float = FLOOD_INTERVAL, clock: Callable[[], float] = monotonic
    ) -> None:
        self._logger = logger
        self._interval = interval
        self._clock = clock
        self._pending: dict[str, tuple[int, str]] = {}
        self._next: dict[str, float] = {}

    def add(self, kind: str, text: str, count: int = 1) -> None:
        """Count occurrences. `text` says what happened and what to do; the count is appended to it."""
        pending, _ = self._pending.get(kind, (0, ""))
        self._pending[kind] = (pending + count, text)
        if self._clock() >= self._next.get(kind, float("-inf")):
            self._warn(kind)

    def flush(self, *, force: bool = False) -> None:
        """Log what has been counted and not logged, if its interval has passed or `force` is set."""
        now = self._clock()
        for kind in [k for k in self._pending if force or now >= self._next.get(k, float("-inf"))]:
            self._warn(kind)

    def _warn(self, kind: str) -> None:
        count, text = self._pending.pop(kind)
        self._next[kind] = self._clock() + self._interval
        self._logger.warning(
            "%s (%d since the last such warning)",
            text,
            count,
            extra={"notification_bus_event": kind, "notification_bus_count": count},
        )
