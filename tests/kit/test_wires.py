"""Raw access to a broker's channels by the adapter's own connections, as every `url_harness` has it."""

import anyio
import pytest

from notification_bus.testing import Wire, url_harness
from tests.brokers import KINDS, Kind, Provider


def wire_of(kind: Kind, brokers: Provider) -> Wire:
    wire = url_harness(brokers.get(kind).url).wire
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
