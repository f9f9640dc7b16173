"""From TARGET to a harness: of a broker that answers, behind a fault proxy, or of what a module contains."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio

from notification_bus import BrokerBus, BusURLError, OpenableBus, open_bus
from notification_bus.cli._command import CommandError
from notification_bus.options import BusOptions
from notification_bus.testing import BrokerHarness, Capabilities, FaultProxy, Harness, MemoryHarness
from notification_bus.testing.harnesses import DEFAULT_PORTS, SMALL, replace_address, small_capabilities
from notification_bus.testing.specs import SpecError, load_harness
from notification_bus.testing.wires import broker_version, find_wire
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
    secrets: Sequence[str] = ()
    notes: list[str] = field(default_factory=list[str])
    """What a reader of the results should know."""

    def redact(self, text: str) -> str:
        """Return the text without the target's secrets."""
        return redact(text, self.secrets)

    def drop_links(self, why: str) -> bool:
        """Continue without faults; return False if the harness is the user's, which is not changed."""
        old = self.harness
        if not isinstance(old, BrokerHarness) or "://" not in self.shown:
            return False
        self.notes.append(f"no faults: {why}")
        self.harness = BrokerHarness(
            old.url, capabilities=old.capabilities, wire=old.wire, proxied=False, broker=old.broker, child=old.child
        )
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
        parts = urlsplit(url)
    except ValueError as exc:
        # The text is not shown, since any part of it may be a password.
        raise CommandError(f"TARGET cannot be read as a URL ({exc}); one is redis://localhost:6379") from None
    try:
        target = Target(redact_url(url), MemoryHarness(), url_secrets(url, tokens=True))
    except BusURLError as exc:
        raise CommandError(str(exc)) from None
    bare, own = url.partition("?")[0], dict(parse_qsl(parts.query, keep_blank_values=True))
    if own.pop("channel", None) is not None:
        target.notes.append("the channel in the URL is not used: the checks have channels of their own")
    try:
        # First with the user's own options only, so that an error names one of these.
        bus = _open(_with_query(bare, own))
        if parts.scheme.lower() == "memory":
            return target
        options = {**{name: str(value) for name, value in SMALL.items()}, **own}
        try:
            _open(_with_query(bare, options))
        except BusURLError:  # a bus of another distribution, which has options of its own
            options = own
        target.harness = anyio.run(_look, target, bus, bare, options, backend=_backends(bus)[0])
    except Exception as exc:
        raise CommandError(target.redact(str(exc) or type(exc).__name__)) from exc
    return target


def _with_query(bare: str, options: Mapping[str, str]) -> str:
    return f"{bare}?{urlencode(options)}" if options else bare


def _open(url: str) -> OpenableBus:
    return open_bus(f"{url}{'&' if '?' in url else '?'}channel=kit-look-{token_hex(6)}")


def _backends(bus: OpenableBus) -> Sequence[str]:
    return tuple(getattr(bus, "backends", ("asyncio",)))


async def _look(target: Target, bus: OpenableBus, bare: str, options: Mapping[str, str]) -> BrokerHarness:
    """Connect to the broker, once directly and once through a proxy, and find out what there is to know of it."""
    url = _with_query(bare, options)
    wire = find_wire(url)
    async with bus:
        await bus.wait_ready(_TIMEOUT)
        capabilities = _capabilities(bus, options, target.notes)
    broker = None
    if wire is None:
        target.notes.append("no wire: the bus's distribution offers none")
    else:
        try:
            with anyio.fail_after(_TIMEOUT):
                broker = await broker_version(wire)
        except Exception as exc:
            target.notes.append(f"the broker does not tell its version: {target.redact(str(exc))}")
    obstacle = await _proxy_obstacle(url)
    if obstacle is not None:
        target.notes.append(f"no faults: {target.redact(obstacle)}")
    return BrokerHarness(
        url, capabilities=capabilities, wire=wire, proxied=obstacle is None, broker=broker or target.shown
    )


def _capabilities(bus: OpenableBus, query: Mapping[str, str], notes: list[str]) -> Capabilities:
    limit: object = getattr(bus, "max_body", None)
    max_body = limit if isinstance(limit, int) else None
    if isinstance(bus, BrokerBus):
        return small_capabilities(dict(query), backends=_backends(bus), max_body=max_body)
    notes.append(
        f"a {type(bus).__name__} is no BrokerBus, so nothing tells what it claims beyond what every bus must keep; "
        "a harness can (package.module:name)"
    )
    options: object = getattr(bus, "options", None)
    return Capabilities(
        buffer=options.buffer if isinstance(options, BusOptions) else int(SMALL["buffer"]),
        max_body=max_body,
        fifo=False,
        gaps=False,
        probes=False,
        backends=_backends(bus),
    )


async def _proxy_obstacle(url: str) -> str | None:
    """Return why the broker cannot be reached through a proxy; `None` if it can."""
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "the URL names several hosts, and a proxy leads to one"
    if parts.scheme == "unix" or "," in parts.netloc or not parts.netloc:
        return "the URL names no single host and port to which a proxy could lead"
    if port is None:
        return f"the URL names no port, and none is known for {parts.scheme}://"
    async with FaultProxy(parts.hostname or "127.0.0.1", port) as proxy:
        bus = _open(replace_address(url, proxy.host, proxy.port))
        try:
            async with bus:
                await bus.wait_ready(_TIMEOUT)
        except Exception as exc:
            return f"the broker does not answer through a proxy at {proxy.host} ({exc})"
    return None
