"""What is reached by a wrong address: one line with cause and remedy, and no secret: issue 3, bad input."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from notification_bus import BusNotReadyError
from tests.brokers import Provider, free_port, outage_warnings
from tests.nats.helpers import bus_on, settled

SECRET = "s3cr3t"  # the word that must show up nowhere


@asynccontextmanager
async def answering(greeting: bytes, reply: bytes | None = None) -> AsyncGenerator[int]:
    """A server of another kind: what it says on connecting, and to what it is told (`None` closes)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(greeting)
            if reply is not None:
                while await reader.read(1000):
                    writer.write(reply)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def told_by(url: str, channel: str, caplog: pytest.LogCaptureFixture, **options: object) -> str:
    caplog.set_level(logging.DEBUG)
    bus = bus_on(url, channel, user="bus", password=SECRET, **options)
    async with bus:
        with pytest.raises(BusNotReadyError) as caught:
            await bus.wait_ready(1.5)
        assert caught.value.__cause__ is not None
    # Each cause once. How many causes one address shows within the time is a matter of scheduling.
    said = [line for line in outage_warnings(caplog) if repr(bus) in line]
    assert said
    assert all("cannot connect" in line for line in said)
    assert SECRET not in caplog.text + str(caught.value) + repr(caught.value.__cause__)
    assert "\n" not in str(caught.value) + said[0]
    return str(caught.value)


OTHERS: dict[str, tuple[bytes, bytes | None, str]] = {
    "an SSH server": (b"SSH-2.0-OpenSSH_9.2\r\n", b"", "no NATS server"),
    "a mail server": (b"220 mail.example ESMTP\r\n", b"500 what\r\n", "no NATS server"),
    "a web server": (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", "no NATS server"),
    "a Redis": (b"", b"-ERR unknown command\r\n", "no NATS server"),
    "a MySQL": (b"J\0\0\0\n8.0.36\0", b"", "no NATS server"),
    "one that hangs up": (b"", None, "no NATS server"),
    "one that says nonsense": (b"INFO nonsense\r\n", b"", "no NATS server"),
    "one that never ends its line": (b"x" * 100_000, b"x", "no NATS server"),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_server_that_speaks_another_protocol_is_recognised(
    channel: str, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    greeting, reply, says = OTHERS[other]
    async with answering(greeting, reply) as port:
        assert says in await told_by(f"nats://127.0.0.1:{port}", channel, caplog, connect_timeout=0.5)
    await settled()


async def test_refused_connection_names_the_remedy(channel: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "nothing listens there" in await told_by(f"nats://127.0.0.1:{free_port()}", channel, caplog)
    caplog.clear()
    assert "nothing listens there" in await told_by(f"nats://localhost:{free_port()}", channel, caplog)


async def test_host_that_does_not_exist_names_the_remedy(channel: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "check the host's name" in await told_by("nats://no-such-host.invalid", channel, caplog)


async def test_each_of_several_servers_is_named_with_its_cause(
    brokers: Provider, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed = free_port()
    with brokers.dedicated("nats", password="other") as server:
        told = await told_by(f"nats://127.0.0.1:{closed},127.0.0.1:{server.port}", channel, caplog)
    assert f"127.0.0.1:{closed}: " in told
    assert f"127.0.0.1:{server.port}: nats: 'Authorization Violation'" in told


@pytest.mark.parametrize("port", ["cluster", "monitor"])
async def test_other_ports_of_a_nats_server_are_recognised(
    brokers: Provider, flavour: str, channel: str, caplog: pytest.LogCaptureFixture, port: str
) -> None:
    other = free_port()
    text = f"cluster {{ name: c, listen: 127.0.0.1:{other} }}" if port == "cluster" else f"http: 127.0.0.1:{other}"
    with brokers.dedicated("nats", flavour, text=text):
        told = await told_by(f"nats://127.0.0.1:{other}", channel, caplog, connect_timeout=0.5)
    assert "no NATS server" in told or "route port" in told or "not on this port" in told


async def test_server_that_is_full_is_reported_with_where_to_look(
    brokers: Provider, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    with brokers.dedicated("nats", text="max_connections: 1") as server:
        # Of a name of its own: it may find the server full at first, with the fixture's connection just closing, and
        # says so, and that it works again.
        async with bus_on(server, f"{channel}.holder") as holder:
            await holder.wait_ready()
            told = await told_by(server.url, channel, caplog)
            # The server says so and hangs up at once, and its words may be lost with the connection.
            assert "max_connections" in told or "one connection too many" in told
