"""JSON values: their types, private copies of them, and the checks for what a peer could not read back."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias, cast

from notification_bus.errors import InvalidNotificationError, MalformedBodyError

__all__ = [
    "MAX_DEPTH",
    "JsonObject",
    "JsonValue",
    "check_read",
    "copy",
    "copy_object",
    "find_surrogate",
    "json_type",
    "refuse",
]

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""A JSON value. Of the sequences only lists and tuples are taken, as arrays."""

JsonObject: TypeAlias = Mapping[str, JsonValue]
"""A JSON object, the type of `params`."""

MAX_DEPTH: Final = 127
"""Levels of objects and arrays in one body, its own object included: the limit of serde_json."""

# Outside this range serde_json reads an integer as a float, which may not be the published value.
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def check_read(value: Any, depth: int) -> None:
    """Raise `MalformedBodyError` for what the parser accepts but serde_json would reject or read differently."""
    kind = value.__class__
    if kind is int:
        if not _MIN_INT <= value <= _MAX_INT:
            raise MalformedBodyError("it holds an integer outside the 64-bit range")
    elif kind is float:
        if not isfinite(value):
            raise MalformedBodyError("it holds a number too large for a 64-bit float")
    elif kind is dict or kind is list:
        if depth <= 0:
            raise MalformedBodyError(f"it is nested deeper than {MAX_DEPTH} levels")
        for item in value.values() if kind is dict else value:
            if type(item) is not str:
                check_read(item, depth - 1)


def json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def copy(value: Any) -> Any:
    if type(value) is dict:
        return {k: v if type(v) is str else copy(v) for k, v in cast("dict[str, Any]", value).items()}
    if type(value) is list:
        items = cast("list[Any]", value)
        return [v if type(v) is str else copy(v) for v in items]
    return value


def copy_object(value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    if depth <= 0:
        refuse(where, f"is nested deeper than the {MAX_DEPTH} levels that every peer can read (or contains itself)")
    copied: dict[str, Any] = {}
    plain = True
    for key, item in value.items():
        if type(key) is not str:
            if not isinstance(key, str):
                refuse(where, f"has {_show_key(key)} of type {type(key).__name__}: keys are strings")
            key = str.__str__(key)  # noqa: PLW2901  # a plain str from a subclass, such as a StrEnum
            plain = False
        # Keys of a subclass may differ although their texts are equal.
        if not plain and key in copied:
            refuse(where, f"has the key {key!r} twice")
        copied[key] = item if type(item) is str else _copy_checked(item, f"{where}[{key!r}]", depth)
    return copied


def _show_key(key: object) -> str:
    try:
        return f"the key {key!r}"
    except Exception:  # an integer with more digits than Python prints, or a failing __repr__
        return "a key"


def _copy_checked(value: Any, where: str, depth: int) -> Any:
    kind = cast("type[Any]", type(value))
    if value is None or kind is bool:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if not _MIN_INT <= value <= _MAX_INT:
            refuse(where, "is an integer outside the 64-bit range, which peers would read as a float: send it as text")
        return int.__int__(value)
    if isinstance(value, float):
        if not isfinite(value):
            refuse(where, f"is {float.__repr__(value)}, which JSON cannot carry: send null or text")
        return float.__float__(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return copy_object(members, where, depth - 1)
    if isinstance(value, list | tuple):
        if depth <= 1:
            refuse(where, f"is nested deeper than the {MAX_DEPTH} levels that every peer can read (or contains itself)")
        items = cast("Sequence[Any]", value)
        return [
            item if type(item) is str else _copy_checked(item, f"{where}[{position}]", depth - 1)
            for position, item in enumerate(items)
        ]
    return refuse(
        where, f"is a {kind.__name__}, which JSON cannot carry: convert it to text, a number, a list or a dict"
    )


def find_surrogate(value: Any, where: str) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return where
        return None
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            inner = f"{where}[{key!r}]" if where else key
            if find_surrogate(key, where):
                return f"a key of {where or 'the notification'}, {key!r},"
            if found := find_surrogate(item, inner):
                return found
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        for position, item in enumerate(items):
            if found := find_surrogate(item, f"{where}[{position}]"):
                return found
    return None


def refuse(where: str, what: str) -> NoReturn:
    raise InvalidNotificationError(f"{where} {what}")
