"""What is done to bodies so that PostgreSQL carries each of them. Pure: no connection here."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["MAX_PAYLOAD", "SUFFIX_LIMIT", "escaped", "suffix", "transactions"]

MAX_PAYLOAD: Final = 7999
"""Bytes of the largest payload that NOTIFY takes."""

SUFFIX_LIMIT: Final = 12
"""Characters of the longest suffix; there are more than 22 million of at most that length."""

_BLANKS: Final = " \t\n\r"
"""All white space that JSON allows, and that serde_json and every other reader skips after a value."""

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def suffix(number: int) -> str:
    """White space that differs for each number; the shortest for the smallest, none for 0."""
    blanks = ""
    while number > 0 and len(blanks) < SUFFIX_LIMIT:
        number, digit = divmod(number - 1, len(_BLANKS))
        blanks += _BLANKS[digit]
    return blanks


def transactions(payloads: Sequence[str]) -> Iterator[Sequence[str]]:
    """The payloads in order, no two equal in one transaction: PostgreSQL would deliver one of them only.

    Equal ones get white space at the end, which is not part of the JSON value. One that is too long to get any begins
    a transaction of its own.
    """
    if len(set(payloads)) == len(payloads):
        yield payloads
        return
    taken: dict[str, None] = {}
    repeats: dict[str, int] = {}
    for payload in payloads:
        different = payload
        while different in taken:
            repeats[payload] = repeats.get(payload, 0) + 1
            different = payload + suffix(repeats[payload])
        if different is not payload and len(different.encode()) > MAX_PAYLOAD:
            yield list(taken)
            taken.clear()
            repeats.clear()
            different = payload
        taken[different] = None
    yield list(taken)


def escaped(payload: str) -> str:
    """The same JSON value in ASCII, for a database whose encoding lacks some of its characters."""
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], payload)
