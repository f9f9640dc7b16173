"""A project of somebody else: core's wheel and pytest, nothing more, and a bus of ten lines."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "packages" / "core" / "pyproject.toml"
pytestmark = [
    pytest.mark.skipif(not CORE.exists(), reason="the sources are out of reach, as for tests of the wheels"),
    pytest.mark.timeout(600),
]

BUS = """
from collections import defaultdict
from contextlib import asynccontextmanager
from math import inf
from anyio import create_memory_object_stream

class TinyBus:
    channels = defaultdict(list)
    def __init__(self, channel): self.channel, self.streams = channel, self.channels[channel]
    async def publish(self, notification):
        for stream in self.streams: stream.send_nowait(notification)
    @asynccontextmanager
    async def subscribe(self):
        sender, receiver = create_memory_object_stream(inf)
        self.streams.append(sender)
        try: yield receiver
        finally: self.streams.remove(sender), sender.close(), receiver.close()
"""

HARNESS = """
from contextlib import asynccontextmanager
from notification_bus.testing import Capabilities, Harness
from tiny_bus import TinyBus

class TinyHarness(Harness):
    capabilities = Capabilities(buffer=16, gaps=False)

    @asynccontextmanager
    async def instance(self, channel, link=None):
        yield TinyBus(channel)
"""

TESTS = """
import pytest
from notification_bus.testing import KnownFailure, Timing
from notification_bus.testing.contract import BusContract
from tiny_harness import TinyHarness

class TestTinyBus(BusContract):
    timing = Timing(wait=1)
    known_failures = [KnownFailure("slow.buffer_is_bounded", "it has no limit", "https://example.org/1")]

    @pytest.fixture
    def harness(self):
        return TinyHarness()

class TestStrictly(TestTinyBus):
    strict = True

class TestWithWrongDeclarations(TestTinyBus):
    known_failures = [
        KnownFailure("deliver.echo", "it passes", "https://example.org/2"),
        KnownFailure("deliver.ehco", "there is none", "https://example.org/3"),
    ]
