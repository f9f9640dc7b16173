"""The tasks of this repository. What there is to run is read from the workspace: its packages, and their classifiers.

`nox` alone runs the default set; `nox --list` says what else there is.
"""

import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True
# A Python that is not on this machine is left out; CI has all of them.
nox.options.error_on_missing_interpreters = False

ROOT = Path(__file__).parent
DIST = ROOT / "dist"


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


PACKAGES = {path.parent.name: _project(path.parent) for path in sorted(ROOT.glob("packages/*/pyproject.toml"))}
PYTHONS = [
    classifier.rpartition(" ")[2]
    for classifier in PACKAGES["core"]["classifiers"]
    if classifier.startswith("Programming Language :: Python :: 3.")
]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ADAPTERS = {folder.removeprefix("bus-"): project["name"] for folder, project in PACKAGES.items() if folder != "core"}

_AT_ONCE = ("--numprocesses=3", "--dist=loadfile")
"""A file at a time in each of three processes: most of what they do is to wait."""

nox.options.sessions = ["lint", "typing", f"tests-{HERE}", "mcp_versions(oldest)", "wheels"]


def _module(distribution: str) -> str:
    return distribution.replace("-", "_")


def _sync(session: nox.Session, *options: str) -> None:
    """Install the workspace and its groups as locked, into the session's own environment."""
    session.run_install(
        "uv", "sync", "--frozen", "--all-packages", f"--python={session.virtualenv.location}", "--quiet", *options,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
    )  # fmt: skip


