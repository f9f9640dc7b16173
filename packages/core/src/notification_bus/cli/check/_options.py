"""The options of the command, read and found to make sense before anything is run."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from notification_bus.cli._command import CommandError
from notification_bus.testing import CHECKS, Check, KnownFailure

__all__ = ["Options", "group_of", "missing_library", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be run, and how."""

    checks: tuple[Check, ...]
    skipped: Mapping[str, str]
    """Ids that are not to be run, and why."""
    known_failures: Sequence[KnownFailure]
    strict: bool
    backends: Sequence[str] | None
    scale: int
    stress: int | None
    json: bool
    junit: Path | None
    list_only: bool


def read_options(arguments: argparse.Namespace) -> Options:
    """Read them.

    Raises:
        CommandError: One makes no sense. Names it, and what would.
    """
    checks = tuple(CHECKS.values())
    if arguments.only:
        wanted = {id_ for text in arguments.only for id_ in _ids("--only", text)}
        checks = tuple(check for check in CHECKS.values() if check.id in wanted)
    skipped: dict[str, str] = {}
    for text in arguments.skip:
        name, reason = _pair("--skip", text)
        skipped |= dict.fromkeys(_ids("--skip", name), reason)
    known: list[KnownFailure] = []
    for text in arguments.known_failure:
        name, reason = _pair("--known-failure", text)
        if name not in CHECKS:
            raise CommandError(f"--known-failure: there is no check {name!r}{_meant(name, groups=False)}")
        # Where it is followed up is part of the reason here; what stands in its place is where it was declared.
        known.append(KnownFailure(name, reason, "declared by --known-failure"))
    if both := [failure.id for failure in known if failure.id in skipped]:
        raise CommandError(f"{both[0]} is both skipped and a known failure: a known failure is run, so choose one")
    for backend in arguments.backend or ():
        if missing := missing_library(backend):
            raise CommandError(f"--backend {backend}: {missing} is not installed here: pip install {missing}")
    return Options(
        checks=checks,
        skipped=skipped,
        known_failures=known,
        strict=arguments.strict,
        backends=None if arguments.backend is None else list(dict.fromkeys(arguments.backend)),
        scale=arguments.scale,
        stress=arguments.stress,
        json=arguments.json,
        junit=None if arguments.junit is None else _writable(Path(arguments.junit)),
        list_only=arguments.list,
    )


def group_of(check: Check) -> str:
    """The first part of the id."""
    return check.id.partition(".")[0]


_LIBRARIES: Final = {"trio": "trio", "asyncio+uvloop": "uvloop"}


def missing_library(backend: str) -> str | None:
    """The distribution that a backend needs and that is not installed; `None` where nothing is missing."""
    name = _LIBRARIES.get(backend)
    return name if name is not None and find_spec(name) is None else None


def _pair(option: str, text: str) -> tuple[str, str]:
    name, _, reason = text.partition("=")
    if not name.strip() or not reason.strip():
        raise CommandError(f"{option} {text!r} wants a reason, as in {option} {name.strip() or 'ID'}='why it is so'")
    return name.strip(), reason.strip()


def _ids(option: str, text: str) -> list[str]:
    """The ids that a text stands for: an id, a group, or a pattern such as `slow.*`."""
    found = [
        check.id for check in CHECKS.values() if text in (check.id, group_of(check)) or fnmatchcase(check.id, text)
    ]
    if not found:
        raise CommandError(f"{option}: there is no check or group {text!r}{_meant(text)}")
    return found


def _meant(text: str, *, groups: bool = True) -> str:
    ids = list(CHECKS)
    names = [*dict.fromkeys(map(group_of, CHECKS.values())), *ids] if groups else ids
    close = get_close_matches(text, names, n=2, cutoff=0.7)
    did = f"; did you mean {' or '.join(close)}?" if close else ";"
    return f"{did} `notification-bus check --list` lists them"


def _writable(path: Path) -> Path:
    if path.is_dir():
        raise CommandError(f"--junit {path}: that is a folder: give the name of a file in it")
    if not path.parent.is_dir():
        raise CommandError(f"--junit {path}: there is no folder {path.parent}: make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandError(f"--junit {path}: it cannot be written there")
    return path
