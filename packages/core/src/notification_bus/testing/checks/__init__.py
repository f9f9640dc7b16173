"""The checks, a module a group. Each is a plain `async` function of a `Context`, named by its id in the manifest."""

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Final, TypeAlias, cast

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
from notification_bus.testing.context import Context
from notification_bus.testing.manifest import MANIFEST

__all__ = ["FUNCTIONS", "MODULES", "CheckFunction"]

CheckFunction: TypeAlias = Callable[[Context], Awaitable[None]]

MODULES: Final[tuple[ModuleType, ...]] = (
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

_GROUPS: Final = frozenset(check.id.partition(".")[0] for check in MANIFEST)


def _collect() -> dict[str, CheckFunction]:
    functions: dict[str, CheckFunction] = {}
    for module in MODULES:
        for name in module.__all__:
            group, _, rest = name.partition("_")
            if group in _GROUPS:
                functions[f"{group}.{rest}"] = cast("CheckFunction", getattr(module, name))
    return functions


FUNCTIONS: Final[Mapping[str, CheckFunction]] = _collect()
"""The function of each check, by the check's id."""
