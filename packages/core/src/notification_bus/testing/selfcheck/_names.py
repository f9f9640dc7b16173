"""Which texts an object holds that have a name in them: a sign of what it was given when it was built."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, cast

__all__ = ["texts_with"]

_DEPTH: Final = 4
_MOST: Final = 2000


def texts_with(name: str, thing: object) -> set[str]:
    """The texts within an object, some levels deep, in which the name stands."""
    found: set[str] = set()
    seen: set[int] = set()
    level: list[object] = [thing]
    for _ in range(_DEPTH + 1):
        below: list[object] = []
        for item in level:
            if id(item) in seen or len(seen) > _MOST:
                continue
            seen.add(id(item))
            text = item.decode("utf-8", "replace") if isinstance(item, bytes) else item
            if isinstance(text, str):
                if name in text:
                    found.add(text)
            else:
                below += _parts(item)
        level = below
    return found


def _parts(item: object) -> Iterator[object]:
    if isinstance(item, type | ModuleType):
        return
    if isinstance(item, partial):
        yield item.func
        yield from item.args
        yield from item.keywords.values()
    elif isinstance(item, MethodType):
        yield item.__self__
    elif isinstance(item, FunctionType):
        for cell in item.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # an empty cell
                continue
    elif isinstance(item, Mapping):
        pairs = cast("Mapping[object, object]", item)
        yield from list(pairs)
        yield from list(pairs.values())
    elif isinstance(item, list | tuple | set | frozenset):
        yield from list(cast("Collection[object]", item))
    else:
        attributes: dict[str, Any] = getattr(item, "__dict__", {})
        yield from list(attributes.values())
        for kind in type(item).__mro__:
            slots: object = kind.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else cast("Collection[str]", slots):
                # Not every slot is filled, and one with two underscores has another name: neither matters here.
                yield getattr(item, slot, None)
