"""`notification-bus check` on buses that need no server: what is run, and how it is told."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from notification_bus.testing import CHECKS
from tests.cli.checking import HARNESSES, LIMIT, ROOT, check, outcomes, results, start

# All of it


def test_memory_passes_and_no_check_is_absent() -> None:
    done = check("memory://", "--strict", "--json")
    assert done.returncode == 0, done.stderr
    found = results(done)
    assert [(r["backend"], r["id"]) for r in found["results"]] == [
        (backend, entry.id) for backend in ("asyncio", "trio") for entry in CHECKS.values()
    ]
    assert {r["outcome"] for r in found["results"]} == {"passed", "not_declared"}
    assert found["header"]["bus"].startswith("notification_bus.memory.MemoryBus 0.")
    assert found["red"] == []
    assert found["counts"]["failed"] == 0
    assert found["seconds"] < 30
    wire = next(r for r in found["results"] if r["id"] == "wire.body_is_exact")
    assert wire["reason"].startswith("the bus has no broker")


def test_a_harness_of_a_module_is_checked_and_a_failure_is_told() -> None:
    done = check(f"{HARNESSES}:drops_silently", "--only", "slow", "--json", "--backend", "asyncio")
    assert done.returncode == 1
    found = results(done)
    assert found["red"] == ["slow.drop_is_warned"]
    failed = next(r for r in found["results"] if r["outcome"] == "failed")
    assert "promised: a drop is warned of" in failed["reason"]
    assert "seen: " in failed["reason"]


@pytest.mark.parametrize("name", ["harness", "make_bus", "Bare"])
def test_an_object_a_class_and_a_bus_will_do(name: str) -> None:
    done = check(f"{HARNESSES}:{name}", "--only", "deliver.echo", "--json", "--backend", "asyncio")
    assert done.returncode == 0, done.stderr
    assert outcomes(done) == {"deliver.echo": "passed"}


def test_a_module_is_found_in_the_folder_where_one_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from notification_bus.testing import memory_harness as harness")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "notification_bus.cli", "check", "mine:harness", "--only", "deliver.echo"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


THIRD = """
from notification_bus import BusURLError, MemoryBus

class ThirdBus(MemoryBus):
    'Does not connect to where its URL leads.'

    @classmethod
    def from_url(cls, url):
        address, _, channel = url.partition("?channel=")
        if not channel or "&" in channel:
            raise BusURLError("third:// takes a channel and nothing else")
        return cls(channel)
