"""When to try again. Pure: the randomness is passed in, and nobody sleeps here."""

from collections.abc import Callable
from random import random
from typing import Final

__all__ = ["Backoff"]

_FIRST: Final = 0.1
"""Seconds: the longest that the second try waits. The first goes out at once."""


class Backoff:
    """At once, then doubling with jitter up to a cap, for ever.

    Half of each wait is random, so that the replicas that lost the same broker do not come back in one burst.
    """

    def __init__(self, cap: float, jitter: Callable[[], float] = random) -> None:
        self._cap = cap
        self._jitter = jitter
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait before the next try."""
        failures, self._failures = self._failures, self._failures + 1
        if failures == 0:
            return 0.0
        # The exponent is bounded: an outage of days must not end in an overflow.
        longest = min(self._cap, _FIRST * 2.0 ** min(failures - 1, 32))
        return longest * (0.5 + self._jitter() / 2)

    def reset(self) -> None:
        """Forget past failures: a connection has proven itself."""
        self._failures = 0
