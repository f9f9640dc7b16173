"""The largest message that the connected server takes is respected before sending: fault N03."""

import pytest

from notification_bus import BusNotification, NotificationTooLargeError
from tests.brokers import Provider, Server, is_process, witness
from tests.brokers._listener import listening, note, proven
from tests.nats.helpers import bus_on, until

MEGABYTE = 1024 * 1024
"""What nats-server takes unless told otherwise."""


def sized(size: int, filling: str = "x") -> BusNotification:
    """A notification whose body has that many bytes."""
    empty = len(BusNotification("m", {"t": ""}).encode())
    count, rest = divmod(size - empty, len(filling.encode()))
    made = BusNotification("m", {"t": filling * count + "x" * rest})
    assert len(made.encode()) == size
    return made


@pytest.mark.parametrize("filling", ["x", "é", "通"])
async def test_edge_is_sharp_in_encoded_bytes_and_the_connection_stays(
    brokers: Provider, flavour: str, channel: str, filling: str
) -> None:
    with brokers.dedicated("nats", flavour, text="max_payload: 1024") as server:
        bus = bus_on(server, channel)
        async with bus, listening(bus) as ear:
            assert bus.max_body == 1024
            await bus.publish(sized(1024, filling))
            await bus.publish(note(1))
            for size in (1025, 1026, 5000):
                with pytest.raises(NotificationTooLargeError, match="at most 1024"):
                    await bus.publish(sized(size, filling))
            for number in range(2, 11):
                await bus.publish(note(number))
            await ear.wait_for(note(10))
            assert ear.heard == [sized(1024, filling), *(note(number) for number in range(1, 11))]
            assert bus.stats().reconnects == 0


async def test_default_limit_of_a_server_is_that_of_the_bus(nats_server: Server, channel: str) -> None:
    bus = bus_on(nats_server, channel)
    async with bus, listening(bus) as ear:
        await bus.publish(sized(MEGABYTE))
        await ear.wait_for(sized(MEGABYTE))


async def test_larger_limit_of_a_server_is_used(brokers: Provider, channel: str) -> None:
    with brokers.dedicated("nats", text="max_payload: 4MB") as server:
        bus = bus_on(server, channel)
        async with bus, listening(bus) as ear:
            await bus.publish(sized(4 * 1024 * 1024))
            await bus.publish(note(1))
            await ear.wait_for(note(1))
            assert len(ear.heard) == 2


async def test_limit_lowered_by_a_restart_is_honoured(
    brokers: Provider, flavour: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was queued for the larger limit is dropped with a warning and a gap, and hurts nothing else."""
    with brokers.dedicated("nats", flavour, text="max_payload: 1024") as server:
        assert is_process(server)
        bus = bus_on(server, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            server.kill()
            await until(lambda: not bus.stats().connected)
            await bus.publish(sized(600))
            await bus.publish(note(1))
            (server.log.parent / "nats.conf").write_text("max_payload: 512", "utf-8")
            server.restart()
            await ear.wait_for(note(1))
            await proven(bus, ear, start=2_000_000)
            assert bus.max_body == 512
            assert bus.stats().dropped["too_large"] == 1
            assert sized(600) not in ear.heard
            assert any("too_large" in str(vars(record).get("notification_bus_event")) for record in caplog.records)
            with pytest.raises(NotificationTooLargeError, match="at most 512"):
                await bus.publish(sized(513))


async def test_limit_lowered_by_a_reload_costs_one_connection(brokers: Provider, channel: str) -> None:
    """The server says nothing of its new limit before it is exceeded, and then closes the connection."""
    from tests.nats.helpers import reload

    with brokers.dedicated("nats", "nats-2.15", text="max_payload: 1024") as server:
        assert is_process(server)
        bus = bus_on(server, channel)
        async with bus, listening(bus) as ear:
            await proven(bus, ear)
            reload(server, "max_payload: 512")
            await until(lambda: "Reloaded" in server.log.read_text("utf-8"))
            await bus.publish(sized(600))
            await until(lambda: bus.stats().reconnects == 1)
            await proven(bus, ear, start=2_000_000)
            assert bus.max_body == 512
            assert ear.gaps >= 1


async def test_bodies_of_a_whole_batch_arrive_byte_for_byte(each_server: Server, channel: str) -> None:
    """Bodies that look like the protocol's own words, equal ones too."""
    odd = [BusNotification("m", {"t": text}) for text in ("PUB x 0\r\n", "-ERR", "\r\n", "é通", "", "same", "same")]
    bus = bus_on(each_server, channel)
    async with bus, listening(bus) as ear, witness("nats", each_server.url, bus.subject) as seen:
        for notification in odd:
            await bus.publish(notification)
        await until(lambda: len(ear.heard) >= len(odd))
        assert ear.heard == odd
        bodies = [body for body in await seen.wait_for(len(odd)) if b"bus/probe" not in body]
        assert bodies == [notification.encode() for notification in odd]
