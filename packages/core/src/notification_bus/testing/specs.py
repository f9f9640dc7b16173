"""From `package.module:name` to a harness."""

import importlib
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, cast

from notification_bus.broker import BrokerBus
from notification_bus.testing.harness import Harness
from notification_bus.testing.harnesses import broker_bus_harness

__all__ = ["SpecError", "load_harness"]


class SpecError(ValueError):
    """A text does not lead to a harness. Says what is wrong, and what to do."""


def load_harness(spec: str) -> Harness:
    """The harness that `package.module:name` names.

    The name is that of a harness, of a class or function that makes one when it is called, or of a `BrokerBus` or a
    function that builds one from the keyword `channel`, for which `broker_bus_harness` makes one.

    Raises:
        SpecError: It names nothing of the kind. An error that a module raises while it is imported is its cause.
    """
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise SpecError(f"{spec!r} is not of the form package.module:name")
    found = _look_up(spec, module_name, name)
    if isinstance(found, Harness):
        return found
    if not callable(found):
        raise SpecError(f"{spec} is a {type(found).__name__}, which is not a `notification_bus.testing.Harness`")
    try:
        if _makes_a_bus(found):
            return broker_bus_harness(cast("Callable[..., BrokerBus]", found))
        made: object = found()
    except Exception as exc:
        raise SpecError(f"{spec} cannot be made a harness: {type(exc).__name__}: {exc}") from exc
    if not isinstance(made, Harness):
        raise SpecError(
            f"{spec} is not a harness: calling it gave a {type(made).__name__}, which is not a "
            "`notification_bus.testing.Harness`"
        )
    return made


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
    """The names in a module that could be meant: those that look alike, and those of harnesses and buses."""
    public = {n: value for n, value in vars(module).items() if not n.startswith("_")}
    names = get_close_matches(name, public, n=3, cutoff=0.7)
    names += [n for n, value in public.items() if _could_be(module, value) and n not in names]
    return f"; there is {', '.join(names[:5])}" if names else ""


def _could_be(module: object, value: object) -> bool:
    if inspect.isclass(value) or inspect.isfunction(value):
        own = getattr(value, "__module__", None) == getattr(module, "__name__", "")
        return own and (_makes_a_bus(value) or (inspect.isclass(value) and issubclass(value, Harness)))
    return isinstance(value, Harness)


def _makes_a_bus(thing: Callable[..., object]) -> bool:
    """A subclass of `BrokerBus`, or a function that requires a channel."""
    if inspect.isclass(thing) and issubclass(thing, BrokerBus):
        return True
    try:
        parameter = inspect.signature(thing).parameters.get("channel")
    except (TypeError, ValueError):  # no signature to look at
        return False
    return parameter is not None and parameter.default is parameter.empty
