"""`notification-bus check`, called wrongly, with secrets, and ended early."""

import signal
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from notification_bus.cli._command import CommandError
from notification_bus.cli.check._target import Target, find_target
from notification_bus.testing import memory_harness
from notification_bus.url import url_secrets
from tests.brokers import free_port, until
from tests.cli.checking import HARNESSES, LIMIT, check, start

MARK = "NOTIFICATION_BUS_TEST_MARK"


# Called wrongly


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "what is to be checked? Give a URL"),
        (["redis"], "'redis' is neither a URL, as redis://localhost:6379, nor a harness"),
        (["redsi://user:hunter2@host"], "no bus is known for redsi://"),
        (["redis://user:hunter2@host?outbox=many"], "outbox='many' is not a number"),
        (["redis://user:hunter2@host?buffr=1"], "unknown option 'buffr'"),
        (["redis://user:hun/ter2@host:1"], "percent-encode the special characters"),
        (["redis://[::1"], "TARGET cannot be read as a URL"),
        (["memory://host"], "memory:// has no host"),
        (["no_such_module:harness"], "there is no module 'no_such_module'"),
        ([f"{HARNESSES}:harnes"], "there is no 'harnes' in tests.cli.check_harnesses; there is harness"),
        ([f"{HARNESSES}:number"], "is a int, which is not a `notification_bus.testing.Harness`"),
        ([f"{HARNESSES}:breaks"], "cannot be made a harness: RuntimeError: no licence"),
        (
            [f"{HARNESSES}:Away"],
            "no bus of tests.cli.check_harnesses:Away can be used: starting an instance",
        ),
        ([f"{HARNESSES}:Apart"], "the harness, not the bus: two instances for one channel do not hear each other"),
        ([f"{HARNESSES}:Bare", "--backend", "trio"], "this bus runs on asyncio only, so nothing would be checked"),
        (["memory://", "--only", "delivr"], "--only: there is no check or group 'delivr'; did you mean deliver"),
        (["memory://", "--skip", "deliver.echo"], "--skip 'deliver.echo' wants a reason, as in --skip deliver.echo="),
        (["memory://", "--skip", "deliver.echo= "], "wants a reason"),
        (["memory://", "--skip", "nothing=why"], "--skip: there is no check or group 'nothing'"),
        (
            ["memory://", "--known-failure", "deliver.ehco=why"],
            "there is no check 'deliver.ehco'; did you mean deliver",
        ),
        (["memory://", "--known-failure", "deliver=why"], "--known-failure: there is no check 'deliver'"),
        (["memory://", "--known-failure", "deliver.echo"], "wants a reason"),
        (
            ["memory://", "--known-failure", "wire.body_is_exact=a", "--skip", "wire=b"],
            "is both skipped and a known fail",
        ),
        (["memory://", "--scale", "0"], "'0' is no number from 1 to 1000"),
        (["memory://", "--stress", "-1"], "'-1' is no number from 1 to 1000"),
        (["memory://", "--scale", "²"], "'²' is no number from 1 to 1000"),
        (["memory://", "--backend", "curio"], "invalid choice: 'curio'"),
    ],
)
def test_a_wrong_call_is_named_with_the_remedy(arguments: list[str], says: str) -> None:
    done = check(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert not done.stdout
    for secret in ("hunter2", "hun/ter2", "ter2"):
        assert secret not in done.stderr


def test_a_missing_distribution_is_named() -> None:
    without = "import notification_bus.url as u\nu.entry_points = lambda **_: []"
    done = check("redis://localhost", before=without)
    assert done.returncode == 2
    assert "pip install notification-bus-redis" in done.stderr


def test_a_broker_that_does_not_answer_is_named_in_time() -> None:
    before = monotonic()
    done = check(f"redis://:hunter2@127.0.0.1:{free_port()}", "--json")
    assert monotonic() - before < LIMIT / 2
    assert done.returncode == 2
    assert "is not ready after 5 s" in done.stderr
    assert "nothing listens there" in done.stderr
    assert "hunter2" not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("target", "text", "shown"),
    [
        ("redis://user:hunter2@host", "at hunter2 and user", "at *** and user"),
        ("redis://user:hun%2Fter2@host", "hun/ter2 hun%2Fter2", "*** ***"),
        ("nats://s3cr3t@host", "s3cr3t", "***"),
        ("nats://a:one@h,b:two@h", "one two", "*** ***"),
        ("postgresql://h/db?sslpassword=geheim&x=offen", "geheim offen", "*** offen"),
    ],
)
def test_secrets_are_redacted(target: str, text: str, shown: str) -> None:
    assert Target(target, memory_harness(), None, url_secrets(target, tokens=True)).redact(text) == shown


def test_a_target_without_a_url_has_no_secrets_and_an_unreadable_one_is_never_shown() -> None:
    assert find_target(f"{HARNESSES}:harness").redact("harness") == "harness"
    with pytest.raises(CommandError) as refused:
        find_target("redis://user:hun/ter2@host")
    assert "ter2" not in str(refused.value)
    assert "hun" not in str(refused.value)


# Ended early


def marked(mark: str) -> list[str]:
    """The commands of processes with that mark in their environment."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("only Linux tells which processes were started by which")
    found: list[str] = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
@pytest.mark.parametrize("stress", [(), ("--stress", "2")], ids=["one by one", "at once"])
def test_a_signal_leaves_no_process(number: signal.Signals, code: int, stress: tuple[str, ...]) -> None:
    """What a check has started, or a harness, is ended in order."""
    mark = uuid4().hex
    with start(f"{HARNESSES}:Slow", "--only", "deliver.echo", *stress, **{MARK: mark}) as process:
        until(lambda: any(command.startswith("sleep") for command in marked(mark)), LIMIT, "the check begins")
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code
    assert not out
    assert "Traceback" not in err
    assert not marked(mark)
