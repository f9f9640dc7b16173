"""What every server of the tests has in common, wherever it runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypedDict
from urllib.parse import quote, urlsplit, urlunsplit

__all__ = [
    "DEFAULT_USER",
    "KINDS",
    "START_TIMEOUT",
    "BrokerStartError",
    "BrokerUnavailableError",
    "FaultError",
    "Kind",
    "NotInContainersError",
    "Server",
    "ServerConfig",
    "Source",
    "Tls",
    "check_config",
]

Kind = Literal["redis", "nats", "postgres"]
Source = Literal["url", "docker", "local"]

KINDS: Final[tuple[Kind, ...]] = ("redis", "nats", "postgres")

START_TIMEOUT: Final = 20.0
"""Seconds that a server has to answer after it was started."""

DEFAULT_USER: Final[Mapping[Kind, str]] = {"redis": "", "nats": "bus", "postgres": "postgres"}
"""The user that the `password` of a configuration is for. Redis has a default user without a name."""


class BrokerUnavailableError(RuntimeError):
    """There is no server of that kind here: no URL, no container engine, no binary. Says what would help."""


class NotInContainersError(RuntimeError):
    """The test needs a server that is a process of this machine, and was given a container. It is left out then."""


class BrokerStartError(RuntimeError):
    """A server did not start. Holds the end of its log."""


class FaultError(RuntimeError):
    """A server that is not ours was asked to fail."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files for a server, and the authority that clients must trust."""

    cert: Path
    key: Path
    ca: Path


class ServerConfig(TypedDict, total=False):
    """What a dedicated server is started with beyond the defaults."""

    args: Sequence[str]
    """Redis and NATS: more command-line arguments."""
    text: str
    """NATS: the text of a configuration file."""
    settings: Mapping[str, str]
    """PostgreSQL: more `-c name=value` settings."""
    password: str
    """Demanded of every client. The server's `url` has it, percent-encoded, and a user's name where there must be one.

    The NATS client decodes nothing, so for NATS it should be letters and digits."""
    tls: Tls
    """Local servers only: demand TLS. Not every flavour is built with it."""


_FITTING: Final[Mapping[Kind, frozenset[str]]] = {
    "redis": frozenset({"args", "password", "tls"}),
    "nats": frozenset({"args", "text", "password", "tls"}),
    "postgres": frozenset({"settings", "password", "tls"}),
}


def check_config(kind: Kind, config: ServerConfig) -> None:
    """Raise `ValueError` for what a server of this kind would ignore."""
    if unfit := sorted(config.keys() - _FITTING[kind]):
        raise ValueError(f"a {kind} server takes no {', '.join(unfit)}; it takes {', '.join(sorted(_FITTING[kind]))}")


class Server(ABC):
    """A running broker. Leaving its context stops it, also when it is frozen or dead."""

    kind: Kind
    flavour: str
    """Which one of its kind: "valkey", "postgres-15"; a container's image; "url"."""
    host: str
    port: int
    source: Source
    can_fault: bool = True
    """Whether it may be killed and frozen."""
    password: str | None = None
    tls: Tls | None = None

    @property
    def url(self) -> str:
        """What a client connects with, credentials included."""
        return self.via(self.host, self.port)

    def via(self, host: str, port: int) -> str:
        """The server's URL with another address in it: that of a proxy before it."""
        secure = self.tls is not None
        user = DEFAULT_USER[self.kind]
        if self.password is not None:
            user = f"{user}:{quote(self.password, safe='')}"
        elif self.kind != "postgres":
            user = ""
        address = f"{user}@{host}:{port}" if user else f"{host}:{port}"
        match self.kind:
            case "redis":
                return f"{'rediss' if secure else 'redis'}://{address}"
            case "nats":
                return f"{'tls' if secure else 'nats'}://{address}"
            case "postgres":
                return f"postgresql://{address}/postgres{'?sslmode=require' if secure else ''}"

    @cached_property
    def version(self) -> str:
        """As the server itself or its binary says."""
        return self._ask_version()

    @abstractmethod
    def _ask_version(self) -> str: ...

    @abstractmethod
    def kill(self) -> None:
        """End it as a power cut would; returns when all its processes are gone."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop all its processes: sockets stay open, and nothing answers."""

    @abstractmethod
    def thaw(self) -> None:
        """Let a frozen server go on."""

    @abstractmethod
    def restart(self) -> None:
        """Start it again on the same port with the same data, killing it first if it runs; returns when it answers."""

    @abstractmethod
    def stop(self) -> None:
        """End it for good and remove its data."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.kind} server: {self.source}, {self.flavour}, {self.host}:{self.port}>"


def replace_address(url: str, host: str, port: int) -> str:
    """The URL with another host and port, all else kept."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return url.replace(f":{parts.password}@", ":***@", 1)
