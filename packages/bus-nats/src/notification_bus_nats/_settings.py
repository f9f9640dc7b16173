"""What `NatsBus` passes on to `nats.connect`: the keywords it takes, their forms in a URL, and the files they name."""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from nats.aio.client import RawCredentials

from notification_bus import BusURLError
from notification_bus.options import OPTION_NAMES, OptionValues, read_switch
from notification_bus.url import refuse_unknown

__all__ = ["NatsOptions", "client_settings", "read_credentials", "read_query"]


class NatsOptions(OptionValues, total=False):
    """The keywords of `NatsBus`: those of every bus, and those of `nats.connect`, with the same meaning."""

    name: str | None
    """What the server's monitoring shows for the connection; `notification-bus` unless given."""

    user: str | None
    password: str | None
    token: str | None
    """For servers whose URL has no credentials."""

    user_credentials: str | os.PathLike[str] | RawCredentials | tuple[str, str] | None
    """A file with JWT and seed, its content, or a file for each of the two. Files are read for each connection."""

    nkeys_seed: str | None
    """A file with an NKey seed, read for each connection."""

    nkeys_seed_str: str | None
    """The NKey seed itself."""

    signature_cb: Callable[[str], bytes] | None
    user_jwt_cb: Callable[[], bytearray | bytes] | None

    tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None
    """A context, or a function that makes one for each connection. With one, nothing is ever sent without TLS."""

    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    """PEM files from which a context is made for each connection, so that renewed files are used."""

    tls_hostname: str | None
    """The name in the server's certificate, where it differs from that in the URL."""

    tls_handshake_first: bool | None
    connect_timeout: float | None
    """Seconds for one server; then the next is tried. 2 unless given."""

    dont_randomize: bool | None
    """Try the servers in the order given."""

    ws_connection_headers: dict[str, list[str]] | None


_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("allow_reconnect", "max_reconnect_attempts", "reconnect_time_wait", "reconnect_to_server_handler"),
        "the bus reconnects by itself and for ever, with a gap; backoff_cap is its longest wait between two tries",
    ),
    **dict.fromkeys(
        ("closed_cb", "disconnected_cb", "discovered_server_cb", "error_cb", "lame_duck_mode_cb", "reconnected_cb"),
        "the bus watches its own connection; its log and stats() tell what happens to it",
    ),
    **dict.fromkeys(
        ("pending_size", "flush_timeout", "flusher_queue_size", "drain_timeout"),
        "what waits to be sent waits in the bus; its limits are outbox and close_timeout",
    ),
    **dict.fromkeys(("ping_interval", "max_outstanding_pings"), "the bus has probe_interval and probe_timeout"),
    "no_echo": "a bus receives what it publishes",
}
"""Keywords of `nats.connect` that would break the contract of a bus, and what to do instead."""


QUERY: Final[Mapping[str, type]] = {
    **dict.fromkeys(("name", "user_credentials", "nkeys_seed", "tls_hostname"), str),
    **dict.fromkeys(("tls_ca_file", "tls_cert_file", "tls_key_file"), str),
    **dict.fromkeys(("tls_handshake_first", "dont_randomize"), bool),
    "connect_timeout": float,
}
"""The keywords that can stand in a URL."""


def read_query(query: list[tuple[str, str]]) -> dict[str, Any]:
    """Read the query options of a URL that are not those of every bus.

    Raises:
        BusURLError: An option is unknown, stands twice or cannot be read.
    """
    refuse_unknown([option for option in query if option[0] not in QUERY], f"for NATS {', '.join(QUERY)}")
    found: dict[str, Any] = {}
    for name, text in query:
        if name in found:
            raise BusURLError(f"the option {name} stands twice in the URL: keep one")
        if not text:
            raise BusURLError(f"the option {name} is empty")
        if QUERY[name] is bool:
            found[name] = read_switch(name, text)
        else:
            try:
                found[name] = QUERY[name](text)
            except ValueError:
                raise BusURLError(f"the option {name}={text!r} is not a number of seconds") from None
    return found


def client_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords for `nats.connect`; `tls` among them may be a function.

    Raises:
        BusURLError: A value cannot be used, or needs a library that is not installed.
        TypeError: A keyword is unknown, or one that the bus sets itself.
    """
    for name in options:
        if name in _REFUSED:
            raise TypeError(f"NatsBus takes no {name}: {_REFUSED[name]}")
        if name not in NatsOptions.__optional_keys__:
            raise TypeError(
                f"NatsBus takes no {name}: its options are {', '.join(sorted(NatsOptions.__optional_keys__))}"
            )
    settings: dict[str, Any] = {"name": "notification-bus", "connect_timeout": 2.0, "tls_handshake_first": False}
    settings |= {name: value for name, value in options.items() if value is not None and name not in OPTION_NAMES}
    files = [settings.pop(f"tls_{part}_file", None) for part in ("ca", "cert", "key")]
    if any(files):
        if "tls" in settings:
            raise BusURLError("give either tls or the files of which a context is made, not both")
        settings["tls"] = _tls_from_files(*files)
    if not settings["connect_timeout"] > 0:
        raise BusURLError(f"connect_timeout is {settings['connect_timeout']!r}: give a number of seconds above 0")
    if "user" in settings or "password" in settings:
        settings = {"user": "", "password": ""} | settings  # nats-py sends either only with the other
    if {"user_credentials", "nkeys_seed", "nkeys_seed_str"} & settings.keys() and find_spec("nkeys") is None:
        raise BusURLError("NKeys and credentials files need a library: pip install 'notification-bus-nats[nkeys]'")
    return settings


def _tls_from_files(ca: str | None, cert: str | None, key: str | None) -> Callable[[], ssl.SSLContext]:
    if key and not cert:
        raise BusURLError("tls_key_file needs a tls_cert_file: the key is that of the certificate")

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
        return context

    try:
        make()
    except OSError as exc:  # as is ssl.SSLError
        files = ", ".join(filter(None, (ca, cert, key)))
        raise BusURLError(f"the files for TLS ({files}) cannot be read, or are not PEM: {exc}") from None
    return make


_JWT: Final = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s")
_SEED: Final = re.compile(r"-+BEGIN USER NKEY SEED-+\s+(\S+)")


def read_credentials(source: str | os.PathLike[str] | RawCredentials) -> RawCredentials:
    """Read a credentials file. nats-py itself loops without end, blocking the event loop, if a part is missing.

    Raises:
        ValueError: A part is missing.
        OSError: The file cannot be read.
    """
    if isinstance(source, RawCredentials):
        text, where = str(source), "the credentials"
    else:
        text, where = Path(source).read_text("utf-8", "replace"), f"the credentials file {os.fspath(source)}"
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        raise ValueError(f"{where} must hold a NATS USER JWT and a USER NKEY SEED, as `nsc generate creds` writes them")
    # As nats-py reads it: line by line, and without the last character of a line.
    return RawCredentials(
        f"-----BEGIN NATS USER JWT-----\n{jwt[1]}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed[1]}\n------END USER NKEY SEED------\n"
    )
