"""What comes of a check, in each of the five ways."""

import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import pytest

from notification_bus import MemoryBus, NotificationBus
from notification_bus.testing import (
    CHECKS,
    Capabilities,
    Context,
    KnownFailure,
    Link,
    MemoryHarness,
    Timing,
    iter_suite,
    run_check,
    run_suite,
    select_checks,
)

QUICK: Final = Timing(wait=0.3, silence=0.02, deadline=5.0)
LINK: Final = "https://example.invalid/1"


class Harness:
    """`MemoryBus` with other claims, and with hooks only where a test adds them."""

    def __init__(self, **claims: object) -> None:
        self.capabilities: Capabilities = dataclasses.replace(MemoryHarness.capabilities, **claims)  # type: ignore[arg-type]

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel, buffer=16, max_body=65_536) as bus:
            yield bus


class Deaf(Harness):
    """A bus whose subscriptions hear nothing of what it publishes."""

    @asynccontextmanager
    async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
        async with MemoryBus(channel) as speaking, MemoryBus(f"{channel}-elsewhere") as hearing:
            speaking.subscribe = hearing.subscribe  # type: ignore[method-assign]
            yield speaking


def test_a_kept_promise_is_passed() -> None:
    result = run_check("deliver.echo", Harness())
    assert (result.outcome, result.reason, result.level) == ("passed", "", "MUST")
    assert not result.red(strict=True)


def test_a_broken_promise_is_failed_and_says_what_was_promised_and_seen() -> None:
    result = run_check("deliver.echo", Deaf(), timing=QUICK)
    assert result.outcome == "failed"
    assert "promised: a subscription yields what its own instance publishes" in result.reason
    assert "received 0 numbered notifications, without 1, 2, 3" in result.reason
    assert "deliver_echo" in result.detail
    assert result.red()


@pytest.mark.parametrize(
    ("id_", "claims", "reason"),
    [
        ("order.per_publisher_fifo", {"fifo": False}, "`fifo`"),
        ("gap.on_overflow", {"gaps": False}, "`gaps`"),
        ("deliver.identical_kept", {"coalesces": True}, "`coalesces`"),
        ("reconnect.half_open_detected", {"has_broker": True}, "`liveness`"),
        ("live.subscribed_in_name_only", {"has_broker": True, "liveness": 1.0}, "`end_to_end`"),
        ("gap.on_the_wire", {"has_broker": True}, "`outbox`"),
        ("deliver.echo", {"backends": ("trio",)}, "runs on trio only"),
        ("publish.prompt_when_broker_stalls", {}, "no broker"),
        ("wire.body_is_exact", {}, "no broker"),
        ("deliver.cross_process", {}, "no broker"),
    ],
)
def test_what_is_not_claimed_is_reported_as_such_and_is_never_red(
    id_: str, claims: dict[str, object], reason: str
) -> None:
    result = run_check(id_, Harness(**claims))
    assert result.outcome == "not_declared"
    assert reason in result.reason
    assert not result.red(strict=True)


@pytest.mark.parametrize(
    ("id_", "hook"),
    [
        ("publish.prompt_when_broker_stalls", "`link`"),
        ("wire.body_is_exact", "`wire`"),
        ("crash.peer_killed", "`child`"),
        ("life.reference_counted", "`build`"),
    ],
)
def test_a_check_that_lacks_a_hook_is_untestable_which_is_red_only_under_strict(id_: str, hook: str) -> None:
    result = run_check(id_, Harness(has_broker=True))
    assert result.outcome == "untestable"
    assert hook in result.reason
    assert not result.red()
    assert result.red(strict=True)


def test_a_hook_that_turns_out_to_be_missing_is_untestable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(kit: Context) -> None:
        kit.untestable("for want of a reason")

    monkeypatch.setitem(CHECKS, "deliver.echo", replace(CHECKS["deliver.echo"], function=check))
    result = run_check("deliver.echo", Harness())
    assert (result.outcome, result.reason) == ("untestable", "for want of a reason")


def test_a_bus_that_is_no_context_manager_has_nothing_to_close() -> None:
    class Bare(Harness):
        @asynccontextmanager
        async def instance(self, channel: str, link: Link | None = None) -> AsyncGenerator[NotificationBus]:
            async with MemoryBus(channel) as bus:
                yield _Bare(bus)

    class _Bare:
        def __init__(self, bus: MemoryBus) -> None:
            self.publish, self.subscribe = bus.publish, bus.subscribe

    result = run_check("close.ends_streams", Bare())
    assert result.outcome == "untestable"
    assert "aclose" in result.reason


def test_a_known_failure_that_fails_is_reported_with_its_reason_and_link() -> None:
    known = KnownFailure("deliver.echo", "it is deaf", LINK)
    result = run_check("deliver.echo", Deaf(), timing=QUICK, known_failures=[known])
    assert result.outcome == "known_failure"
    assert result.reason.startswith(f"it is deaf ({LINK})")
    assert "without 1, 2, 3" in result.reason
    assert not result.red(strict=True)


def test_a_known_failure_that_passes_is_red() -> None:
    known = KnownFailure("deliver.echo", "it was deaf", LINK)
    result = run_check("deliver.echo", Harness(), known_failures=[known])
    assert result.outcome == "failed"
    assert "remove" in result.reason


def test_a_known_failure_of_a_check_that_is_not_run_changes_nothing() -> None:
    known = KnownFailure("gap.on_overflow", "it is silent", LINK)
    assert run_check("gap.on_overflow", Harness(gaps=False), known_failures=[known]).outcome == "not_declared"


def test_a_known_failure_that_names_no_check_is_red() -> None:
    known = KnownFailure("deliver.ehco", "a slip of the pen", LINK)
    results = run_suite(Harness(), only=["deliver.echo"], backends=["asyncio"], known_failures=[known])
    assert [(result.id, result.outcome) for result in results] == [
        ("deliver.ehco", "failed"),
        ("deliver.echo", "passed"),
    ]


def test_a_suite_runs_every_check_on_every_declared_library_and_tells_each_result_at_once() -> None:
    seen: list[str] = []
    results = run_suite(
        MemoryHarness(), only=["deliver.echo", "sub.*"], on_result=lambda r: seen.append(f"{r.id}-{r.backend}")
    )
    assert [f"{r.id}-{r.backend}" for r in results] == seen
    assert {r.backend for r in results} == {"asyncio", "trio"}
    assert len(results) == 10
    assert next(iter(iter_suite(MemoryHarness(), only=["sub.*"]))).outcome == "passed"


def test_patterns_select_checks_and_one_that_matches_nothing_is_an_error() -> None:
    assert select_checks(None) == tuple(CHECKS.values())
    assert _ids(select_checks(["wire.*", "deliver.echo"])) == [
        "deliver.echo",
        "wire.body_is_exact",
        "wire.reads_foreign_peer",
        "wire.skips_garbage_and_lives",
    ]
    with pytest.raises(ValueError, match=r"no check is called 'wire\.nothing'"):
        select_checks(["wire.nothing"])


def _ids(checks: Sequence[object]) -> list[str]:
    return [str(getattr(check, "id", "")) for check in checks]