@nox.session(python=HERE)
def lint(session: nox.Session) -> None:
    """The linter, the formatter, and the lock file."""
    _sync(session, "--only-group", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("uv", "lock", "--check", "--quiet", external=True)


@nox.session(python=HERE)
def typing(session: nox.Session) -> None:
    """Types: mypy and pyright, both strict, on sources and tests; and the completeness of what users import."""
    _sync(session)
    session.run("mypy")
    session.run("pyright", "--warnings")
    for project in PACKAGES.values():
        session.run("pyright", "--verifytypes", _module(project["name"]), "--ignoreexternal", silent=True)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The whole suite. Arguments go to pytest."""
    _sync(session)
    session.run("pytest", *_AT_ONCE, *session.posargs)


@nox.session(python=HERE)
def build(session: nox.Session) -> None:
    """Build the sdist of every distribution, and from it the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    session.run("uv", "build", "--all-packages", "--out-dir", str(DIST), "--quiet", external=True)


def _wheel(distribution: str) -> str:
    (wheel,) = DIST.glob(f"{_module(distribution)}-*.whl")
    return str(wheel)


@contextmanager
def _without_sources(session: nox.Session) -> Generator[None]:
    """A folder that holds the tests and nothing of `packages/`: what is imported can only be what was installed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "tests", Path(folder) / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        with session.chdir(folder):
            yield


def _groups(name: str) -> list[str]:
    groups: dict[str, list[Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "dependency-groups"
    ]
    return [entry for entry in groups[name] if isinstance(entry, str)]


def _contract(session: nox.Session) -> None:
    """The kit, run by what core's wheel holds, against each bus's wheel."""
    files = [f"tests/{adapter}/test_contract.py" for adapter in ADAPTERS]
    session.run("pytest", *files, "-q", "-p", "no:cacheprovider", *_AT_ONCE, *session.posargs)


@nox.session(python=HERE)
def wheels(session: nox.Session) -> None:
    """Build once; install each wheel alone and import it; run the kit from the wheels, the sources out of reach."""
    build(session)
    for project in PACKAGES.values():
        with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
            session.run("uv", "venv", "--quiet", "--python", sys.executable, "alone", external=True)
            install = ("uv", "pip", "install", "--quiet", "--python", "alone", "--find-links", str(DIST))
            session.run(*install, _wheel(project["name"]), external=True)
            python = "alone/Scripts/python" if sys.platform == "win32" else "alone/bin/python"
            session.run(python, "-c", f"import {_module(project['name'])}", external=True)
    session.install(*(_wheel(project["name"]) for project in PACKAGES.values()), *_groups("test"))
    with _without_sources(session):
        session.run("python", "-c", _NO_SOURCES, str(ROOT), *(_module(p["name"]) for p in PACKAGES.values()))
        _contract(session)


_NO_SOURCES = """
import importlib, sys
for name in sys.argv[2:]:
    where = importlib.import_module(name).__file__
    assert not where.startswith(sys.argv[1] + "/packages"), f"{name} comes from the sources: {where}"
"""


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """The oldest dependencies that the packages say they support, on the oldest Python."""
    build(session)
    session.install("--resolution=lowest-direct", *(f"{_wheel(p['name'])}" for p in PACKAGES.values()))
    frozen = session.run("uv", "pip", "freeze", "--python", session.virtualenv.location, external=True, silent=True)
    pins = [line for line in str(frozen).splitlines() if "==" in line and "@" not in line]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(pin for pin in pins if pin.split("==")[0] in _direct()))
        constraints.flush()
        session.install(*_groups("test"), "--constraint", constraints.name)
    with _without_sources(session):
        _contract(session)


def _direct() -> set[str]:
    requirements = [entry for project in PACKAGES.values() for entry in project["dependencies"]]
    return {requirement.split(">")[0].split("=")[0].strip() for requirement in requirements}


@nox.session(python=PYTHONS[-1])
def latest(session: nox.Session) -> None:
    """The newest dependencies there are, pre-releases included, whatever the lock file says."""
    build(session)
    session.install(
        "--upgrade", "--prerelease=allow", *(_wheel(p["name"]) for p in PACKAGES.values()), *_groups("test")
    )
    with _without_sources(session):
        _contract(session)


def _supported(name: str) -> str:
    """What the workspace says of the versions of a package: `mcp` in core's extra, the others in the tests' group."""
    stated: list[str] = [*PACKAGES["core"]["optional-dependencies"]["mcp"], *_groups("test")]
    (requirement,) = (entry for entry in stated if re.match(rf"{name}\b(?!-)", entry))
    return requirement


_MCP = {"mcp": ["mcp-types"], "fastmcp": ["fastmcp-slim"]}
"""The frameworks of MCP servers, and what is released along with each, in step with it."""

_VERSIONS = "import importlib.metadata, sys\nfor name in sys.argv[1:]: print(name, importlib.metadata.version(name))"


@nox.session(python=HERE)
@nox.parametrize("resolution", [nox.param("lowest-direct", id="oldest"), nox.param("highest", id="newest")])
def mcp_versions(session: nox.Session, resolution: str) -> None:
    """The tests of MCP servers against the oldest and the newest `mcp` and `fastmcp` that are supported."""
    _sync(session)
    parts = [name for package, others in _MCP.items() for name in (package, *others)]
    upgrades = [f"--upgrade-package={name}" for name in parts]
    session.install(*(_supported(name) for name in _MCP), f"--resolution={resolution}", *upgrades)
    session.run("python", "-c", _VERSIONS, *parts)
    session.run("pytest", "tests/mcp", *_AT_ONCE, *session.posargs)


@nox.session(python=HERE)
def plain_redis(session: nox.Session) -> None:
    """Redis without hiredis: the parser in Python must behave the same."""
    _sync(session)
    session.run("uv", "pip", "uninstall", "--quiet", "--python", session.virtualenv.location, "hiredis", external=True)
    session.run("pytest", "tests/redis", *session.posargs)


@nox.session(python=HERE)
def matrix(session: nox.Session) -> None:
    """The sessions and Pythons that CI runs, as JSON for its matrix."""
    session.log(json.dumps({"python": PYTHONS, "adapter": list(ADAPTERS)}))
