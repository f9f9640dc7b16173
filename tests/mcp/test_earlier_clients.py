"""A client that knows nothing of 2026: version 1 of the SDK, in an environment of its own, on two replicas."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import Server
from tests.mcp.replicas import start_replicas

CLIENT = Path(__file__).parent / "earlier" / "client.py"
PYTHON = (
    sys.executable,
    "-m",
    "uv",
    "run",
    "--quiet",
    "--no-project",
    "--python",
    sys.executable,
    "--with",
    "mcp>=1.20,<2",
)


@pytest.fixture(scope="module")
def environment() -> None:
    """Made by uv, and kept by it for the next time."""
    made = subprocess.run([*PYTHON, "python", "-c", "import mcp"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"version 1 of the SDK cannot be installed here: {made.stderr.strip()[-200:]}")


@pytest.mark.usefixtures("environment")
def test_version_1_of_the_sdk_hears_of_a_change_on_another_replica(redis_server: Server) -> None:
    with start_replicas(f"{redis_server.url}?channel=test-version-1", install=True, legacy=True) as urls:
        ran = subprocess.run(
            [*PYTHON, "python", str(CLIENT), *urls], capture_output=True, text=True, check=False, timeout=60
        )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["version"].startswith("2025")
    assert found["said"]["tools"] == {"listChanged": True}
    assert found["said"]["prompts"] == {"listChanged": True}
    assert found["said"]["resources"] == {"listChanged": True, "subscribe": True}
    # Of the tools it may still have been told once more.
    assert [told for told in found["seen"] if "tools" not in told] == [
        "notifications/resources/updated board://tasks/1",
        "notifications/prompts/list_changed",
    ]
