"""A notification bus over RabbitMQ, as the author of a custom bus would write it. Needs `pip install aio-pika`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import ClassVar, Unpack
from urllib.parse import quote

import aio_pika
import anyio
from aio_pika.abc import AbstractConnection, AbstractExchange, AbstractIncomingMessage

from notification_bus import BrokerBus, BrokerConnection, BusURLError
from notification_bus.options import OptionValues
from notification_bus.url import redact_url, url_secrets


class AmqpConnection(BrokerConnection):
    """One connection: a fanout exchange to publish to, and a queue of its own bound to it."""

    max_body = 100_000

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._arrived, self._inbox = anyio.create_memory_object_stream[bytes](100_000)
        # The stream ends with the connection, whoever ended it: that is how BrokerBus learns of it.
        connection.close_callbacks.add(self._on_close)
        self._exchange: AbstractExchange

    async def open(self, name: str) -> None:
        # Without confirms, nothing is ever sent again: at most once is what the contract promises.
        channel = await self._connection.channel(publisher_confirms=False)
        self._exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.FANOUT)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(self._exchange)
        await queue.consume(self._on_message, no_ack=True)  # returns when the broker has confirmed: ready

    def _on_close(self, *_: object) -> None:
        self._arrived.close()

    async def _on_message(self, message: AbstractIncomingMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # it may come while we are closing
            self._arrived.send_nowait(message.body)

    async def send(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self._exchange.publish(aio_pika.Message(body), routing_key="")

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        async for body in self._inbox:
            yield (body,)

    async def aclose(self) -> None:
        self._arrived.close()
        self._inbox.close()
        await self._connection.close()


class AmqpBus(BrokerBus):
    """A bus whose channel is the name of an exchange."""

    broker: ClassVar[str] = "amqp"
    backends: ClassVar[Sequence[str]] = ("asyncio",)

    def __init__(self, url: str, *, channel: str, **options: Unpack[OptionValues]) -> None:
        # Exchanges take few characters; the rest is written as %41 would be, and no two channels share a name.
        self._exchange = quote(channel, safe="").replace("%", ":")
        if len(self._exchange) > 127:
            raise BusURLError(f"channel {channel!r} is too long for the name of an exchange: {self._exchange}")
        self._url = url
        super().__init__(redact_url(url), channel=channel, secrets=url_secrets(url), **options)

    async def connect(self) -> AmqpConnection:
        connection = AmqpConnection(await aio_pika.connect(self._url))
        try:
            await connection.open(self._exchange)
        except BaseException:
            await connection.aclose()
            raise
        return connection

    def remedy(self, exc: BaseException) -> str | None:
        # Core knows the operating system's errors: refused, no such host, a certificate.
        return super().remedy(exc) or ("check host, port and credentials" if isinstance(exc, OSError) else None)
