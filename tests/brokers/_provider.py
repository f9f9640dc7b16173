"""Which server a test gets: that of a URL, one in a container, or one of this machine's binaries."""

import atexit
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, Literal, Unpack, get_args
from urllib.parse import urlsplit

from tests.brokers._base import (
    KINDS,
    BrokerUnavailableError,
    FaultError,
    Kind,
    Server,
    ServerConfig,
    Source,
    replace_address,
    without_password,
)
from tests.brokers._docker import IMAGES, DockerServer, engine
from tests.brokers._local import LocalServer
from tests.brokers._probe import ask_version
from tests.brokers._programs import available_flavours, describe_flavour

__all__ = ["MODES", "VARIABLES", "Mode", "Provider", "UrlServer"]

Mode = Literal["auto", "url", "docker", "local"]

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

VARIABLES: Final[Mapping[Kind, str]] = {kind: f"NOTIFICATION_BUS_TEST_{kind.upper()}_URL" for kind in KINDS}
"""The environment variable that names a server to use."""

_DEFAULT_PORTS: Final[Mapping[Kind, int]] = {"redis": 6379, "nats": 4222, "postgres": 5432}


class UrlServer(Server):
    """A server of somebody else: used, never harmed."""

    source: Source = "url"
    flavour = "url"
    can_fault = False

    def __init__(self, kind: Kind, url: str) -> None:
        self.kind = kind
        self._url = url
        parts = urlsplit(url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or _DEFAULT_PORTS[kind]
        self.password = parts.password

    @property
    def url(self) -> str:
        return self._url

    def via(self, host: str, port: int) -> str:
        return replace_address(self._url, host, port)

    def _ask_version(self) -> str:
        return ask_version(self.kind, self._url)

    def _refuse(self, what: str) -> FaultError:
        return FaultError(
            f"the {self.kind} server of {VARIABLES[self.kind]} is not ours to {what}: "
            "ask the provider for a dedicated one"
        )

    def kill(self) -> None:
        raise self._refuse("kill")

    def freeze(self) -> None:
        raise self._refuse("freeze")

    def thaw(self) -> None:
        raise self._refuse("thaw")

    def restart(self) -> None:
        raise self._refuse("restart")

    def stop(self) -> None:
        """Nothing: it goes on running."""


class Provider:
    """The servers of a session. Shared ones start at the first use, and are stopped by `close` or when Python ends."""

    def __init__(self, mode: Mode = "auto") -> None:
        self.mode: Mode = mode
        self._shared: dict[Kind, Server] = {}
        self._open = ExitStack()
        atexit.register(self.close)

    def source(self, kind: Kind) -> Source:
        """Where the shared server of this kind comes from.

        Raises:
            BrokerUnavailableError: From nowhere. Says what would help.
        """
        if self.mode in {"auto", "url"} and os.environ.get(VARIABLES[kind]):
            return "url"
        if self.mode == "url":
            raise BrokerUnavailableError(f"--brokers=url: {VARIABLES[kind]} is not set, so there is no {kind} server")
        if self.mode in {"auto", "docker"} and engine() is not None:
            return "docker"
        if self.mode == "docker":
            raise BrokerUnavailableError("--brokers=docker, but no container engine answers (is DOCKER_HOST right?)")
        describe_flavour(kind)  # raises when there is no program, and says which would help
        return "local"

    def get(self, kind: Kind) -> Server:
        """The shared server of this kind. Whoever harms it harms every other test: see `dedicated`."""
        if kind not in self._shared:
            self._shared[kind] = self._open.enter_context(self._start(kind))
        return self._shared[kind]

    def _start(self, kind: Kind) -> Server:
        match self.source(kind):
            case "url":
                return UrlServer(kind, os.environ[VARIABLES[kind]])
            case "docker":
                return DockerServer.start(kind)
            case "local":
                return LocalServer.start(kind)

    def flavours(self, kind: Kind) -> list[str]:
        """What `dedicated` can be asked for here, its default first."""
        return [IMAGES[kind]] if self._in_containers(kind) else available_flavours(kind)

    def _in_containers(self, kind: Kind) -> bool:
        """Whether dedicated servers are containers: when told so, or for lack of programs, which start quicker."""
        return self.mode == "docker" or (not available_flavours(kind) and self.mode != "local" and engine() is not None)

    @contextmanager
    def dedicated(
        self, kind: Kind, flavour: str | None = None, **config: Unpack[ServerConfig]
    ) -> Generator[LocalServer | DockerServer]:
        """A server for one test alone, which may kill and freeze it.

        Args:
            kind: Which broker.
            flavour: One of `flavours(kind)`; None takes the first.
            config: What it is started with beyond the defaults.
        """
        start = DockerServer.start if self._in_containers(kind) else LocalServer.start
        with start(kind, flavour, **config) as server:
            yield server

    def describe(self) -> list[str]:
        """A line for each kind: what its tests run against."""
        return [f"brokers: {kind}: {self._describe(kind)}" for kind in KINDS]

    def _describe(self, kind: Kind) -> str:
        try:
            source = self.source(kind)
        except BrokerUnavailableError as error:
            return f"none ({error})"
        match source:
            case "url":
                return f"{without_password(os.environ[VARIABLES[kind]])} (of {VARIABLES[kind]})"
            case "docker":
                return f"container of {IMAGES[kind]} ({engine()})"
            case "local":
                return f"local {describe_flavour(kind)}; also here: {', '.join(available_flavours(kind)[1:]) or 'none'}"

    def close(self) -> None:
        """Stop the shared servers. They start anew when they are asked for again."""
        self._shared.clear()
        self._open.close()
