"""Finding, installing and running the suite."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NotRequired, TypedDict

import anyio

__all__ = ["REQUIRED", "VARIABLE", "Check", "Suite", "SuiteError", "UnreachableError", "install", "ready"]

VARIABLE: Final = "NOTIFICATION_BUS_CONFORMANCE"
"""The environment variable that names a folder with the suite in it, or says `REQUIRED`."""

REQUIRED: Final = "required"
"""Where the suite cannot be had, its tests fail rather than be left out."""

_HERE: Final = Path(__file__).parent
_FOLDER: Final = _HERE.parents[2] / ".conformance"
_PINS: Final = ("package.json", "package-lock.json")
_INSTALLED_FROM: Final = "installed-from.json"
_LIMIT: Final = 240.0
_NETWORK: Final = (
    *("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT"),
    "ERR_SOCKET_TIMEOUT",
)
"""What npm says where it is the network's fault."""


class SuiteError(Exception):
    """The suite cannot be installed or run, and it is not the network."""


class UnreachableError(SuiteError):
    """There is no npm here, or no registry that it reaches."""


class Check(TypedDict):
    """One of the suite's findings."""

    id: str
    status: str
    errorMessage: NotRequired[str]


@dataclass(frozen=True)
class Suite:
    """An installed suite."""

    folder: Path

    def command(self, *arguments: str) -> list[str]:
        """The suite, with these arguments. It needs Node 22, and the lock file brings one for Linux."""
        own = next(self.folder.glob("node_modules/**/node-*/bin/node"), None) or shutil.which("node")
        if own is None:
            raise SuiteError(f"there is no Node in {self.folder}, nor elsewhere")
        return [str(own), str(self.folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"), *arguments]

    async def check_server(self, url: str, scenario: str, version: str, results: Path) -> list[Check]:
        """What a scenario has to say about a server. Its exit code says less: it lets warnings pass."""
        done = await anyio.run_process(
            self.command(
                *("server", "--url", url, "--scenario", scenario),
                *("--spec-version", version, "--output-dir", str(results)),
            ),
            check=False,
            cwd=self.folder,
        )
        checks = _checks_in(results)
        if not checks:
            raise SuiteError(f"no results: {done.stdout.decode()}{done.stderr.decode()}")
        return checks


def _checks_in(results: Path) -> list[Check]:
    files = sorted(results.glob("**/checks.json"))
    return [check for file in files for check in json.loads(file.read_text(encoding="utf-8"))]


def ready() -> Suite:
    """The suite: where the environment says that it is, or else installed, unless it has been already."""
    named = os.environ.get(VARIABLE, "")
    return Suite(Path(named)) if named not in {"", REQUIRED} else install(_FOLDER)


def install(folder: Path) -> Suite:
    """Install the suite into a folder, unless it is there as the lock file says."""
    folder.mkdir(exist_ok=True)
    wanted = (_HERE / "package-lock.json").read_text(encoding="utf-8")
    mark = folder / _INSTALLED_FROM
    with _alone(folder / ".lock"):
        if not (mark.exists() and mark.read_text(encoding="utf-8") == wanted):
            mark.unlink(missing_ok=True)
            for name in _PINS:
                shutil.copy(_HERE / name, folder)
            _npm_ci(folder)
            # Last, so that an installation that was broken off is begun again.
            mark.write_text(wanted, encoding="utf-8")
    return Suite(folder)


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """One process of a parallel test run installs, and the others wait for it."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _npm_ci(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UnreachableError("there is no npm here")
    # By default npm waits for a registry that does not answer for minutes.
    patience = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
    try:
        done = subprocess.run(  # noqa: PLW1510  # its output is the reason
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", *patience],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            timeout=_LIMIT,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"npm took longer than {_LIMIT:g} s") from error
    if done.returncode:
        if codes := [code for code in _NETWORK if code in done.stderr]:
            raise UnreachableError(f"npm reaches no registry ({codes[0]})")
        raise SuiteError(f"npm ci failed: {done.stderr}")