"""


def test_a_bus_of_another_distribution_is_checked_as_far_as_can_be(tmp_path: Path) -> None:
    """Nothing is known of it but that `open_bus` opens it."""
    (tmp_path / "third.py").write_text(THIRD)
    about = tmp_path / "third-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[notification_bus.buses]\nthird = third:ThirdBus\n")
    path = {"PYTHONPATH": str(tmp_path)}
    only = (
        "--only",
        "deliver.echo",
        "--only",
        "wire.body_is_exact",
        "--only",
        "order",
        "--only",
        "gap.after_reconnect",
    )
    done = check("third://user:hunter2@127.0.0.1:7", "--json", *only, **path)
    assert done.returncode == 0, done.stderr
    assert outcomes(done) == {
        "deliver.echo": "passed",
        "wire.body_is_exact": "untestable",
        "order.per_publisher_fifo": "not_declared",
        "gap.after_reconnect": "not_declared",
    }
    found = results(done)
    assert found["header"]["bus"] == "third.ThirdBus 0.1"
    assert found["target"] == "third://127.0.0.1:7"
    assert "hunter2" not in done.stdout + done.stderr
    notes = "\n".join(found["notes"])
    assert "a ThirdBus is no BrokerBus, so nothing tells what it claims beyond what every bus must keep" in notes
    assert "no wire: the bus's distribution offers none" in notes
    assert "no faults: the bus does not depend on the proxy that was put before its broker" in notes
    shown = check("third://127.0.0.1:7", "--only", "deliver.echo", **path)
    assert "note        " in shown.stdout
    portless = check("third://host", "--json", "--only", "deliver.echo", **path)
    assert "no faults: the URL names no port, and none is known for third://" in results(portless)["notes"]


# For people


@pytest.mark.parametrize("before", ["", "sys.modules['rich'] = None"], ids=["with rich", "without rich"])
@pytest.mark.parametrize("width", [80, 120])
def test_people_get_a_line_for_each_check_that_fits(before: str, width: int) -> None:
    done = check("memory://", before=before, COLUMNS=str(width))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= width
    for entry in CHECKS.values():
        assert sum(line.startswith(f"{entry.id} ") for line in lines) == 1, entry.id
    assert any(line.startswith("bus ") and "MemoryBus" in line for line in lines)
    assert "the bus has no broker, so there is no link, no wire and no other process" in " ".join(done.stdout.split())
    assert lines[-1] == "Nothing is red."
    assert "54/108 life.built_without_loop on asyncio" in done.stderr


@pytest.mark.parametrize("before", ["", "sys.modules['rich'] = None"], ids=["with rich", "without rich"])
def test_people_are_told_what_failed_once_and_whole(before: str) -> None:
    done = check(f"{HARNESSES}:drops_silently", "--only", "slow", before=before)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert text.count("FAILED slow.drop_is_warned on asyncio and trio (MUST, rule 'bounded')") == 1
    assert "promised: a drop is warned of on the logger 'notification_bus.gallery'" in text
    assert done.stdout.splitlines()[-1] == "2 are red."


def on_a_terminal(*arguments: str, **environment: str) -> str:
    pty = pytest.importorskip("pty", reason="only POSIX has pseudo-terminals")
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "notification_bus.cli", "check", *arguments]
    settings = {"TERM": "xterm", "COLUMNS": "80", **environment}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=ROOT, env=os.environ | settings)
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(mine, 65536):
            text += chunk
    except OSError:  # its other end is closed
        pass
    os.close(mine)
    process.wait(LIMIT)
    return text.decode()


def test_a_terminal_gets_colours_and_progress_and_none_where_it_asks() -> None:
    with_colours = on_a_terminal("memory://", "--only", "deliver.echo")
    assert "\x1b[1;32mpassed" in with_colours
    assert "looking for the bus" in with_colours or "looking whether" in with_colours
    plain = on_a_terminal("memory://", "--only", "deliver.echo", NO_COLOR="1")
    assert "passed" in plain
    assert not re.search(r"\x1b\[[0-9;]*m", plain)


def test_what_a_bus_says_cannot_play_with_the_terminal() -> None:
    done = check(f"{HARNESSES}:Odd", "--only", "deliver.echo", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "[bold]\\x1b[2J\\x00 \\ud800 \\xfc" in done.stdout


# The options


def test_only_takes_ids_groups_and_patterns() -> None:
    done = check(
        "memory://", "--json", "--backend", "trio", "--only", "sub", "--only", "deliver.echo", "--only", "gap.on_o*"
    )
    assert done.returncode == 0, done.stderr
    ids = [
        entry.id
        for entry in CHECKS.values()
        if entry.id.startswith("sub.") or entry.id in ("deliver.echo", "gap.on_overflow")
    ]
    assert list(outcomes(done)) == ids
    assert {r["backend"] for r in results(done)["results"]} == {"trio"}


def test_a_skip_is_reported_with_its_reason_and_is_no_error_under_strict() -> None:
    done = check("memory://", "--only", "sub", "--json", "--strict", "--skip", "sub.churn_keeps_stable_whole=no=time")
    assert done.returncode == 0
    skipped = [r for r in results(done)["results"] if r["id"] == "sub.churn_keeps_stable_whole"]
    assert [(r["outcome"], r["reason"]) for r in skipped] == [("untestable", "skipped: no=time")] * 2
    shown = check("memory://", "--only", "sub", "--skip", "sub=all of them")
    assert shown.returncode == 0
    assert "8 skipped" in shown.stdout
    assert "nothing was proven" in shown.stdout


def test_what_cannot_be_tested_is_red_under_strict_only() -> None:
    lenient = check(f"{HARNESSES}:Bare", "--only", "wire.body_is_exact", "--json")
    assert lenient.returncode == 0
    assert outcomes(lenient) == {"wire.body_is_exact": "untestable"}
    strict = check(f"{HARNESSES}:Bare", "--only", "wire.body_is_exact", "--strict", "--json")
    assert strict.returncode == 1
    assert results(strict)["red"] == ["wire.body_is_exact"]


def test_a_known_failure_is_none_and_is_red_when_it_passes() -> None:
    known = check(
        f"{HARNESSES}:drops_silently",
        "--only",
        "slow",
        "--json",
        "--known-failure",
        "slow.drop_is_warned=https://x.y/1",
    )
    assert known.returncode == 0
    assert outcomes(known)["slow.drop_is_warned"] == "known_failure"
    reason = next(r["reason"] for r in results(known)["results"] if r["outcome"] == "known_failure")
    assert reason.startswith("https://x.y/1 (declared by --known-failure)\npromised: ")
    passes = check("memory://", "--only", "deliver.echo", "--json", "--known-failure", "deliver.echo=it is deaf")
    assert passes.returncode == 1
    assert "it passes, and is declared as a known failure: remove that" in results(passes)["results"][0]["reason"]


def test_scale_is_in_the_header() -> None:
    done = check("memory://", "--only", "deliver.echo", "--scale", "3", "--json")
    assert results(done)["header"]["scale"] == 3


def test_stress_runs_every_check_several_times_on_each_library() -> None:
    done = check("memory://", "--only", "deliver", "--stress", "3", "--json", "--skip", "deliver.no_history=slow")
    assert done.returncode == 0, done.stderr
    found = results(done)
    assert found["stress"] == 3
    ids = [(r["id"], r["backend"]) for r in found["results"] if r["outcome"] == "passed"]
    assert ids.count(("deliver.echo", "asyncio")) == ids.count(("deliver.echo", "trio")) == 3
    assert [r["outcome"] for r in found["results"] if r["id"] == "deliver.no_history"] == ["untestable"] * 2
    assert "3 at once" in done.stderr
    shown = check(f"{HARNESSES}:drops_silently", "--only", "slow", "--stress", "2", "--backend", "asyncio")
    assert shown.returncode == 1
    assert "FAILED  slow.drop_is_warned on asyncio, in 2 runs (MUST" in shown.stdout


def test_a_red_result_names_its_library() -> None:
    done = check(f"{HARNESSES}:FailsOnTrio", "--only", "deliver.echo", "--json")
    assert done.returncode == 1
    found = results(done)
    assert found["red"] == ["deliver.echo"]
    assert {r["backend"]: r["red"] for r in found["results"]} == {"asyncio": False, "trio": True}


def test_the_list_needs_no_target() -> None:
    done = check("--list", "--only", "wire")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        entry.id for entry in CHECKS.values() if entry.id.startswith("wire.")
    ]
    assert "Needs wire." in done.stdout


def test_a_library_that_is_not_here_is_not_passed_over_in_silence() -> None:
    without = (
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'trio' else find(name, *more)"
    )
    done = check("memory://", "--only", "deliver.echo", "--json", before=without)
    assert done.returncode == 0
    reasons = {r["backend"]: (r["outcome"], r["reason"]) for r in results(done)["results"]}
    assert reasons["trio"] == ("untestable", "trio is not installed here: pip install trio")
    assert reasons["asyncio"][0] == "passed"
    asked = check("memory://", "--backend", "trio", before=without)
    assert asked.returncode == 2
    assert "trio is not installed here: pip install trio" in asked.stderr


@pytest.mark.parametrize("before", ["", "sys.modules['rich'] = None"], ids=["with rich", "without rich"])
def test_a_reader_that_has_seen_enough_and_a_disk_that_is_full_are_no_crash(before: str) -> None:
    with start("--list", before=before) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(LIMIT) == 0
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "notification_bus.cli", "check", "--list"]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 2
        assert done.stderr == "notification-bus: the results cannot be printed: No space left on device\n"
