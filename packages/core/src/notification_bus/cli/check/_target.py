"""From TARGET to a harness: a broker that answers, behind a proxy that breaks; or whatever a module holds."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio

from notification_bus import BrokerBus, BusURLError, OpenableBus, open_bus
from notification_bus.cli._command import CommandError
from notification_bus.cli.check._secrets import Redactor
from notification_bus.options import BusOptions
from notification_bus.testing import BrokerHarness, Capabilities, FaultProxy, Harness, MemoryHarness, Wire
from notification_bus.testing.harnesses import DEFAULT_PORTS, SMALL, replace_address, small_capabilities
from notification_bus.testing.specs import SpecError, load_harness
from notification_bus.testing.wires import broker_version, find_wire
from notification_bus.url import redact_url

__all__ = ["Target", "find_target"]

_PATIENCE: Final = 5.0
"""Seconds for what must answer, before the checks begin."""


@dataclass(slots=True)
class Target:
    """What is to be checked."""

    shown: str
    """As it may be shown."""
    harness: Harness
    redact: Redactor
    notes: list[str] = field(default_factory=list[str])
    """What a reader of the results should know."""

    def without_links(self, why: str) -> bool:
        """Go on without faults, where that is for us to say; whether it is."""
        harness = self.harness
        if not isinstance(harness, BrokerHarness) or "://" not in self.shown:
            return False
        self.notes.append(f"no faults: {why}")
        self.harness = _rebuilt(harness)
        return True


def find_target(text: str) -> Target:
    """Find it, and see that the broker answers.

    Raises:
        CommandError: It cannot be checked. Says why, and what to do.
    """
    if "://" in text:
        return _UrlTarget(text).find()
    if ":" not in text:
        raise CommandError(
            f"{text!r} is neither a URL, as redis://localhost:6379, nor a harness, as mypackage.harness:harness"
        )
    # As `python -m` has it: what is being worked on is in the folder where one works.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return Target(text, load_harness(text), Redactor(""))
    except SpecError as exc:
        raise CommandError(str(exc)) from exc


def _rebuilt(harness: BrokerHarness) -> BrokerHarness:
    return BrokerHarness(
        harness.url,
        capabilities=harness.capabilities,
        wire=harness.wire,
        proxied=False,
        broker=harness.broker,
        child=harness.child,
    )


class _UrlTarget:
    def __init__(self, url: str) -> None:
        self._redact = Redactor(url)
        self._notes: list[str] = []
        try:
            self._parts = urlsplit(url)
        except ValueError as exc:
            # The text is not shown: nothing tells which part of it is a password.
            raise CommandError(f"TARGET cannot be read as a URL ({exc}); one is redis://localhost:6379") from None
        try:
            self._shown = redact_url(url)
        except BusURLError as exc:
            raise self._error(exc) from None
        query = dict(parse_qsl(self._parts.query, keep_blank_values=True))
        if query.pop("channel", None) is not None:
            self._notes.append("the channel in the URL is not used: the checks have channels of their own")
        self._own = query
        self._bare = url.partition("?")[0]

    def _error(self, exc: BaseException) -> CommandError:
        return CommandError(self._redact(str(exc) or type(exc).__name__))

    def _url(self, query: Mapping[str, str]) -> str:
        return f"{self._bare}?{urlencode(query)}" if query else self._bare

    def find(self) -> Target:
        channel = f"kit-look-{token_hex(6)}"
        # First as it was given, so that an error is about what was given.
        bus = self._open(self._url({**self._own, "channel": channel}))
        if self._parts.scheme.lower() == "memory":
            return Target(self._shown, MemoryHarness(), self._redact, self._notes)
        query = {**{name: str(value) for name, value in SMALL.items()}, **self._own}
        try:
            bus = open_bus(self._url({**query, "channel": channel}))
        except BusURLError:
            # A bus of another distribution, which has options of its own.
            query = self._own
        url = self._url(query)
        try:
            wire = find_wire(url)
            return anyio.run(self._look, bus, url, query, wire, backend=next(iter(_backends(bus))))
        except (CommandError, KeyboardInterrupt):
            raise
        except Exception as exc:
            raise self._error(exc) from exc

    def _open(self, url: str) -> OpenableBus:
        try:
            return open_bus(url)
        except (ValueError, TypeError) as exc:  # of ours, and of a client's own parser
            raise self._error(exc) from exc

    async def _look(self, bus: OpenableBus, url: str, query: Mapping[str, str], wire: Wire | None) -> Target:
        """Have the broker answer, once directly and once through a proxy, and learn what can be learnt."""
        async with bus:
            await bus.wait_ready(_PATIENCE)
            capabilities = self._capabilities(bus, query)
        broker = None
        if wire is None:
            self._notes.append("no wire: the bus's distribution offers none")
        else:
            try:
                with anyio.fail_after(_PATIENCE):
                    broker = await broker_version(wire)
            except Exception as exc:
                self._notes.append(f"the broker does not tell its version: {self._redact(str(exc))}")
        problem = await self._try_proxy(url)
        if problem is not None:
            self._notes.append(f"no faults: {self._redact(problem)}")
        harness = BrokerHarness(
            url, capabilities=capabilities, wire=wire, proxied=problem is None, broker=broker or self._shown
        )
        return Target(self._shown, harness, self._redact, self._notes)

    def _capabilities(self, bus: OpenableBus, query: Mapping[str, str]) -> Capabilities:
        limit: object = getattr(bus, "max_body", None)
        max_body = limit if isinstance(limit, int) else None
        if isinstance(bus, BrokerBus):
            return small_capabilities(dict(query), backends=_backends(bus), max_body=max_body)
        self._notes.append(
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

    async def _try_proxy(self, url: str) -> str | None:
        """Why the broker cannot be reached through a proxy; `None` where it can."""
        try:
            host, port = self._parts.hostname, self._parts.port or DEFAULT_PORTS.get(self._parts.scheme)
        except ValueError:
            return "the URL names several hosts, and a proxy leads to one"
        if self._parts.scheme == "unix" or "," in self._parts.netloc or not self._parts.netloc:
            return "the URL names no single host and port to which a proxy could lead"
        if port is None:
            return f"the URL names no port, and none is known for {self._parts.scheme}://"
        async with FaultProxy(host or "127.0.0.1", port) as proxy:
            through = replace_address(url, proxy.host, proxy.port)
            bus = open_bus(f"{through}{'&' if '?' in through else '?'}channel=kit-look-{token_hex(6)}")
            try:
                async with bus:
                    await bus.wait_ready(_PATIENCE)
            except Exception as exc:
                return f"the broker does not answer through a proxy at {proxy.host} ({exc})"
        return None


def _backends(bus: OpenableBus) -> tuple[str, ...]:
    return tuple(getattr(bus, "backends", ("asyncio",)))
