"""One instance's way to the simulated broker, and everything that can be wrong with it."""

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from notification_bus._loops import BackgroundTask
from tests.kit.simulated.connection import SimulatedConnection

if TYPE_CHECKING:
    from tests.kit.simulated.broker import SimulatedBroker

__all__ = ["SimulatedLink"]

_Arrival = Callable[[], None]


class SimulatedLink:
    """Carries what its connections and the broker say to each other; the faults are those of `testing.Link`, and more.

    While nothing is wrong everything arrives at once and no task runs, so a check is quick and its order of events is
    that of the calls. A delay is carried out by one background task; a stall only holds things back.
    """

    def __init__(self, broker: "SimulatedBroker") -> None:
        self._broker = broker
        self._connections: set[SimulatedConnection] = set()
        self._held: deque[tuple[float, SimulatedConnection, _Arrival]] = deque()
        self._delay = 0.0
        self._stalled = False
        self._refusing = False
        self._releasing = False
        self._carrier: BackgroundTask | None = None
        self._more: anyio.Event | None = None
        self.attempts: int = 0
        """Connections that have been tried through this link, refused ones included."""
        self.is_deaf: bool = False
        """Whether the broker delivers nothing over this link."""
        self.is_denied: bool = False
        """Whether the broker refuses what is published over this link."""

    @property
    def connections(self) -> int:
        """Connections open through this link, as far as their clients know."""
        return sum(connection.usable for connection in self._connections)

    async def connect(self) -> SimulatedConnection:
        """A new connection, once the broker has answered for the first time.

        Raises:
            ConnectionRefusedError: The link refuses connections.
        """
        self.attempts += 1
        await checkpoint()
        if self._refusing:
            raise ConnectionRefusedError("the simulated broker refuses connections")
        connection = SimulatedConnection(self._broker, self)
        self._connections.add(connection)
        self._broker.count_opened(connection)
        try:
            await connection.hello()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            raise
        return connection

    async def delay(self, seconds: float) -> None:
        """Let everything arrive that much later, in order."""
        self._delay = seconds
        if self._carrier is None:
            self._carrier = BackgroundTask(self._carry_late, "a simulated link with a delay")

    async def stall(self) -> None:
        """Accept everything and carry nothing, in both directions; what was held back goes through after `restore`."""
        self._stalled = True

    async def blackhole(self) -> None:
        """Kill the present connections without a word: nothing is ever carried on them again, new ones work."""
        for connection in self._take_all():
            self._broker.forget(connection)

    async def cut(self) -> None:
        """Break the present connections; new ones work."""
        for connection in self._take_all():
            self._broker.forget(connection)
            connection.break_off("the simulated link was cut")

    async def refuse(self) -> None:
        """Break the present connections and refuse new ones."""
        self._refusing = True
        await self.cut()

    async def deaf(self) -> None:
        """Subscriptions stay confirmed and pings are answered, yet nothing is delivered."""
        self.is_deaf = True

    async def deny(self) -> None:
        """The broker refuses what is published, as for want of a permission; everything else works."""
        self.is_denied = True

    async def restore(self) -> None:
        """End every fault: carry again, what was held back first, and accept new connections."""
        self._delay = 0.0
        self._stalled = self._refusing = self.is_deaf = self.is_denied = False
        self._release(float("inf"))
        await self._end_carrier()

    async def aclose(self) -> None:
        """End the link: what it still holds is lost, and its connections break."""
        self._held.clear()
        await self.cut()
        await self._end_carrier()

    def carry_up(self, connection: SimulatedConnection, arrive: _Arrival) -> None:
        """Carry something to the broker, where `arrive` says what it does there."""
        self._carry(connection, arrive)

    def carry_down(self, connection: SimulatedConnection, arrive: _Arrival) -> None:
        """Carry something to the client, where `arrive` says what it does there."""
        self._carry(connection, arrive)

    def _carry(self, connection: SimulatedConnection, arrive: _Arrival) -> None:
        if connection not in self._connections:
            return  # cut or black: it goes nowhere
        # What an arrival sends back in the middle of a release queues up behind what is still held.
        if self._stalled or self._delay or self._held or self._releasing:
            self._held.append((monotonic() + self._delay, connection, arrive))
            if self._more is not None:
                self._more.set()
        else:
            arrive()

    def drop(self, connection: SimulatedConnection) -> None:
        """Carry nothing more for a connection that has been closed, and of which the broker has heard."""
        self._connections.discard(connection)

    def _take_all(self) -> set[SimulatedConnection]:
        """The present connections, on which nothing is carried from now on."""
        taken, self._connections = self._connections, set()
        self._held = deque(item for item in self._held if item[1] not in taken)
        return taken

    def _release(self, until: float) -> None:
        self._releasing = True
        while self._held and not self._stalled and self._held[0][0] <= until:
            _, connection, arrive = self._held.popleft()
            if connection in self._connections:
                arrive()
        self._releasing = False

    async def _carry_late(self) -> None:
        while True:
            self._release(monotonic())
            if self._held and not self._stalled:
                await anyio.sleep(max(0.0, self._held[0][0] - monotonic()))
            else:
                self._more = anyio.Event()
                await self._more.wait()

    async def _end_carrier(self) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.cancel()
            with anyio.CancelScope(shield=True):
                await carrier.wait()
