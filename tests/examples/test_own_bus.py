"""The bus of the page "Write your own bus" keeps the contract, on a real broker of a kind that is not ours."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aio_pika
import pytest

from examples.own_bus.amqp_bus import AmqpBus
from notification_bus.testing import Harness, Observed, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import free_port, until

FOLDER = Path(__file__).parents[2] / "examples" / "own_bus"


SERVERS = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
pytestmark = pytest.mark.skipif(not SERVERS or not shutil.which("erl"), reason="needs Debian's rabbitmq-server")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A RabbitMQ of our own, with its own port mapper."""
    folder = tmp_path_factory.mktemp("rabbitmq")
    port = free_port()
    settings = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    log = (folder / "output").open("wb")
    server = subprocess.Popen(
        [str(SERVERS[-1])], env=os.environ | settings, stdout=log, stderr=log, start_new_session=True
    )
    try:

        def accepts() -> bool:
            assert server.poll() is None, (folder / "output").read_text()[-2000:]
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                return False
            return True

        until(accepts, 60, "RabbitMQ accepts")
        yield f"amqp://guest:guest@127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        subprocess.run(["pkill", "-KILL", "-f", f"epmd.*{settings['ERL_EPMD_PORT']}"], check=False)
        log.close()


def _name(channel: str) -> str:
    return quote(channel, safe="").replace("%", ":")


class AmqpWire:
    """The exchange, without the bus."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def inject(self, channel: str, body: bytes) -> None:
        async with await aio_pika.connect(self._url) as connection:
            exchange = await (await connection.channel()).declare_exchange(_name(channel), aio_pika.ExchangeType.FANOUT)
            await exchange.publish(aio_pika.Message(body), routing_key="")

    @asynccontextmanager
    async def observe(self, channel: str) -> AsyncGenerator[Observed]:
        class Seen:
            def __init__(self) -> None:
                self.bodies: list[bytes] = []

        seen = Seen()

        async def on_message(message: Any) -> None:
            seen.bodies.append(message.body)

        async with await aio_pika.connect(self._url) as connection:
            amqp = await connection.channel()
            exchange = await amqp.declare_exchange(_name(channel), aio_pika.ExchangeType.FANOUT)
            queue = await amqp.declare_queue(exclusive=True)
            await queue.bind(exchange)
            await queue.consume(on_message, no_ack=True)
            yield seen


def make_harness(url: str) -> Harness:
    return url_harness(
        url,
        opener=AmqpBus.from_url,
        wire=AmqpWire(url),
        child="tests.examples.test_own_bus:child_harness",
        broker="RabbitMQ",
    )


def child_harness() -> Harness:
    """What a child process of the kit builds."""
    return make_harness(os.environ["OWN_BUS_URL"])


class TestTheBusOfThePage(BusContract):
    """Strict, as everything that we show."""

    strict = True

    @pytest.fixture
    def harness(self, url: str, monkeypatch: pytest.MonkeyPatch) -> Harness:
        monkeypatch.setenv("OWN_BUS_URL", url)
        return make_harness(url)


def test_the_page_is_short() -> None:
    lines = (FOLDER / "amqp_bus.py").read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) < 80
