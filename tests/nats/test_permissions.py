"""What the server does not allow is said within seconds, hurts nobody, and ends when it is allowed: fault N05."""

import logging
from collections.abc import Sequence

import anyio
import pytest

from notification_bus import BusNotReadyError
from tests.brokers import LocalServer, Provider, is_process, outage_warnings, witness
from tests.brokers._listener import LIMIT, listening, note, proven
from tests.nats.helpers import bus_on, reload, until

ALL = 'publish: ">", subscribe: ">"'


def config(bus: str, watcher: str = ALL) -> str:
    """The bus's permissions, and those of a witness beside it."""
    return (
        "authorization { users: [\n"
        f"{{ user: bus, password: bus, permissions: {{ {bus} }} }}\n"
        f"{{ user: watcher, password: watcher, permissions: {{ {watcher} }} }}\n"
        "] }\n"
    )


def deny(*what: str, subject: str) -> str:
    allowed = {"publish", "subscribe"} - set(what)
    return ", ".join([*(f'{w}: {{ deny: "{subject}" }}' for w in what), *(f'{a}: ">"' for a in sorted(allowed))])


def as_user(server: LocalServer, user: str) -> str:
    return f"nats://{user}:{user}@{server.host}:{server.port}"


def warnings(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_denied_publishing_is_said_and_dropped_and_leaves_the_receiving_half_alone(
    brokers: Provider, flavour: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    with brokers.dedicated("nats", flavour, text=config(deny("publish", subject=channel))) as server:
        assert is_process(server)
        bus = bus_on(as_user(server, "bus"), channel)
        async with bus, listening(bus) as ear, witness("nats", as_user(server, "watcher"), channel) as seen:
            await bus.publish(note(1))
            await until(lambda: any(channel in said for said in warnings(caplog)), 5)
            said = next(said for said in warnings(caplog) if channel in said)
            assert "not allowed to publish" in said
            assert f'permissions {{ publish: "{channel}"' in said
            await until(lambda: bus.stats().dropped.get("refused") == 1, 5)
            await seen.publish(note(2).encode())
            await ear.wait_for(note(2))
            assert bus.stats().reconnects == 0
            assert seen.bodies == [note(2).encode()]


async def test_denied_publishing_is_said_once_where_nothing_was_published(
    brokers: Provider, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a change is lost: at the start, by the bus's own probe."""
    with brokers.dedicated("nats", text=config(deny("publish", subject=channel))) as server:
        assert is_process(server)
        bus = bus_on(as_user(server, "bus"), channel, probe_interval=0.1)
        async with bus, witness("nats", as_user(server, "watcher"), channel) as seen, listening(bus) as ear:
            await until(lambda: any(f"not allowed to publish to '{channel}'" in said for said in warnings(caplog)), 5)
            for number in range(20):  # the server notes each probe that it refuses
                await seen.publish(note(number).encode())
                await ear.wait_for(note(number))
                size = server.log.stat().st_size
                await until(lambda size=size: server.log.stat().st_size > size)  # type: ignore[misc]
            assert len([line for line in warnings(caplog) if "not allowed to publish" in line]) == 1


async def test_publishing_that_is_allowed_later_works_and_the_peers_are_told_of_the_gap(
    brokers: Provider, flavour: str, channel: str
) -> None:
    with brokers.dedicated("nats", flavour, text=config(deny("publish", subject=channel))) as server:
        assert is_process(server)
        bus, peer = bus_on(as_user(server, "bus"), channel), bus_on(as_user(server, "watcher"), channel)
        async with bus, peer, listening(bus) as ear, listening(peer) as other:
            await bus.publish(note(1))
            await until(lambda: bus.stats().dropped.get("refused") == 1)
            reload(server, config(ALL))
            await proven(bus, ear)
            await until(lambda: other.gaps)
            assert 1 not in ear.numbers + other.numbers


async def test_publishing_that_is_withdrawn_is_noticed_and_never_lost_silently(
    brokers: Provider, flavour: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    with brokers.dedicated("nats", flavour, text=config(ALL)) as server:
        assert is_process(server)
        bus, peer = bus_on(as_user(server, "bus"), channel), bus_on(as_user(server, "watcher"), channel)
        async with bus, peer, listening(bus) as ear, listening(peer) as other:
            await proven(bus, ear)
            reload(server, config(deny("publish", subject=channel)))
            sent = 0
            with anyio.fail_after(LIMIT):
                while not bus.stats().dropped.get("refused"):
                    sent += 1
                    await bus.publish(note(sent))
                    await anyio.sleep(0.02)
            told = other.gaps
            reload(server, config(ALL))
            await proven(bus, ear, start=2_000_000)
            await until(lambda: other.gaps > told)
            assert any("no longer allowed to publish" in said for said in warnings(caplog))


async def test_denied_subscribing_is_said_by_entering_and_retried_gently(
    brokers: Provider, flavour: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    with brokers.dedicated("nats", flavour, text=config(deny("subscribe", subject=channel))) as server:
        assert is_process(server)
        bus = bus_on(as_user(server, "bus"), channel, ready_timeout=1.0, backoff_cap=0.3)
        async with bus:
            with pytest.raises(BusNotReadyError) as caught:
                async with bus.subscribe():
                    raise AssertionError
            assert f"not allowed to subscribe to '{channel}'" in str(caught.value)
            assert f'subscribe: "{channel}"' in str(caught.value)
            assert any(f"not allowed to subscribe to '{channel}'" in line for line in outage_warnings(caplog))
            await bus.publish(note(1))
            reload(server, config(ALL))
            async with listening(bus) as ear:
                await proven(bus, ear)


async def test_subscribing_that_is_withdrawn_is_a_loss_with_a_gap(
    brokers: Provider, flavour: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    with brokers.dedicated("nats", flavour, text=config(ALL)) as server:
        assert is_process(server)
        bus = bus_on(as_user(server, "bus"), channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            reload(server, config(deny("subscribe", subject=channel)))
            await until(lambda: any("not allowed to subscribe" in said for said in warnings(caplog)))
            assert not bus.stats().connected
            reload(server, config(ALL))
            await proven(bus, ear, start=2_000_000)
            assert ear.gaps == 1


async def test_permissions_of_mixed_case_are_recognised(brokers: Provider, caplog: pytest.LogCaptureFixture) -> None:
    """nats-py turns the server's words into lower case."""
    with brokers.dedicated("nats", text=config(deny("publish", subject="Board.Prod"))) as server:
        assert is_process(server)
        bus = bus_on(as_user(server, "bus"), "Board.Prod")
        async with bus:
            await bus.wait_ready()
            await bus.publish(note(1))
            await until(lambda: any("not allowed to publish to 'Board.Prod'" in said for said in warnings(caplog)), 5)
