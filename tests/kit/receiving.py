"""A subscriber at the level of connections, and waiting for what it is to receive."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint

from notification_bus import BrokerConnection

BOUND = 5.0


async def settled(turns: int = 20) -> None:
    """Nothing here needs more than a few turns of the loop, unless a fault holds it back."""
    for _ in range(turns):
        await checkpoint()


async def comes_true(condition: Callable[[], object]) -> None:
    """Wait, within the bound, for what another task or thread brings about."""
    with anyio.fail_after(BOUND):
        while not condition():
            await checkpoint()


class Received:
    """What one connection has received, and how that ended."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.bodies: list[bytes | str] = []
        self.error: Exception | None = None
        self.ended = False

    @classmethod
    @asynccontextmanager
    async def of(cls, connection: BrokerConnection) -> "AsyncGenerator[Received]":
        """Receive from that connection, and close it at the end."""
        received = cls(connection)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(received.run)
            yield received
            tasks.cancel_scope.cancel()
        await connection.aclose()

    async def run(self) -> None:
        try:
            async for batch in self.connection.receive():
                self.bodies += batch
        except ConnectionError as exc:
            self.error = exc
        self.ended = True

    async def until(self, count: int) -> list[bytes | str]:
        await comes_true(lambda: len(self.bodies) >= count)
        return self.bodies
