"""Servers in containers, by testcontainers."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack, cast

from tests.brokers._base import (
    START_TIMEOUT,
    BrokerStartError,
    BrokerUnavailableError,
    Kind,
    NotInContainersError,
    Server,
    ServerConfig,
    Source,
    check_config,
)
from tests.brokers._probe import answers, ask_version
from tests.brokers._process import free_port, until

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

__all__ = ["IMAGES", "DockerServer", "engine"]

IMAGES: Final[Mapping[Kind, str]] = {"redis": "redis:7", "nats": "nats:2", "postgres": "postgres:15"}
"""The image of each kind where no flavour names another."""

_PORTS: Final[Mapping[Kind, int]] = {"redis": 6379, "nats": 4222, "postgres": 5432}
_PASSWORD: Final = "tests"
_PASSING: Final = ("in use", "already allocated", "broken pipe")
"""In an engine's error: the port was taken in the last moment, or the copying of a file failed. Trying again helps."""
_SURELY_ENDED: Final = 1.0
"""Seconds that a container must be reported as ended before it counts as such."""
_CONFIG_FILE: Final = "/nats-tests.conf"


class _Container(Protocol):
    """The part of docker-py's container that is used here; that package has no types."""

    status: str

    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def unpause(self) -> None: ...
    def start(self) -> None: ...
    def wait(self, *, timeout: float) -> object: ...
    def reload(self) -> None: ...
    def logs(self, *, tail: int) -> bytes: ...


def _sign_of_engine() -> bool:
    """Whether looking for an engine is worth it: where there is no sign of one, its client library is never loaded."""
    home = Path.home()
    named = os.environ.get("DOCKER_HOST", "")
    if named and not named.startswith("unix://"):
        return True
    sockets = [named.removeprefix("unix://")] if named else ["/var/run/docker.sock", home / ".docker/run/docker.sock"]
    for path in sockets:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            return True
    return not named and ("DOCKER_CONTEXT" in os.environ or (home / ".testcontainers.properties").exists())


@cache
def engine() -> str | None:
    """The name and version of the container engine that answers, or None."""
    if not _sign_of_engine():
        return None
    # Whatever goes wrong on the way to an engine, there is none to use.
    with contextlib.suppress(Exception):
        from testcontainers.core.docker_client import DockerClient

        client = cast("Any", DockerClient(timeout=5).client)
        try:
            about = cast("Mapping[str, object]", client.version())
        finally:
            client.close()
        return f"{'Podman' if 'podman' in str(about).lower() else 'Docker'} {about['Version']}"
    return None


class DockerServer(Server):
    """A container of ours, on a host port that stays the same when it is restarted."""

    source: Source = "docker"

    def __init__(self, kind: Kind, image: str, config: ServerConfig) -> None:
        self.kind = kind
        self.flavour = image
        self.password = config.get("password", _PASSWORD if kind == "postgres" else None)
        self._config = config
        self._paused = False
        self.host = "127.0.0.1"
        self._launch()

    @staticmethod
    def start(kind: Kind, flavour: str | None = None, **config: Unpack[ServerConfig]) -> "DockerServer":
        """Start a container and return it when its server answers.

        Args:
            kind: Which broker.
            flavour: An image; None takes that of `IMAGES`.
            config: What it is started with beyond the defaults.

        Raises:
            BrokerUnavailableError: No container engine answers.
            BrokerStartError: It did not start.
        """
        check_config(kind, config)
        if "tls" in config:
            raise NotInContainersError("servers in containers are started without TLS")
        if flavour is not None and ":" not in flavour:
            raise NotInContainersError(f"{flavour} is a program, not an image")
        if engine() is None:
            raise BrokerUnavailableError(f"no container engine answers, so there is no container for {kind}")
        return DockerServer(kind, flavour or IMAGES[kind], config)

    def _launch(self) -> None:
        for attempts_left in (2, 1, 0):
            self.port = free_port()
            self._outer = self._describe()
            try:
                self._outer.start()
                self.host = self._outer.get_container_host_ip()
                self._inner = cast("_Container", self._outer.get_wrapped_container())
                self._await_answer()
            except BaseException as error:
                self._outer.stop()
                if attempts_left == 0 or not any(passing in str(error) for passing in _PASSING):
                    raise
            else:
                return

    def _describe(self) -> "DockerContainer":
        from testcontainers.core.container import DockerContainer

        config = self._config
        container = DockerContainer(self.flavour).with_bind_ports(_PORTS[self.kind], self.port)
        match self.kind:
            case "redis":
                password = [] if self.password is None else ["--requirepass", self.password]
                container.with_command(["--save", "", "--appendonly", "no", *password, *config.get("args", ())])
            case "nats":
                text = config.get("text", "")
                if self.password is not None:
                    text += f'\nauthorization {{ user: bus, password: "{self.password}" }}\n'
                file = ["--config", _CONFIG_FILE] if text else []
                if text:
                    container.with_copy_into_container(text.encode(), _CONFIG_FILE)
                container.with_command([*file, *config.get("args", ())])
            case "postgres":
                settings = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}
                settings.update(config.get("settings", {}))
                container.with_envs(POSTGRES_USER="postgres", POSTGRES_PASSWORD=self.password or _PASSWORD)
                container.with_command([word for pair in settings.items() for word in ("-c", "=".join(pair))])
        return container

    def _await_answer(self) -> None:
        ended: list[float] = []
        answered = False

        def settled() -> bool:
            nonlocal answered
            answered = answers(self.kind, self.host, self.port)
            if answered or self._state() not in {"exited", "dead"}:
                ended.clear()
            else:
                ended.append(time.monotonic())
            # An engine may for a moment go on reporting the end of the run before this one.
            return answered or (len(ended) > 1 and ended[-1] - ended[0] > _SURELY_ENDED)

        # An image that initializes its data takes longer than a binary with a prepared folder.
        with contextlib.suppress(TimeoutError):
            until(settled, 3 * START_TIMEOUT, f"an answer of {self.flavour}")
        if answered:
            return
        log = self._inner.logs(tail=40).decode("utf-8", "replace").strip()
        raise BrokerStartError(f"the container of {self.flavour} does not answer; its log ends:\n{log}")

    def _ask_version(self) -> str:
        return ask_version(self.kind, self.url)

    def _state(self) -> str:
        self._inner.reload()
        return self._inner.status

    def kill(self) -> None:
        self.thaw()
        if self._state() == "running":
            self._inner.kill()
            self._inner.wait(timeout=START_TIMEOUT)

    def freeze(self) -> None:
        if not self._paused:
            self._inner.pause()
            self._paused = True

    def thaw(self) -> None:
        if self._paused:
            self._inner.unpause()
            self._paused = False

    def restart(self) -> None:
        self.kill()
        self._inner.start()
        self._await_answer()

    def stop(self) -> None:
        self.thaw()
        self._outer.stop()
