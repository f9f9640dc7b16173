"""The command line itself."""

import os
import subprocess
import sys

import pytest

from notification_bus.cli import main


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
    out = capsys.readouterr().out
    assert "demo" in out
    assert "check" in out


def test_looking_at_the_help_imports_no_sdk() -> None:
    """It would take two seconds."""
    code = (
        "import sys; from notification_bus.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit('mcp' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("arguments", [["check", "--list"], ["demo", "--bus", "memory://"]], ids=lambda words: words[0])
@pytest.mark.parametrize("rich", [True, False], ids=["with rich", "without rich"])
def test_output_that_nobody_reads_is_no_error(arguments: list[str], rich: bool) -> None:
    """The exit code is that of the result: with a reader that is gone, as in `| head`, and a closed output, `>&-`."""
    code = f"""if True:
        import os, sys
        if sys.argv.pop(1) == "closed":
            assert sys.stdout is None
        {"" if rich else "sys.modules['rich'] = None"}
        from notification_bus.cli import main
        sys.exit(main(sys.argv[1:]))"""
    for how, setup in (("gone", lambda: None), ("closed", lambda: os.close(1))):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-c", code, how, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            preexec_fn=setup,
            timeout=60,
            check=False,
        )
        os.close(writer)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "BrokenPipe" not in done.stderr
