"""The shape of a harness: members of the wrong kind, and capabilities that no bus can have. Nothing is started."""

import inspect
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from notification_bus.testing.harness import Capabilities

if TYPE_CHECKING:
    from notification_bus.testing.context import Context

__all__ = ["expect_manager", "one_line", "shape_faults"]

_BACKENDS: Final = ("asyncio", "trio")
_COUNTS: Final = {"buffer": 1, "slack": 0, "outbox": 1, "max_body": 1}
"""Capabilities that are whole numbers, and the least that each can be."""

_SECONDS: Final = ("ready_timeout", "close_timeout", "liveness")
_SWITCHES: Final = ("has_broker", "fifo", "gaps", "coalesces", "probes", "end_to_end")
_OPTIONAL: Final = ("outbox", "max_body", "liveness")


def one_line(error: BaseException) -> str:
    """The innermost error, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def expect_manager(kit: "Context", method: str, manager: object, yields: str) -> None:
    """Accuse a method of the harness that did not return an async context manager."""
    if hasattr(manager, "__aenter__") and hasattr(manager, "__aexit__"):
        return
    close: Callable[[], object] | None = getattr(manager, "close", None)
    if close is not None:  # a coroutine, which nobody will ever await
        close()
    kit.accuse(
        f"`{method}` returned a {type(manager).__name__}, which is not an async context manager: "
        f"decorate it with `contextlib.asynccontextmanager`, and yield {yields}"
    )


def shape_faults(harness: object) -> list[str]:
    """What is wrong with the members of a harness, in words."""
    capabilities: object = getattr(harness, "capabilities", None)
    if not isinstance(capabilities, Capabilities):
        found = "there is none" if capabilities is None else f"it is a {type(capabilities).__name__}"
        return [f"`capabilities` must be a `Capabilities`; {found}"]
    return [*_impossible(capabilities), *_members(harness, capabilities)]


def _impossible(capabilities: Capabilities) -> list[str]:
    found: list[str] = []
    for name, least in _COUNTS.items():
        value: object = getattr(capabilities, name)
        if not _is_none(name, value) and not (type(value) is int and value >= least):
            found.append(f"the capability {name}={value!r} is impossible: give a number, {least} or more")
    for name in _SECONDS:
        value = getattr(capabilities, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not _is_none(name, value) and not (number and isfinite(cast("float", value)) and cast("float", value) > 0):
            found.append(f"the capability {name}={value!r} is impossible: give a number of seconds above 0")
    for name in _SWITCHES:
        value = getattr(capabilities, name)
        if not isinstance(value, bool):
            found.append(f"the capability {name}={value!r} is impossible: give True or False")
    if not isinstance(capabilities.drop_logger, str):
        found.append(f"the capability drop_logger={capabilities.drop_logger!r} is impossible: give a logger's name")
    backends: object = capabilities.backends
    listed: list[object] = (
        []
        if isinstance(backends, str) or not isinstance(backends, Sequence)
        else list(cast("Sequence[object]", backends))
    )
    if not listed or any(name not in _BACKENDS for name in listed):
        found.append(f"the capability backends={backends!r} is impossible: name one or both of asyncio and trio")
    if found:
        return found
    if capabilities.end_to_end and capabilities.liveness is None:
        found.append("the capability end_to_end is impossible without `liveness`: it is noticed in that time")
    if not capabilities.has_broker:
        # Without a broker there is nothing that any of these could be about.
        for name in ("liveness", "end_to_end"):
            value = getattr(capabilities, name)
            if value:
                found.append(f"the capability {name}={value!r} is impossible with has_broker=False")
    return found


def _is_none(name: str, value: object) -> bool:
    return value is None and name in _OPTIONAL


def _members(harness: object, capabilities: Capabilities) -> list[str]:
    found: list[str] = []
    instance: Any = getattr(harness, "instance", None)
    if not callable(instance):
        found.append("there is no method `instance(channel, link=None)`, so no bus can be built")
    elif not _takes(instance, "a channel"):
        found.append(f"`instance{_signature(instance)}` cannot be called with a channel alone")
    for name in ("link", "build"):
        member: object = getattr(harness, name, None)
        if member is not None and not callable(member):
            found.append(f"`{name}` must be a method, or None; it is {member!r}")
    link: object = getattr(harness, "link", None)
    if callable(link) and callable(instance) and not _takes(instance, "a channel", "a link"):
        found.append(f"there is a `link`, and `instance{_signature(instance)}` cannot be given one")
    wire: object = getattr(harness, "wire", None)
    lacking = [name for name in ("inject", "observe") if not callable(getattr(wire, name, None))]
    if wire is not None and lacking:
        found.append(f"`wire` is {wire!r}, which has no `{'`, no `'.join(lacking)}`")
    child: object = getattr(harness, "child", None)
    if child is not None and not (isinstance(child, str) and ":" in child):
        found.append(f"`child` is {child!r}: give a URL for `open_bus`, or `package.module:name` of a harness")
    if not capabilities.has_broker:
        found += [
            f"the capability has_broker=False is impossible beside a `{name}`"
            for name in ("wire", "child")
            if getattr(harness, name, None) is not None
        ]
    return found


def _takes(function: Callable[..., object], *arguments: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # no signature to look at
        return True
    return True


def _signature(function: Callable[..., object]) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"
