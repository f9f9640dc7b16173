"""A bus URL's query, in which NATS's own options stand beside those of every bus."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from notification_bus import BusURLError
from notification_bus.url import refuse_unknown, split_url
from notification_bus_nats._credentials import tls_from_files

__all__ = ["read_url"]

_SWITCHES: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _text(option: str, text: str) -> str:
    if not text:
        raise BusURLError(f"the option {option} is empty")
    return text


def _switch(option: str, text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise BusURLError(f"the option {option}={text!r} is not true or false")
    return _SWITCHES[text.lower()]


def _seconds(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BusURLError(f"the option {option}={text!r} is not a number of seconds") from None


_READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "name": _text,
    "user_credentials": _text,
    "nkeys_seed": _text,
    "tls_ca_file": _text,
    "tls_cert_file": _text,
    "tls_key_file": _text,
    "tls_hostname": _text,
    "tls_handshake_first": _switch,
    "connect_timeout": _seconds,
    "dont_randomize": _switch,
}


def read_url(url: str) -> tuple[str, dict[str, Any]]:
    """Take a bus URL apart: the servers, and the arguments of `NatsBus` that stand in its query.

    Raises:
        BusURLError: An option is unknown, stands twice or cannot be read.
    """
    servers, _, query = url.partition("?")
    # The servers are not for `urlsplit`, which takes one of them, and shows passwords in its errors.
    _, ours, theirs = split_url(f"nats://servers?{query}")
    refuse_unknown([(name, text) for name, text in theirs if name not in _READERS], f"for NATS {', '.join(_READERS)}")
    found: dict[str, Any] = {}
    for name, text in theirs:
        if name in found:
            raise BusURLError(f"the option {name} stands twice in the URL: keep one")
        found[name] = _READERS[name](name, text)
    found["tls"] = tls_from_files(*(found.pop(f"tls_{part}_file", None) for part in ("ca", "cert", "key")))
    return servers, {"channel": "", **ours, **found}
