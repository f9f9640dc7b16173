"""A local PostgreSQL: it refuses to run as root, is slow to initialize, and is many processes."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.brokers import _reaper
from tests.brokers._base import BrokerStartError
from tests.brokers._local import LocalServer
from tests.brokers._process import unprivileged, workspace

__all__ = ["PostgresServer"]

_SETTINGS = {
    # The page cache survives a killed server; a crash of the machine may take everything. Commits stay synchronous, for
    # what was committed must be there after a kill; without a disk to wait for they cost a few microseconds.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "logging_collector": "off",
    # Segments of a killed server would stay in /dev/shm; as files they go with its folder.
    "dynamic_shared_memory_type": "mmap",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def _run(command: Sequence[str], text: str = "") -> None:
    user = unprivileged()
    group = None if user is None else pwd.getpwnam(user).pw_gid
    answer = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
        user=user,
        group=group,
        extra_groups=None if user is None else [],
        input=text,
    )
    if answer.returncode != 0:
        said = (answer.stdout + answer.stderr)[-2000:].strip()
        raise BrokerStartError(f"{Path(command[0]).name} ended with code {answer.returncode}: {said}")


def _give(path: Path) -> None:
    user = unprivileged()
    if user is not None:
        shutil.chown(path, user, pwd.getpwnam(user).pw_gid)


@cache
def _usable(program: Path) -> Path:
    """The program, or a copy of it where the user it must run as cannot reach it, as in a root user's home."""
    user = unprivileged()
    if user is None or program.is_relative_to("/usr"):
        return program
    try:
        _run([str(program), "--version"])
    except (BrokerStartError, PermissionError):
        install = program.parent.parent
        site = install.parent.parent
        copy = workspace().folder("postgres-program")
        package = install.parent.name
        shutil.copytree(install, copy / package / install.name)
        # The libraries that a wheel brings along are found relative to the program.
        if (site / f"{package}.libs").is_dir():
            shutil.copytree(site / f"{package}.libs", copy / f"{package}.libs")
        return copy / package / program.relative_to(install.parent)
    return program


@cache
def _template(program: Path) -> Path:
    """A data folder fresh from initdb, made once: copying it is many times faster."""
    folder = workspace().folder("postgres-template")
    _give(folder)
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"]
    _run([str(program.parent / "initdb"), "--pgdata", str(folder / "data"), *options])
    return folder / "data"


class PostgresServer(LocalServer, kind="postgres"):
    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _user(self) -> str | None:
        return unprivileged()

    def _prepare(self) -> None:
        self._program = _usable(self._program)
        _give(self._folder)
        subprocess.run(["cp", "-pR", str(_template(self._program)), str(self._data)], check=True)
        host = "hostssl" if self.tls is not None else "host"
        method = "trust" if self.password is None else "scram-sha-256"
        (self._data / "pg_hba.conf").write_text(f"local all all trust\n{host} all all all {method}\n", "ascii")
        if self.password is not None:
            quoted = self.password.replace("'", "''")
            single = [str(self._program), "--single", "-D", str(self._data), "postgres"]
            _run(single, f"ALTER ROLE postgres PASSWORD '{quoted}'\n")
        if self.tls is not None:
            for name, source in (("server.crt", self.tls.cert), ("server.key", self.tls.key)):
                shutil.copyfile(source, self._data / name)
                (self._data / name).chmod(0o600)
                _give(self._data / name)

    def _command(self) -> Sequence[str]:
        settings = dict(_SETTINGS)
        settings["listen_addresses"] = self.host
        settings["port"] = str(self.port)
        settings["unix_socket_directories"] = str(self._folder)
        if self.tls is not None:
            settings["ssl"] = "on"
        settings.update(self._config.get("settings", {}))
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return [str(self._program), "-D", str(self._data), *options]

    def kill(self) -> None:
        super().kill()
        # All its processes are gone, whoever has the id in the lock file by now.
        if os.path.lexists(self._data / "postmaster.pid"):
            _reaper.release_memory(self._data)
