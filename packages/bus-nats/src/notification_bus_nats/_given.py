"""An attachment to NATS on a client of the application's, whose callbacks and reconnecting are its owner's."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from notification_bus_nats._connection import NatsConnection

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

__all__ = ["GivenClientConnection"]

_PENDING: Final = 1_000_000
"""Bytes in a given client's buffer beyond which it gets no more: at twice that nats-py's `publish` waits by itself, and
swallows cancellations while it does."""

_LOOK: Final = 0.2
"""Seconds between two looks at the client's own word on its state."""


class GivenClientConnection(NatsConnection):
    """A subscription on a client of the application's, for as long as that stays on one connection.

    The client reconnects by itself, when and as it was told to. What the bus sees of it is that messages come on
    another connection than before, or that it says of itself that it is not connected; that ends this object, and the
    next one begins with a gap.
    """

    def __init__(self, client: Client, subject: str) -> None:
        super().__init__(subject)
        self._given = client
        self._seen = client.last_error
        self._reconnects = client.stats["reconnects"]
        self._subscription: Subscription | None = None

    @property
    def _client(self) -> Client:
        return self._given

    async def open(self) -> None:
        """Subscribe, and return when the server has confirmed it. Call `aclose` whatever comes of it."""
        client = self._given
        if client.is_closed:
            raise ConnectionError("the client that was given is closed, and does not come back: give another one")
        if not client.is_connected:
            raise ConnectionError(f"the client that was given is not connected ({client.last_error or 'no reason'})")
        if client.options["no_echo"]:
            raise ConnectionError("the client that was given hears nothing of its own: connect it without no_echo")
        self.max_body = client.max_payload
        self._subscription = await client.subscribe(  # pyright: ignore[reportUnknownMemberType]
            self.subject, cb=self._message, pending_msgs_limit=0, pending_bytes_limit=0
        )
        await self._written()
        await self._confirmed(alone=len(client.servers) < 2)
        self._look()
        self._check()

    async def _message(self, message: Msg) -> None:
        # Before anything else: what comes on a new connection comes after a gap that is still to be told.
        if self._given.stats["reconnects"] != self._reconnects:
            self._look()
        else:
            self.heard(message.data)

    def _look(self) -> None:
        client = self._given
        if not client.is_connected or client.stats["reconnects"] != self._reconnects:
            reason = f": {client.last_error}" if client.last_error else ""
            self.lose(ConnectionError(f"the client that was given lost its connection{reason}"))
        elif client.last_error is not self._seen:
            self._seen = client.last_error
            if self._seen is not None:
                self.denied(self._seen)

    async def _wait(self) -> None:
        with anyio.move_on_after(_LOOK):
            await self._news.wait()
        self._look()

    async def _answered(self, pong: "asyncio.Future[bool]") -> None:
        either: tuple[asyncio.Future[Any], ...] = (pong, self._lost)
        while not pong.done() and not self._lost.done():
            await asyncio.wait(either, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            self._look()
        if not pong.done():
            self._check()

    async def _write(self, bodies: Sequence[bytes]) -> None:
        # A client that is not connected keeps what it is given, and sends it when it is late.
        self._look()
        self._check()
        for body in bodies:
            if self._given.pending_data_size > _PENDING:
                await self._written()
            await self._given.publish(self.subject, body)
        await self._written()

    async def _written(self) -> None:
        """Wait until the client has handed over what it holds now: a PING overtakes what is still in its buffer."""
        pause, held = 0.0, self._given.pending_data_size
        while held:
            await asyncio.sleep(pause)
            pause = min(2 * pause + 0.0001, 0.02)
            self._look()
            self._check()
            # Others may add to it all the time, but only handing over everything makes it smaller.
            before, held = held, self._given.pending_data_size
            if held < before:
                return

    async def aclose(self) -> None:
        if self._subscription is not None and not self._given.is_closed:
            with suppress(Error):  # closed meanwhile, or draining, which ends the subscription as well
                await self._subscription.unsubscribe()
        self.lose(ConnectionError("the subscription was ended"))
