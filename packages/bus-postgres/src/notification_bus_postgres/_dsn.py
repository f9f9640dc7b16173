"""DSNs: what they may hold, and one for each host of them."""

import inspect
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import asyncpg

from notification_bus import BusURLError
from notification_bus.url import refuse_unknown, split_url

__all__ = ["Dsn"]

_CLIENT: Final = (
    *("host", "port", "user", "password", "passfile", "dbname", "database", "service", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib"),
)
"""What asyncpg reads in a DSN; anything else there it would send to the server as a setting."""

_OURS: Final = ("connect_timeout", "application_name")
"""Options of libpq that asyncpg does not know, read here."""

_SETTINGS: Final = ("options", "role", "search_path", "statement_timeout")
"""Settings of the server that a DSN shared with the application is likely to have; `options` sets any other."""

_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]*)(:\d*)?")
_ENCODE: Final = "percent-encode the special characters of the user and the password, as %40 for @"


@dataclass(frozen=True, slots=True)
class Dsn:
    """A DSN, taken apart as far as the bus needs it. Never shown: it holds the password."""

    hosts: tuple[tuple[str, str], ...]
    """For each host its name and a DSN for it alone; one entry where asyncpg finds the hosts by itself."""

    address: str
    """The DSN as it may be shown."""

    secrets: tuple[str, ...]
    application_name: str
    connect_timeout: float | None
    """Seconds for one host."""

    @classmethod
    def parse(cls, text: str) -> "Dsn":
        """Read a DSN. Its text is in no error: a DSN that cannot be read does not tell where its password is.

        Raises:
            BusURLError: It cannot be read, or has an option that neither asyncpg nor this package knows.
        """
        parts, query = _split(text)
        user_info, _, netloc = parts.netloc.rpartition("@")
        hosts = _spread(netloc, query)
        if not all(_HOST.fullmatch(name) for name, _, _ in hosts):
            raise BusURLError(f"a host of the DSN has a port that is no number, or no name: {_ENCODE}")
        _check_query(query)
        password = user_info.partition(":")[2]
        secrets = (password, unquote(password), query.get("password", ""), query.get("sslpassword", ""))
        target = query.pop("target_session_attrs", "any")
        if target not in {"any", "primary", "read-write"}:
            raise BusURLError(f"target_session_attrs={target!r}: LISTEN and NOTIFY exist on the primary only")
        if target != "read-write":
            # Of the hosts named here each is asked in SQL. asyncpg goes by what the server said in greeting, and that
            # is what a pooler remembers; it is needed where the hosts stand in a service file or the environment.
            target = "any" if netloc or query.get("host") else "primary"
        query["target_session_attrs"] = target
        timeout = query.pop("connect_timeout", "0")
        if not re.fullmatch(r"-?\d+", timeout, re.ASCII):
            raise BusURLError(f"connect_timeout={timeout!r} is no number of seconds")
        application_name = query.pop("application_name", "notification-bus")

        def dsn(host: str, more: dict[str, str]) -> str:
            netloc = f"{user_info}@{host}" if user_info else host
            return parts._replace(scheme="postgresql", netloc=netloc, query=urlencode(query | more)).geturl()

        return cls(
            hosts=tuple((unquote(name) or "the default host", dsn(host, more)) for name, host, more in hosts),
            address=f"postgresql://{unquote(','.join(name for name, _, _ in hosts))}{parts.path}",
            secrets=tuple(form for secret in secrets if secret for form in (secret, quote(secret, safe=""))),
            application_name=application_name,
            connect_timeout=float(timeout) if int(timeout) > 0 else None,
        )


def _split(text: str) -> tuple[SplitResult, dict[str, str]]:
    if not text.startswith(("postgresql://", "postgres://")):
        raise BusURLError(
            "a DSN starts with postgresql://, as in 'postgresql://user:password@host:5432/database' (leave out a "
            "driver's name such as +asyncpg; a list of keywords such as 'host=… dbname=…' is not read)"
        )
    base, ours, query = split_url(text)
    misplaced = [*ours, *(name for name, _ in query if name == "listen_dsn")]
    if misplaced:
        raise BusURLError(
            f"{', '.join(misplaced)} in a DSN: these are options of the bus, so give them as keywords, "
            "or the whole as a URL to PostgresBus.from_url"
        )
    parts = urlsplit(base)
    if parts.netloc.count("@") > 1 or "@" in parts.path:
        raise BusURLError(f"the DSN cannot be read: {_ENCODE}, %2F for /")
    return parts, {name: value for name, value in query if value}


def _check_query(query: dict[str, str]) -> None:
    known = [*_CLIENT, *_OURS, *_SETTINGS]
    if "service" not in inspect.signature(asyncpg.connect).parameters:
        known.remove("service")  # asyncpg before 0.31
    refuse_unknown(
        [(name, value) for name, value in query.items() if name not in known],
        f"listen_dsn; of asyncpg and the server {', '.join(known)} (any other setting of the server goes into "
        "options=-c%20name=value)",
    )
    mode = query.get("sslmode", "prefer").replace("_", "-")
    if mode not in _SSL_MODES:
        raise BusURLError(f"sslmode={mode!r} is none of {', '.join(_SSL_MODES)}")


def _spread(netloc: str, query: dict[str, str]) -> list[tuple[str, str, dict[str, str]]]:
    """Each host's name, its place in the DSN, and its options."""
    if "," in netloc:
        specs = netloc.split(",")
        if not all(specs):
            raise BusURLError("the DSN has a host without a name in its list")
        return [(spec, spec, {}) for spec in specs]
    hosts = query.get("host", "").split(",")
    ports = query.get("port", "").split(",")
    if netloc or len(hosts) == 1:
        return [(netloc or ":".join(filter(None, (hosts[0], query.get("port")))), netloc, {})]
    if not all(hosts) or len(ports) not in {1, len(hosts)}:
        raise BusURLError(f"the DSN names {len(hosts)} hosts and {len(ports)} ports: give one port for each, or one")
    ports *= len(hosts) // len(ports)
    return [
        (":".join(filter(None, pair)), "", {"host": pair[0]} | ({"port": pair[1]} if pair[1] else {}))
        for pair in zip(hosts, ports, strict=True)
    ]
