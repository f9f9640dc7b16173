"""From a channel's name to a NATS subject: every name has one of its own, and none is a wildcard."""

import re
from typing import Final

from notification_bus import BusURLError

__all__ = ["LONGEST_SUBJECT", "subject_of"]

LONGEST_SUBJECT: Final = 3800
"""Bytes. A server reads at most 4,096 bytes of a line, which holds some more than the subject."""

_ESCAPED: Final = re.compile(
    r"[^A-Za-z0-9_/=:@+~.-]"  # `*` and `>` are wildcards, a leading `$` is the server's, `%` is the escape itself
    r"|(?<![^.])\.|\.(?![^.])"  # a dot that would leave an empty token beside it
)


def subject_of(channel: str) -> str:
    """The subject of a channel: letters, digits, `_ / = : @ + ~ -` and dots between them stand for themselves.

    Everything else becomes the `%XX` of its UTF-8 bytes, so that two names never share a subject.

    Raises:
        BusURLError: The subject would be longer than servers read.
    """
    subject = _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), channel)
    if len(subject) > LONGEST_SUBJECT:
        raise BusURLError(
            f"the channel's name makes a NATS subject of {len(subject)} bytes, and servers read at most "
            f"{LONGEST_SUBJECT}: choose a shorter one (a character outside ASCII takes 6 bytes or more)"
        )
    return subject
