"""From TARGET to a harness: of a broker that answers, behind a fault proxy, or of what a module contains."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final, cast
from urllib.parse import parse_qsl, urlsplit

import anyio

from notification_bus import BrokerBus, BusURLError, OpenableBus
from notification_bus.cli._command import CommandError
from notification_bus.testing import FaultProxy, Harness, memory_harness, url_harness
from notification_bus.testing.harnesses import broker_address
from notification_bus.testing.specs import SpecError, load_harness
from notification_bus.url import redact, redact_url, url_secrets

__all__ = ["Target", "find_target"]

_TIMEOUT: Final = 5.0
"""Seconds in which the broker must answer before the checks begin."""


@dataclass(slots=True)
class Target:
    """What is to be checked."""

    shown: str
    """TARGET, without its secrets."""
    harness: Harness
    url: str | None = None
    """TARGET itself, if it is a URL."""
    secrets: Sequence[str] = ()
    notes: list[str] = field(default_factory=list[str])
    """What a reader of the results should know."""

    def redact(self, text: str) -> str:
        """Return the text without the target's secrets."""
        return redact(text, self.secrets)

    def drop_links(self, why: str) -> bool:
        """Continue without faults; return False if the harness is the user's, which is not changed."""
        if self.url is None:
            return False
        self.notes.append(f"no faults: {why}")
        self.harness = url_harness(self.url, proxied=False, broker=self.harness.broker)
        return True


def find_target(text: str) -> Target:
    """Find the harness, and check that its broker answers.

    Raises:
        CommandError: It cannot be checked. Says why, and what to do.
    """
    if "://" in text:
        return _find_url(text)
    if ":" not in text:
        raise CommandError(
            f"{text!r} is neither a URL, as redis://localhost:6379, nor a harness, as mypackage.harness:harness"
        )
    # As `python -m` does: the module that is being worked on is in the current folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return Target(text, load_harness(text))
    except SpecError as exc:
        raise CommandError(str(exc)) from exc


def _find_url(url: str) -> Target:
    try:
        query = urlsplit(url).query
    except ValueError as exc:
        # The text is not shown, since any part of it may be a password.
        raise CommandError(f"TARGET cannot be read as a URL ({exc}); one is redis://localhost:6379") from None
    try:
        target = Target(redact_url(url), memory_harness(), url, url_secrets(url, tokens=True))
    except BusURLError as exc:
        raise CommandError(str(exc)) from None
    if any(name == "channel" for name, _ in parse_qsl(query, keep_blank_values=True)):
        target.notes.append("the channel in the URL is not used: the checks have channels of their own")
    try:
        target.harness = url_harness(url)
        bus = _build(target.harness)
        if target.harness.capabilities.has_broker:
            anyio.run(_look, target, url, bus, backend=target.harness.capabilities.backends[0])
    except Exception as exc:
        raise CommandError(target.redact(str(exc) or type(exc).__name__)) from exc
    return target


def _build(harness: Harness, proxy: FaultProxy | None = None) -> OpenableBus:
    return cast("OpenableBus", harness.build(f"kit-look-{token_hex(6)}", proxy))


async def _look(target: Target, url: str, bus: OpenableBus) -> None:
    """Connect to the broker, once directly and once through a proxy, and note what cannot be checked."""
    async with bus:
        await bus.wait_ready(_TIMEOUT)
    if isinstance(bus, BrokerBus):
        target.harness.broker = await _version(bus, target) or target.shown
    else:
        target.harness.broker = target.shown
        target.notes.append(
            f"a {type(bus).__name__} is no BrokerBus, so nothing tells what it claims beyond what every bus must keep; "
            "a harness can (package.module:name)"
        )
    if target.harness.wire is None:
        target.notes.append("no wire: the bus's distribution offers none")
    obstacle = await _proxy_obstacle(target.harness, url)
    if obstacle is not None:
        target.drop_links(target.redact(obstacle))


async def _version(bus: BrokerBus, target: Target) -> str | None:
    """Ask the broker for its name and version, on a connection of its own."""
    try:
        with anyio.fail_after(_TIMEOUT):
            connection = await bus.connect()
            try:
                return await connection.version()
            finally:
                await connection.aclose()
    except Exception as exc:
        target.notes.append(f"the broker does not tell its version: {target.redact(str(exc))}")
        return None


async def _proxy_obstacle(harness: Harness, url: str) -> str | None:
    """Return why the broker cannot be reached through a proxy; `None` if it can."""
    try:
        host, port = broker_address(url)
    except ValueError as exc:
        return str(exc)
    async with FaultProxy(host, port) as proxy:
        bus = _build(harness, proxy)
        try:
            async with bus:
                await bus.wait_ready(_TIMEOUT)
        except Exception as exc:
            return f"the broker does not answer through a proxy at {proxy.host} ({exc})"
    return None
