"""Raw access to a broker's channels, found by the scheme of a URL."""

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import anyio
import pytest

from notification_bus import BusURLError
from notification_bus.testing import Wire, find_wire, url_harness, wires
from notification_bus.testing.wires import broker_version
from tests.brokers import KINDS, Kind, Provider

NAMES = {"redis": ("Valkey ", "Redis "), "nats": ("nats-server ",), "postgres": ("PostgreSQL ",)}


def wire_of(kind: Kind, brokers: Provider) -> Wire:
    wire = find_wire(brokers.get(kind).url)
    assert wire is not None
    return wire


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_injected_is_observed_byte_for_byte(kind: Kind, brokers: Provider) -> None:
    wire = wire_of(kind, brokers)
    bodies = ['{"method":"grüße 😀"}'.encode(), b"no JSON", b"[" * 5000]

    async def main() -> None:
        async with wire.observe("kit-wire-one") as one, wire.observe("kit-wire-two") as two:
            for body in bodies:
                await wire.inject("kit-wire-one", body)
            with anyio.fail_after(10):
                while len(one.bodies) < len(bodies):
                    await anyio.sleep(0.005)
            assert list(one.bodies) == bodies
            assert list(two.bodies) == []

    anyio.run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_the_broker_tells_its_name_and_version(kind: Kind, brokers: Provider) -> None:
    wire = wire_of(kind, brokers)

    async def main() -> None:
        version = await broker_version(wire)
        assert version is not None
        assert version.startswith(NAMES[kind])
        assert version[-1].isdigit()

    anyio.run(main)


@pytest.mark.parametrize(
    ("kind", "body"),
    [("postgres", b"\xff"), ("postgres", b"a\x00b"), ("postgres", b"x" * 8000), ("nats", b"x" * 2_000_000)],
)
def test_what_the_broker_does_not_carry_is_a_value_error(kind: Kind, body: bytes, brokers: Provider) -> None:
    """So that the checks leave it out: no stranger can send it either."""
    wire = wire_of(kind, brokers)

    async def main() -> None:
        with pytest.raises(ValueError):  # noqa: PT011  # in the words of the client
            await wire.inject("kit-wire", body)

    anyio.run(main)


def test_a_harness_of_a_url_has_the_wire_unless_another_is_given() -> None:
    assert type(url_harness("redis://localhost?channel=board").wire).__name__ == "RedisWire"
    own: Any = object()
    assert url_harness("redis://localhost", wire=own).wire is own
    assert url_harness("memory://").wire is None


def test_a_scheme_without_a_wire_has_none() -> None:
    assert find_wire("memory://") is None
    assert find_wire("other://host") is None


class NoWire:
    @classmethod
    def from_url(cls, _url: str) -> "NoWire":
        return cls()


def test_what_is_no_wire_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("other", f"{__name__}:NoWire", wires.GROUP)])

    def found(**_: str) -> EntryPoints:
        return points

    monkeypatch.setattr(wires, "entry_points", found)
    with pytest.raises(BusURLError, match="built for other:// is no wire: it needs `inject` and `observe`"):
        find_wire("other://host")


def test_a_wire_that_cannot_tell_the_version_tells_none() -> None:
    async def main() -> None:
        silent: Any = NoWire()
        assert await broker_version(silent) is None

    anyio.run(main)