"""

EXPECTED = {
    "deliver.fan_out": "passed",
    "deliver.echo": "passed",
    "sub.reopen_after_last_close": "passed",
    "slow.drop_is_warned": "failed",
    "publish.unencodable_fails_fast": "failed",
    "slow.buffer_is_bounded": "known_failure",
    "wire.body_is_exact": "untestable",
    "reconnect.survives_cut_both_ways": "untestable",
    "deliver.cross_process": "untestable",
    "life.built_without_loop": "untestable",
    "gap.after_reconnect": "not_declared",
    "reconnect.half_open_detected": "not_declared",
}
"""What comes of some of the checks, of each outcome."""


@dataclass(frozen=True)
class Project:
    folder: Path

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the project's own environment, with nothing of this one."""
        program, *arguments = command
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "PYTEST"))
        }
        return subprocess.run(
            [str(self.folder / "env" / ("Scripts" if os.name == "nt" else "bin") / program), *arguments],
            cwd=self.folder,
            env=own,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )

    def check(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.run("notification-bus", "check", *arguments)


def uv(*arguments: str, cwd: Path = ROOT) -> None:
    """From what is there where that is enough, else from the network."""
    command = [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") else [shutil.which("uv") or ""]
    if not command[0]:
        pytest.skip("needs uv")
    error = ""
    for offline in (["--offline"], []):
        done = subprocess.run(
            [*command, *arguments, "--quiet", *offline],
            cwd=cwd,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        if done.returncode == 0:
            return
        error = done.stderr
    pytest.fail(f"uv {' '.join(arguments)}: {error}")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Core's wheel alone."""
    folder = tmp_path_factory.mktemp("project")
    uv("build", "--package", "notification-bus", "--wheel", "--out-dir", str(folder / "dist"))
    (wheel,) = (folder / "dist").glob("*.whl")
    uv("venv", "--python", sys.executable, str(folder / "env"))
    uv("pip", "install", "--python", str(folder / "env"), str(wheel))
    (folder / "tiny_bus.py").write_text(BUS, encoding="utf-8")
    (folder / "tiny_harness.py").write_text(HARNESS, encoding="utf-8")
    return Project(folder)


@pytest.fixture(scope="module")
def project(bare: Project) -> Project:
    """With pytest as well, and tests. The fixture's order matters: the tests above it want no pytest."""
    uv("pip", "install", "--python", str(bare.folder / "env"), "pytest")
    (bare.folder / "test_tiny_bus.py").write_text(TESTS, encoding="utf-8")
    return bare


# Core's wheel alone


def test_the_checks_are_imported_and_run_without_pytest(bare: Project) -> None:
    code = """
import pkgutil, sys
import notification_bus.testing as kit
for module in pkgutil.walk_packages(kit.__path__, kit.__name__ + "."):
    if not module.name.endswith((".contract", ".__main__")):
        __import__(module.name)
results = kit.run_suite(kit.memory_harness(), backends=["asyncio"])
assert len(results) == len(kit.CHECKS), results
assert {result.outcome for result in results} == {"passed", "not_declared"}, results
assert not {"pytest", "trio", "rich", "mcp"} & set(sys.modules)
try:
    import pytest
except ModuleNotFoundError:
    print("no pytest")
"""
    done = bare.run("python", "-W", "error", "-c", code)
    assert done.stdout == "no pytest\n", done.stderr


def test_the_command_works_without_anything_else(bare: Project) -> None:
    done = bare.check("memory://", "--only", "deliver")
    assert done.returncode == 0, done.stderr
    assert "deliver.echo (asyncio)" in done.stdout
    assert "trio is not installed here: pip install trio" in done.stdout
    asked = bare.check("redis://localhost")
    assert asked.returncode == 2
    assert "pip install notification-bus-redis" in asked.stderr


def test_the_command_sees_every_outcome_on_a_bus_of_ten_lines(bare: Project) -> None:
    done = bare.check(
        "tiny_harness:TinyHarness",
        "--json",
        "--known-failure",
        "slow.buffer_is_bounded=it has no limit",
        *[argument for id_ in EXPECTED for argument in ("--only", id_)],
    )
    assert done.returncode == 1, done.stderr
    assert {r["id"]: r["outcome"] for r in json.loads(done.stdout)["results"]} == EXPECTED


def test_the_command_believes_no_harness_that_lies(bare: Project) -> None:
    lying = HARNESS.replace("TinyBus(channel)", "TinyBus(object())")
    (bare.folder / "lying_harness.py").write_text(lying, encoding="utf-8")
    done = bare.check("lying_harness:TinyHarness")
    assert done.returncode == 2
    assert "the harness, not the bus: two instances for one channel do not hear each other" in done.stderr


# With pytest


def cases(project: Project, name: str) -> tuple[Mapping[str, ET.Element], str]:
    """The tests of a class by the id of their check, as pytest reports them, and what it printed."""
    wanted = [f"test_tiny_bus.py::{name}"]
    report = project.folder / f"{name}.xml"
    done = project.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *wanted)
    root = ET.fromstring(report.read_text(encoding="utf-8"))  # noqa: S314  # pytest has just written it
    found = {str(case.get("name")): case for case in root.iter("testcase")}
    assert len(found) == 55, done.stdout
    return {
        key.removeprefix("test_contract[").removesuffix("-asyncio]"): case for key, case in found.items()
    }, done.stdout


def outcome(case: ET.Element) -> str:
    """As `check` calls it."""
    failure, skipped = case.find("failure"), case.find("skipped")
    if failure is not None:
        return "failed"
    if skipped is None:
        return "passed"
    if skipped.get("type") == "pytest.xfail":
        return "known_failure"
    return str(skipped.get("message")).partition(":")[0].replace(" ", "_")


def test_pytest_sees_every_outcome_on_a_bus_of_ten_lines(project: Project) -> None:
    found, output = cases(project, "TestTinyBus")
    assert {id_: outcome(found[id_]) for id_ in EXPECTED} == EXPECTED
    assert outcome(found["test_declarations"]) == "passed"
    assert "contract of a notification bus: test_tiny_bus.TestTinyBus" in output
    assert "bus: tiny_bus.TinyBus" in output
    failure = found["slow.drop_is_warned"].find("failure")
    assert failure is not None
    assert "promised: " in (failure.text or "")
    assert "seen: " in (failure.text or "")


def test_what_cannot_be_tested_is_red_where_a_project_is_strict(project: Project) -> None:
    found, _ = cases(project, "TestStrictly")
    strict = {id_: "failed" if expected == "untestable" else expected for id_, expected in EXPECTED.items()}
    assert {id_: outcome(found[id_]) for id_ in EXPECTED} == strict


def test_a_known_failure_that_passes_or_names_nothing_is_red(project: Project) -> None:
    found, output = cases(project, "TestWithWrongDeclarations")
    assert outcome(found["deliver.echo"]) == "failed"
    assert "it passes, and is declared as a known failure: remove that (https://example.org/2)" in output
    assert outcome(found["test_declarations"]) == "failed"
    assert "known failures are declared for checks that do not exist: deliver.ehco" in output
