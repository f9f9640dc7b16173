"""From `package.module:name` to a harness."""

import importlib
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, cast

from notification_bus.broker import BrokerBus
from notification_bus.testing.brokerbus import BrokerBusHarness
from notification_bus.testing.harness import Harness

__all__ = ["SpecError", "load_harness"]


class SpecError(ValueError):
    """A text does not lead to a harness. Says what is wrong, and what to do."""


def load_harness(spec: str) -> Harness:
    """The harness that `package.module:name` names.

    The name is that of a harness, of a class or function that makes one when it is called, or of a `BrokerBus` or a
    function that builds one from the keyword `channel`, for which a `BrokerBusHarness` is made.

    Raises:
        SpecError: There is nothing of the kind. An error that a module raises while it is imported is its cause.
    """
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise SpecError(f"{spec!r} is not of the form package.module:name")
    found = _look_up(spec, module_name, name)
    if _is_harness(found) and not inspect.isclass(found):
        return cast("Harness", found)
    if not callable(found):
        raise SpecError(f"{spec} is a {type(found).__name__}, which is no harness: it has no `instance`")
    return _make(spec, found)


def _look_up(spec: str, module_name: str, name: str) -> object:
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as exc:
        missing = isinstance(exc, ModuleNotFoundError) and (f"{module_name}.").startswith(f"{exc.name}.")
        raise SpecError(
            f"there is no module {module_name!r}: it must be in this folder, or installed"
            if missing
            else f"importing {module_name} failed: {type(exc).__name__}: {exc}"
        ) from exc
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise SpecError(f"{spec}: there is no {part!r} in {module_name}{_like(part, found)}") from None
    return found


def _like(name: str, module: object) -> str:
    """The names in a module that could be meant: those that look like it, and what looks like a harness."""
    public = {n: value for n, value in vars(module).items() if not n.startswith("_")}
    names = get_close_matches(name, public, n=3, cutoff=0.7)
    names += [n for n, value in public.items() if _could_be(module, value) and n not in names]
    return f"; there is {', '.join(names[:5])}" if names else ""


def _could_be(module: object, value: object) -> bool:
    own = getattr(value, "__module__", None) == getattr(module, "__name__", "")
    if inspect.isclass(value) or inspect.isfunction(value):
        return own and (_is_harness(value) or _is_bus_class(value) or _wants_a_channel(value))
    return _is_harness(value)


def _is_harness(thing: object) -> bool:
    return callable(getattr(thing, "instance", None))


def _make(spec: str, found: Callable[..., object]) -> Harness:
    try:
        if _is_bus_class(found) or _wants_a_channel(found):
            return BrokerBusHarness(cast("Callable[..., BrokerBus]", found))
        made = found()
    except Exception as exc:
        raise SpecError(f"{spec} cannot be made a harness: {type(exc).__name__}: {exc}") from exc
    if not _is_harness(made):
        raise SpecError(
            f"{spec} is no harness: calling it gave a {type(made).__name__}, which has no `instance` "
            "(see `notification_bus.testing.Harness`)"
        )
    return cast("Harness", made)


def _is_bus_class(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BrokerBus)


def _wants_a_channel(function: Callable[..., object]) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("channel")
    except (TypeError, ValueError):  # no signature to look at
        return False
    return parameter is not None and parameter.default is parameter.empty
