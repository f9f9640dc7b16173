"""One connection of a client to the simulated broker: what a client library would be for a real one."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from notification_bus._loops import current_loop
from tests.kit.simulated._loops import run_in

if TYPE_CHECKING:
    from tests.kit.simulated.broker import SimulatedBroker
    from tests.kit.simulated.link import SimulatedLink

__all__ = ["BrokerRefusedError", "SimulatedConnection"]


class BrokerRefusedError(Exception):
    """The broker said no to a request, and the connection lives on."""


class _Reply:
    """The answer to one request, while it is waited for."""

    __slots__ = ("arrived", "error")

    def __init__(self) -> None:
        self.arrived: Final = anyio.Event()
        self.error: Exception | None = None

    def set(self, error: Exception | None) -> None:
        self.error = error
        self.arrived.set()


class SimulatedConnection:
    """Requests travel up through the link, replies and bodies travel down through it, each way in order.

    Every request can be waited for, which takes a round trip, or be sent off without waiting. Where the link stalls,
    waiting waits, as long as it takes: bounds are the business of whoever uses a client library.
    """

    def __init__(self, broker: "SimulatedBroker", link: "SimulatedLink") -> None:
        self.link: Final = link
        self._broker = broker
        self._loop = current_loop()
        self._inbox: deque[bytes] = deque()
        self._filled: anyio.Event | None = None
        self._replies: set[_Reply] = set()
        self._broken: str | None = None
        self._closed = False

    @property
    def usable(self) -> bool:
        """Whether neither side has ended it, as far as this client knows."""
        return not self._closed and self._broken is None

    async def hello(self) -> None:
        """The round trip with which a connection begins."""
        await self._request(lambda: None)

    async def send(self, channel: str, bodies: Sequence[bytes], *, wait: bool = True) -> None:
        """Publish bodies, in order.

        Args:
            channel: The channel's name.
            bodies: What to publish.
            wait: Whether to wait for the broker's word. Without it, a refusal goes unheard and a stall unnoticed.

        Raises:
            BrokerRefusedError: The broker took none of them.
            ConnectionError: The connection is broken; whether the broker has the bodies is unknown.
        """
        taken = tuple(bodies)
        await self._request(lambda: self._broker.accept(self, channel, taken), wait=wait)

    async def subscribe(self, channel: str, *, wait: bool = True) -> None:
        """Subscribe, and by default wait until the broker has confirmed it."""
        await self._request(lambda: self._broker.add_subscriber(self, channel), wait=wait)

    async def unsubscribe(self, channel: str, *, wait: bool = True) -> None:
        """End a subscription, and by default wait until the broker has confirmed it."""
        await self._request(lambda: self._broker.remove_subscriber(self, channel), wait=wait)

    async def ping(self) -> None:
        """Ask whether the broker answers. A broker that answers may still deliver nothing."""
        await self._request(lambda: None)

    async def receive(self) -> list[bytes]:
        """Wait for bodies, and take all that have arrived. A cancelled wait loses none.

        Raises:
            ConnectionError: The connection is broken.
        """
        self._check()
        while not self._inbox:
            self._filled = anyio.Event()
            await self._filled.wait()
            self._check()
        bodies = list(self._inbox)
        self._inbox.clear()
        return bodies

    async def aclose(self) -> None:
        """Close, at once in any state. What the link has accepted still arrives; nothing more is received."""
        if not self._closed:
            self._closed = True
            self._broker.count_closed(self)
            self.link.carry_up(self, lambda: self._broker.forget(self))
            self._end("the connection to the simulated broker has been closed")
        await checkpoint()

    def send_down(self, body: bytes) -> None:
        """The broker has a body for this client."""
        # In the client's own loop, for the publisher may be in another thread's, and a link belongs to one.
        if not run_in(self._loop, lambda: self._send_down(body)):
            # A loop that ended took the client with it, as the end of a process does.
            self._broker.forget(self)

    def break_off(self, cause: str) -> None:
        """The connection breaks, and the client is told: whatever waits on it raises, what is unread is lost."""
        if not run_in(self._loop, lambda: self._end(cause)):
            self._broker.forget(self)

    def _send_down(self, body: bytes) -> None:
        if not self.link.is_deaf:
            self.link.carry_down(self, lambda: self._put(body))

    def _put(self, body: bytes) -> None:
        if self.usable:
            self._inbox.append(body)
            if self._filled is not None:
                self._filled.set()

    def _end(self, cause: str) -> None:
        if self._broken is None:
            self._broken = cause
            self._broker.count_closed(self)
        self._inbox.clear()
        for reply in tuple(self._replies):
            reply.set(ConnectionResetError(cause))
        if self._filled is not None:
            self._filled.set()

    def _check(self) -> None:
        if self._broken is not None:
            raise ConnectionResetError(self._broken)

    async def _request(self, act: Callable[[], str | None], *, wait: bool = True) -> None:
        """Carry a request up and its answer down; `act` is what the broker does, and returns why it does not."""
        self._check()
        reply = _Reply()

        def arrived_up() -> None:
            refusal = act()
            answer = None if refusal is None else BrokerRefusedError(refusal)
            self.link.carry_down(self, lambda: reply.set(answer))

        if wait:
            self._replies.add(reply)
        try:
            self.link.carry_up(self, arrived_up)
            if not wait:
                await checkpoint()
                return
            await reply.arrived.wait()
        finally:
            self._replies.discard(reply)
        if reply.error is not None:
            raise reply.error
