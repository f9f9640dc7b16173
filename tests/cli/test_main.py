"""The command line itself."""

import subprocess
import sys

import pytest

from notification_bus.cli import main
from notification_bus.cli._main import COMMANDS


def test_the_script_is_installed() -> None:
    """As the module, where scripts are not on the path."""
    done = subprocess.run(
        [sys.executable, "-m", "notification_bus.cli", "--version"],
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.stdout.startswith("notification-bus 0.")


def test_without_a_command_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as for every wrong call."""
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each in the overview."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "demo" in capsys.readouterr().out
    assert COMMANDS


def test_looking_at_the_help_imports_no_sdk() -> None:
    """It would take two seconds."""
    code = (
        "import sys; from notification_bus.cli._main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit('mcp' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
