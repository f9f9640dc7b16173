"""The checks, one module for each group."""

from typing import Final

from notification_bus.testing.check import Check
from notification_bus.testing.checks import (
    cancellation,
    closing,
    codec,
    crash,
    delivery,
    gaps,
    lifecycle,
    order,
    publishing,
    readiness,
    reconnect,
    slow,
    subscription,
    wire,
)

__all__ = ["CHECKS"]

_MODULES: Final = (
    delivery,
    readiness,
    subscription,
    order,
    slow,
    cancellation,
    publishing,
    wire,
    codec,
    reconnect,
    crash,
    closing,
    gaps,
    lifecycle,
)

CHECKS: Final[dict[str, Check]] = {
    value.id: value for module in _MODULES for value in vars(module).values() if isinstance(value, Check)
}
"""Every check by its id, in the order in which they run."""
