"""`SimulatedBus`: the smallest adapter there is, and a model for those that an author writes."""

from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar, Unpack

from notification_bus.broker import BrokerBus
from notification_bus.connection import BrokerConnection
from notification_bus.errors import SendRefusedError
from notification_bus.notification import DEFAULT_MAX_BODY
from notification_bus.options import OptionValues
from tests.kit.simulated.connection import BrokerRefusedError, SimulatedConnection
from tests.kit.simulated.link import SimulatedLink

__all__ = ["SimulatedBus"]


class SimulatedBus(BrokerBus):
    """A `BrokerBus` on the simulated broker.

    Args:
        link: The way to the broker.
        channel: The broker-side name.
        max_body: Bytes of the largest body.
        options: See `BusOptions`.
    """

    broker: ClassVar[str] = "simulated"

    def __init__(
        self, link: SimulatedLink, channel: str, *, max_body: int = DEFAULT_MAX_BODY, **options: Unpack[OptionValues]
    ) -> None:
        super().__init__("simulated://", channel=channel, **options)
        self.max_body = max_body
        self._link = link

    async def connect(self) -> BrokerConnection:
        """Connect, and subscribe before anybody calls the connection good."""
        connection = await self._link.connect()
        try:
            await connection.subscribe(self.channel)
        except BaseException:
            await connection.aclose()
            raise
        return _Attachment(connection, self.channel, self.max_body)


class _Attachment(BrokerConnection):
    def __init__(self, connection: SimulatedConnection, channel: str, max_body: int) -> None:
        self.max_body = max_body
        self._connection = connection
        self._channel = channel

    async def send(self, bodies: Sequence[bytes]) -> None:
        try:
            await self._connection.send(self._channel, bodies)
        except BrokerRefusedError as exc:
            raise SendRefusedError(str(exc)) from exc

    async def receive(self) -> AsyncGenerator[Sequence[bytes], None]:
        while True:
            yield await self._connection.receive()

    async def aclose(self) -> None:
        await self._connection.aclose()
