"""Servers that are processes of this machine, each with a data folder and a port of its own."""

import shutil
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, TypeGuard, Unpack

from tests.brokers._base import BrokerStartError, Kind, NotInContainersError, Server, ServerConfig, Source, check_config
from tests.brokers._probe import answers
from tests.brokers._process import Process, free_port, workspace
from tests.brokers._programs import Flavour, choose_flavour, version_number

__all__ = ["LocalServer", "is_process"]


class LocalServer(Server):
    """A server process of ours, with a data folder and a port of its own."""

    source: Source = "local"
    _implementations: ClassVar[dict[Kind, type["LocalServer"]]] = {}

    def __init_subclass__(cls, kind: Kind) -> None:
        cls.kind = kind
        LocalServer._implementations[kind] = cls

    def __init__(self, flavour: Flavour, program: Path, config: ServerConfig) -> None:
        self.flavour = flavour.name
        self.host = "127.0.0.1"
        self.port = free_port()
        self.password = config.get("password")
        self.tls = config.get("tls")
        self._config = config
        self._program = program
        self._folder = workspace().folder(self.flavour)
        self._process: Process | None = None

    @staticmethod
    def start(kind: Kind, flavour: str | None = None, **config: Unpack[ServerConfig]) -> "LocalServer":
        """Start a server and return it when it answers.

        Args:
            kind: Which broker.
            flavour: One of `available_flavours(kind)`; None takes the first.
            config: What it is started with beyond the defaults.

        Raises:
            BrokerUnavailableError: There is no such program here.
            BrokerStartError: It did not start.
        """
        check_config(kind, config)
        chosen, program = choose_flavour(kind, flavour)
        server = LocalServer._implementations[kind](chosen, program, config)
        try:
            server._prepare()
            for attempts_left in (2, 1, 0):
                try:
                    server._launch()
                except BrokerStartError as error:
                    # The port was free a moment ago, and somebody else was quicker.
                    if attempts_left == 0 or "in use" not in str(error):
                        raise
                    server.port = free_port()
                else:
                    break
        except BaseException:
            server.stop()
            raise
        return server

    @abstractmethod
    def _prepare(self) -> None:
        """Write what the program needs before its first start."""

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    def _user(self) -> str | None:
        """The system's user to run as, if it must be another one."""
        return None

    def _launch(self) -> None:
        self._process = Process(self._command(), self._folder / "log", user=self._user())
        self._process.await_start(lambda: answers(self.kind, self.host, self.port, secure=self.tls is not None))

    def _running(self) -> Process:
        if self._process is None:
            raise BrokerStartError(f"{self!r} is down: restart it first")
        return self._process

    def _ask_version(self) -> str:
        return version_number(self._program)

    @property
    def pid(self) -> int:
        """The process id of the server, of its postmaster for PostgreSQL."""
        return self._running().pid

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def freeze(self) -> None:
        self._running().freeze()

    def thaw(self) -> None:
        self._running().thaw()

    def restart(self) -> None:
        self.kill()
        self._launch()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def is_process(server: Server) -> TypeGuard[LocalServer]:
    """True for a process of this machine, whose files and process id are within reach.

    Raises:
        NotInContainersError: It is a container.
    """
    if not isinstance(server, LocalServer):
        raise NotInContainersError("needs the files or the process of its server, and that is a container")
    return True
