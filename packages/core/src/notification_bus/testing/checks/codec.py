"""Values: every one arrives as it was published, up to the size that the bus states."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from notification_bus.errors import NotificationTooLargeError
from notification_bus.notification import BusNotification
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import ECHO, body_of_size, expect_arrival, expect_method, publish_paced

_METHOD: Final = "notifications/contract/value"

_TEXTS: Final = (
    "",
    " ",
    "plain",
    "\x00",
    "\x07\x1b\x7f\x85",
    "\r\n\t\v",
    "\u2028\u2029",
    "\ufeffmark",
    "\ufffe\uffff",
    "\u202eright to left\u202c",
    "e\u0301 and é",
    "👩‍👩‍👧‍👦 🏳️‍🌈 \U0010ffff",
    "\"quoted\" 'single' `back` \\ / \\u0041",
    "</script><!-- %s {0} ${x}",
    "grüße, 你好, مرحبا, שלום",
)

_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.0,
    1.0,
    -1.5,
    0.1,
    1e300,
    5e-324,
    1e16,
    [],
    {},
    [[], {}, [[]], {"": {}}],
    {"": "empty key", "a": {"b": [{"c": None}]}},
    [1, 1.0, True, "1"],
)


def _difference(wanted: Any, found: Any, where: str) -> str | None:
    """Where two values differ, in value or in type; whatever kind of mapping or sequence a bus yields is fine."""
    kind, found_kind = _kind(wanted), _kind(found)
    if kind is dict and issubclass(found_kind, Mapping):
        one, other = _by_key(wanted), _by_key(found)
    elif kind is list and issubclass(found_kind, Sequence) and found_kind is not str:
        one, other = _by_position(wanted), _by_position(found)
    elif kind is found_kind and wanted == found:
        return None
    else:
        return f"{where} is {found!r} of type {found_kind.__name__}, not {wanted!r} of type {kind.__name__}"
    if one.keys() != other.keys():
        return f"{where} has {sorted(other)!r}, not {sorted(one)!r}"
    texts = (_difference(one[place], other[place], f"{where}{place}") for place in one)
    return next((text for text in texts if text is not None), None)


def _kind(value: object) -> type[object]:
    return type(value)


def _by_key(value: Any) -> dict[str, Any]:
    return {f"[{key!r}]": item for key, item in value.items()}


def _by_position(value: Any) -> dict[str, Any]:
    return {f"[{position}]": item for position, item in enumerate(value)}


@check("codec.values_round_trip", "MUST", "complete", needs={"two"})
async def codec_values_round_trip(kit: Context) -> None:
    """Odd text and every JSON type arrive equal and of the same type."""
    promised = "values arrive equal and of the same type, text character by character"
    cases: list[tuple[str, dict[str, Any]]] = [
        *(("text as a value", {"text": text}) for text in _TEXTS),
        ("text as keys", {text: number for number, text in enumerate(_TEXTS)}),
        *((f"the value {value!r}", {"value": value}) for value in _VALUES),
        ("every value at once", {"values": list(_VALUES)}),
        ("much nesting", {"nested": _nested(100)}),
    ]
    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(there, "the peer's subscription") as pump,
    ):
        for position, (what, params) in enumerate(cases):
            method = f"{_METHOD}/{position}"
            await kit.publish(here, BusNotification(method, params))
            arrived = await expect_method(kit, pump, method, promised, what)
            difference = _difference(params, arrived[0].params, "params")
            kit.expect(difference is None, promised, f"{what}: {difference}")


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


_UNLIMITED: Final = 65_536


@check("codec.size_limit_is_in_bytes", "MUST", "hand_off", needs={"two"})
async def codec_size_limit_is_in_bytes(kit: Context) -> None:
    """Bodies up to the stated number of bytes arrive whole, one byte more is refused, and the bus lives on."""
    limit = kit.capabilities.max_body
    size = limit or _UNLIMITED
    promised_whole = f"a body of {size} bytes arrives whole" + (", as `max_body` says" if limit else "")
    promised_refused = (
        f"a body of {size + 1} bytes, one more than `max_body`, is refused with NotificationTooLargeError, "
        "or dropped with a warning"
    )
    async with (
        kit.instance() as here,
        kit.instance() as there,
        kit.subscribed(there, "the peer's subscription") as pump,
    ):
        for name, character in (("ASCII", "x"), ("2-byte", "é"), ("3-byte", "€"), ("4-byte", "😀"), ("escaped", '"')):
            fitting = body_of_size(kit, size, character)
            number = kit.number_of(fitting) or 0
            await kit.publish(here, fitting)
            await expect_arrival(kit, [number], [pump], f"{promised_whole}, here of {name} characters")
            found = next(item for item in reversed(pump.items) if kit.number_of(item) == number)
            kit.expect(found == fitting, promised_whole, f"of {name} characters: it arrived changed")
            if limit is None:
                continue
            before = len(kit.drops)
            problem: Exception | None = None
            large = body_of_size(kit, size + 1, character)
            try:
                await here.publish(large)
            except Exception as exc:
                problem = exc
            await publish_paced(kit, here, 1, [pump], "after a body that was too large the bus works as before")
            kit.expect(
                isinstance(problem, NotificationTooLargeError) or (problem is None and len(kit.drops) > before),
                promised_refused,
                f"of {name} characters: it raised {problem!r}, and {len(kit.drops) - before} drops were warned of",
            )


@check("codec.deliveries_are_independent", "MUST", "complete")
async def codec_deliveries_are_independent(kit: Context) -> None:
    """What one subscriber does to a notification is not seen by another."""
    promised = "what one subscriber does to a notification is not seen by another, nor by the publisher"
    params: dict[str, Any] = {"uri": "kit://shared", "list": [1, {"deep": []}]}
    wanted = BusNotification(_METHOD, params)
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "the subscription that is changed") as first,
        kit.subscribed(bus, "the other subscription", reading=False) as second,
    ):
        published = BusNotification(_METHOD, params)
        await kit.publish(bus, published)
        await kit.until(lambda: first.items, ECHO, first)
        _spoil(first.items[0])
        second.resume()
        await kit.until(lambda: second.items, ECHO, second)
        for who, value in ((second.name, second.items[0]), ("the publisher's notification", published)):
            kit.expect(value == wanted, promised, f"{who} is now {value!r}, published was {wanted!r}")


def _spoil(item: object) -> None:
    """Change whatever lets itself be changed."""
    params: Any = getattr(item, "params", item)
    for change in (
        lambda: params["list"][1]["deep"].append("spoilt"),
        lambda: params["list"].append("spoilt"),
        lambda: params.update(uri="kit://spoilt"),
        lambda: setattr(item, "method", "spoilt"),
        lambda: setattr(item, "params", {}),
    ):
        try:
            change()
        except (TypeError, AttributeError, KeyError):
            continue
