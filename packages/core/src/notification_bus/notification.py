"""`BusNotification`, the value that travels, and its JSON codec.

The wire format is the notification body itself, `{"method": …}` or `{"method": …, "params": {…}}` in UTF-8, without an
envelope: a peer in another language (the Rust crate `neva`, which uses serde_json) reads what we write and writes what
we read. A value that such a peer could not read back unchanged is rejected when the notification is *built*.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast, final

from pydantic_core import PydanticSerializationError, from_json, to_json

from notification_bus._json import (
    MAX_DEPTH,
    JsonObject,
    check_read,
    copy,
    copy_object,
    find_surrogate,
    json_type,
    refuse,
)
from notification_bus.errors import InvalidNotificationError, MalformedBodyError, NotificationTooLargeError

__all__ = [
    "DEFAULT_MAX_BODY",
    "GAP",
    "BusNotification",
    "decode_bodies",
    "encode_body",
    "encode_frame",
]

DEFAULT_MAX_BODY: Final = 1_048_576
"""Bytes of the largest body if the broker sets no smaller limit: a notification says that something changed."""


class _Fields:
    """The attributes of a notification. The decoder fills them in before it makes the object immutable."""

    __slots__ = ("_body", "_key", "_method", "_params")

    _method: str
    _params: dict[str, Any] | None
    _body: bytes | None
    _key: str | None


@final
class BusNotification(_Fields):
    """A notification: a method, and params that are a JSON object or absent. Immutable, compared by value.

    It carries nothing about the replica that published it or the stream that it will reach.

    Args:
        method: The JSON-RPC method, such as `"notifications/tools/list_changed"`; not empty.
        params: A JSON object, or `None` for a notification without params. `{}` is kept and differs from `None`.
            A copy is taken, so later changes to the object change nothing here.

    Raises:
        InvalidNotificationError: A value cannot be sent: a wrong type, a key that is not a string, NaN or an infinity,
            a lone surrogate, an integer outside the 64-bit range, or more than 127 levels of nesting.
    """

    __slots__ = ()
    __match_args__ = ("method", "params")

    def __init__(self, method: str, params: JsonObject | None = None) -> None:
        if not isinstance(method, str):
            refuse("method", f"is {type(method).__name__}, not str")
        if not method:
            refuse("method", "is empty")
        copied: dict[str, Any] | None = None
        if params is not None:
            if not isinstance(params, Mapping):
                refuse("params", f"is {type(params).__name__}, not an object: use a dict, or None for no params")
            copied = copy_object(params, "params", MAX_DEPTH - 1)
        set_ = object.__setattr__
        set_(self, "_method", str.__str__(method))
        set_(self, "_params", copied)
        set_(self, "_key", None)
        set_(self, "_body", self._encode())

    @property
    def method(self) -> str:
        """The JSON-RPC method."""
        return self._method

    @property
    def params(self) -> JsonObject | None:
        """The params, or `None` if absent. Each access returns a copy: changing it does not change the notification."""
        params = self._params
        return None if params is None else cast("JsonObject", copy(params))

    def encode(self) -> bytes:
        """Return the body: compact JSON in UTF-8, without `params` if they are absent."""
        if self._body is None:
            object.__setattr__(self, "_body", self._encode())
        return cast("bytes", self._body)

    @classmethod
    def decode(cls, body: bytes | str) -> "BusNotification":
        """Read one body. Unknown members are ignored; `"params": null` reads as absent.

        Raises:
            MalformedBodyError: The bytes are not a notification body; the message says why.
        """
        raw = _to_bytes(body)
        parsed = _parse(raw)
        if not isinstance(parsed, dict):
            raise MalformedBodyError(f"the body is {json_type(parsed)}, not an object")
        return _read_single(raw, cast("dict[str, Any]", parsed))

    @classmethod
    def tools_list_changed(cls) -> "BusNotification":
        """The list of tools changed."""
        return cls("notifications/tools/list_changed")

    @classmethod
    def prompts_list_changed(cls) -> "BusNotification":
        """The list of prompts changed."""
        return cls("notifications/prompts/list_changed")

    @classmethod
    def resources_list_changed(cls) -> "BusNotification":
        """The list of resources changed."""
        return cls("notifications/resources/list_changed")

    @classmethod
    def resource_updated(cls, uri: str) -> "BusNotification":
        """A resource changed. Pass the exact string that clients subscribe to: URL types normalise it.

        Raises:
            InvalidNotificationError: `uri` is not a string.
        """
        if not isinstance(uri, str):
            refuse("uri", f"is {type(uri).__name__}, not str: pass the exact string that clients subscribe to")
        return cls("notifications/resources/updated", {"uri": uri})

    def _encode(self) -> bytes:
        value: dict[str, Any] = {"method": self._method}
        if self._params is not None:
            value["params"] = self._params
        try:
            return to_json(value)
        except PydanticSerializationError as exc:
            # The copy accepts lone surrogates, only the encoder rejects them. Finding the place takes a slow walk.
            raise InvalidNotificationError(
                f"{find_surrogate(value, '') or 'the notification'} holds a lone surrogate, "
                "which UTF-8 cannot carry: decode the text with errors='replace' first"
            ) from exc

    def _identity(self) -> str:
        # Unlike == on Python values, sorted JSON text tells 1, 1.0 and true apart.
        if self._key is None:
            object.__setattr__(self, "_key", json.dumps([self._method, self._params], sort_keys=True))
        return cast("str", self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BusNotification):
            return NotImplemented
        return self is other or (self._method == other._method and self._identity() == other._identity())

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return (
            f"BusNotification({self._method!r})"
            if self._params is None
            else (f"BusNotification({self._method!r}, {self._params!r})")
        )

    def __reduce__(self) -> tuple[type["BusNotification"], tuple[str, dict[str, Any] | None]]:
        return type(self), (self._method, self._params)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a BusNotification cannot be changed ({name}): build a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a BusNotification cannot be changed ({name}): build a new one")


GAP: Final = BusNotification("notifications/bus/gap")
"""Something may have been lost before this point: look again at everything you care about."""


def encode_body(notification: BusNotification, limit: int) -> bytes:
    """Return the body of what a caller publishes on a bus that carries `limit` bytes.

    Raises:
        TypeError: It is not a `BusNotification`.
        NotificationTooLargeError: The body is larger.
    """
    if not isinstance(notification, BusNotification):
        raise TypeError(f"publish takes a BusNotification, not {type(notification).__name__}")
    body = notification.encode()
    if len(body) > limit:
        raise NotificationTooLargeError(len(body), limit)
    return body


def encode_frame(bodies: Sequence[bytes]) -> bytes:
    """Return one frame, a JSON array, of several bodies."""
    return b"[" + b",".join(bodies) + b"]"


_KNOWN: Final = 256
_KNOWN_SIZE: Final = 512
_known: dict[bytes | str, BusNotification] = {}
"""Recently read small bodies: a list change is the same body each time, and notifications are immutable."""


def decode_bodies(data: bytes | str) -> tuple[list[BusNotification], list[MalformedBodyError]]:
    """Read one broker message: a body, or a frame of bodies. Never raises.

    Returns:
        The notifications, in order, and an error for each part that is not a notification.
    """
    try:
        known = _known.get(data)
    except TypeError:  # a bytearray, which some clients return
        return decode_bodies(bytes(cast("Any", data)))
    if known is not None:
        return [known], []
    raw = data if isinstance(data, bytes) else _to_bytes(data)
    try:
        parsed = _parse(raw)
        if parsed.__class__ is dict:
            notification = _read_single(raw, parsed)
            if len(raw) <= _KNOWN_SIZE:
                if len(_known) >= _KNOWN:
                    _known.clear()
                _known[data] = notification
            return [notification], []
        if parsed.__class__ is not list:
            raise MalformedBodyError(f"the body is {json_type(parsed)}, neither an object nor a frame of them")
        if not parsed:
            raise MalformedBodyError("the frame is empty")
    except MalformedBodyError as exc:
        return [], [exc]
    return _read_frame(raw, parsed)


def _read_single(raw: bytes, parsed: dict[str, Any]) -> BusNotification:
    notification = _from_object(parsed)
    has_params = notification._params is not None  # noqa: SLF001  # the codec's own value
    if _may_repeat_members(raw, 1, has_params):
        _refuse_repeated_members(raw)
    return notification


def _read_frame(raw: bytes, items: list[Any]) -> tuple[list[BusNotification], list[MalformedBodyError]]:
    notifications: list[BusNotification] = []
    errors: list[MalformedBodyError] = []
    with_params = 0
    for position, item in enumerate(items):
        try:
            if item.__class__ is not dict:
                raise MalformedBodyError(f"it is {json_type(item)}, not an object")
            notification = _from_object(item)
        except MalformedBodyError as exc:
            errors.append(MalformedBodyError(f"body {position} of a frame: {exc}"))
        else:
            notifications.append(notification)
            with_params += notification._params is not None  # noqa: SLF001  # the codec's own value
    if _may_repeat_members(raw, len(notifications), with_params):
        try:
            _refuse_repeated_members(raw)
        except MalformedBodyError as exc:
            # It is unknown which of the two readings the writer meant, so no body of the frame is trusted.
            return [], [MalformedBodyError(f"in a frame: {exc}")]
    return notifications, errors


def _to_bytes(data: bytes | str) -> bytes:
    return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data


def _parse(raw: bytes) -> Any:
    # The result consists of exact built-in types, so callers compare classes: `isinstance` narrows Any to unknown
    # types, and a cast for the type checkers would cost as much as the check.
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as exc:
        raise MalformedBodyError(f"the body is no JSON text: {exc}") from None


def _from_object(data: dict[str, Any]) -> BusNotification:
    method = data.get("method")
    if not isinstance(method, str):
        raise MalformedBodyError(
            f"its method is {json_type(method)}, not a string" if "method" in data else "it has no method"
        )
    if not method:
        raise MalformedBodyError("its method is empty")
    params: Any = data.get("params")
    if params is not None:
        if params.__class__ is not dict:
            raise MalformedBodyError(f"its params are {json_type(params)}, not an object")
        for value in params.values():
            if type(value) is not str:
                check_read(value, MAX_DEPTH - 2)
    # Filling in the base class and changing the class takes a quarter of the time of object.__setattr__.
    fields: Any = _Fields()
    fields._method = method  # noqa: SLF001
    fields._params = params  # noqa: SLF001
    fields._body = None  # noqa: SLF001
    fields._key = None  # noqa: SLF001
    fields.__class__ = BusNotification
    notification: BusNotification = fields
    return notification


def _may_repeat_members(raw: bytes, bodies: int, with_params: int) -> bool:
    """Return whether a member may be duplicated. Counting the names is cheap; an escaped name needs the slow check."""
    # `find`, since `in` first tries to use the bytes as a number, which takes twice the time.
    return raw.count(b'"method"') != bodies or raw.count(b'"params"') != with_params or raw.find(b"\\u") >= 0


def _refuse_repeated_members(raw: bytes) -> None:
    """Raise `MalformedBodyError` for a duplicate `method` or `params`, which serde_json refuses."""
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        # Called for nested objects first, so the last result is that of the outermost object.
        return {"": [name for name in ("method", "params") if names.count(name) > 1], "values": dict(pairs)}

    # The parser has already limited the depth, so this cannot exhaust the stack. Integers stay text: the program may
    # have set Python's limit on integer digits below what the parser accepts.
    outer: Any = json.loads(raw, object_pairs_hook=members, parse_int=str)
    bodies = cast("list[Any]", outer if isinstance(outer, list) else [outer])
    for item in bodies:
        if isinstance(item, dict):
            repeated.extend(cast("dict[str, list[str]]", item)[""])
    if repeated:
        raise MalformedBodyError(f"it has more than one member named {repeated[0]!r}")
