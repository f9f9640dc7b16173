"""Exponential back-off with jitter. No I/O: the randomness is passed in, and the caller sleeps."""

from collections.abc import Callable
from random import random
from typing import Final

__all__ = ["Backoff"]

_FIRST: Final = 0.1
"""Seconds that the second attempt waits at most. The first is made at once."""


class Backoff:
    """Waits between attempts: none, then doubling with jitter up to a cap, without end.

    Half of each wait is random, so that replicas that lost the same broker do not reconnect in one burst.
    """

    def __init__(self, cap: float, jitter: Callable[[], float] = random) -> None:
        self._cap = cap
        self._jitter = jitter
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        failures, self._failures = self._failures, self._failures + 1
        if failures == 0:
            return 0.0
        # The exponent is bounded: a float overflows after an outage of some hours.
        longest = min(self._cap, _FIRST * 2.0 ** min(failures - 1, 32))
        return longest * (0.5 + self._jitter() / 2)

    def reset(self) -> None:
        """Start over: a connection has proven itself."""
        self._failures = 0
