"""What must never be shown of a target."""

from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["Redactor"]

_SECRET: tuple[str, ...] = ("pass", "pwd", "secret", "token", "key", "cred", "seed")
"""Parts of the names of options whose values are secrets."""


class Redactor:
    """Blots out the secrets of a URL, wherever they stand."""

    def __init__(self, target: str) -> None:
        found = {text for text in _secrets(target) if len(text) > 1}
        self._secrets = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _secrets(target: str) -> Iterator[str]:
    if "://" not in target:
        return
    try:
        parts = urlsplit(target)
        query = parse_qsl(parts.query)
    except ValueError:
        parts, query = None, []
    # Cut by hand where it cannot be read: an odd character in a password is why it cannot.
    place = parts.netloc if parts is not None and "@" in parts.netloc else target.partition("://")[2]
    # The whole, and each server of a list.
    for server in (place, *place.split(",")):
        userinfo, at, _ = server.rpartition("@")
        user, colon, password = userinfo.partition(":")
        # A user alone may be a token.
        secret = password if colon else user
        if at:
            yield secret
            yield unquote(secret)
    for name, value in query:
        if any(part in name.lower() for part in _SECRET):
            yield value
