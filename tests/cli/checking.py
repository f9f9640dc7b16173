"""How the tests of `notification-bus check` run it, as its user does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["HARNESSES", "LIMIT", "ROOT", "check", "outcomes", "results", "start"]

LIMIT = 100.0
"""Seconds that a run may take here."""

ROOT = Path(__file__).parents[2]
OUTCOMES = {"passed", "failed", "not_declared", "untestable", "known_failure"}
HARNESSES = "tests.cli.check_harnesses"


def start(*arguments: str, before: str = "", **environment: str) -> "subprocess.Popen[str]":
    """Start the command. `before` is Python that is run in its process first."""
    code = f"import sys\n{before}\nfrom notification_bus.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, "check", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "100", **environment},
    )


def check(*arguments: str, before: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    with start(*arguments, before=before, **environment) as process:
        out, err = process.communicate(timeout=LIMIT)
    assert "Traceback" not in err
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def results(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The JSON, found to be what it should."""
    found: dict[str, Any] = json.loads(done.stdout)
    for result in found["results"]:
        assert set(result) == {"id", "backend", "outcome", "red", "reason", "seconds"}
        assert result["outcome"] in OUTCOMES
        assert bool(result["reason"]) == (result["outcome"] != "passed")
    assert found["red"] == list(dict.fromkeys(result["id"] for result in found["results"] if result["red"]))
    return found


def outcomes(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {result["id"]: result["outcome"] for result in results(done)["results"]}
