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
    harness,
    lifecycle,
    order,
    publishing,
    readiness,
    reconnect,
    slow,
    subscription,
    wire,
)

__all__ = ["CHECKS", "HARNESS_CHECKS"]

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

HARNESS_CHECKS: Final = (
    harness.harness_build,
    harness.harness_instances,
    harness.harness_wire,
    harness.harness_links,
    harness.harness_child,
)
"""Whether the harness is honest. They run before the others."""

CHECKS: Final[dict[str, Check]] = {
    value.id: value for module in _MODULES for value in vars(module).values() if isinstance(value, Check)
}
"""Every check by its id, in the order in which they run."""
