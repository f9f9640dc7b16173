"""One attachment to NATS, of the bus's own making."""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from nats.aio.client import Client

from notification_bus import BrokerConnection, SendRefusedError
from notification_bus_nats._client import OneConnection, ping

__all__ = ["NatsConnection", "OwnConnection", "grant"]

_BATCH: Final = 256
"""Bodies that the reader is given at once."""

_UNREAD: Final = 32 * 1024 * 1024
"""Bytes that may wait for the reader. nats-py never makes the server wait, so this is what bounds the memory."""

_OVERHEAD: Final = 100
"""Bytes that a body takes up beside its own."""

_SPREAD: Final = (0.1, 0.5)
"""Seconds, at least and at most, in which the other servers of a cluster learn of a new interest."""

_HUNG_UP: Final = "the server closed the connection during the handshake"


class NatsConnection(BrokerConnection):
    """What both kinds share: what has arrived, how it ends, and what the server does not allow.

    A server says that publishing is not allowed some time after it, and only on the connection. So the first batch
    waits for the server's answer to a PING behind it, and so does each one while the last was refused. A refusal that
    comes later, when a permission is withdrawn, ends the connection: what was sent is then in doubt, as it is.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._asking = True
        self._refusal: Exception | None = None

    def heard(self, body: bytes) -> None:
        """Keep a body for the reader."""
        self._size += len(body) + _OVERHEAD
        if self._size > _UNREAD:
            self.lose(ConnectionError(f"more than {_UNREAD >> 20} MB have arrived unread: this process is too slow"))
        elif not self._lost.done():
            self._unread.append(body)
            self._news.set()

    def lose(self, exc: Exception) -> None:
        """Note that the connection is over; the first reason counts."""
        if not self._lost.done():
            self._lost.set_result(exc)
            self._news.set()

    def denied(self, exc: Exception) -> bool:
        """Note an error of the server's, if it is about a permission on this subject; whether it was."""
        text = str(exc)  # nats-py has turned it into lower case, and the subject with it
        if "permissions violation" not in text or f'"{self.subject.lower()}"' not in text:
            return False
        if "violation for publish" not in text:
            self.lose(PermissionError(f"not allowed to subscribe to {self.subject!r}"))
        elif self._asking:
            self._refusal = exc
        else:
            self.lose(PermissionError(f"no longer allowed to publish to {self.subject!r}"))
        return True

    async def send(self, bodies: Sequence[bytes]) -> None:
        self._refusal = None
        self._check()
        await self._write(bodies)
        if self._asking:
            await self._answered(await ping(self._client))
            if self._refusal is not None:
                raise SendRefusedError(f"not allowed to publish to {self.subject!r} (grant it: {grant(self.subject)})")
            self._asking = False

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            while self._unread:
                batch = [self._unread.popleft() for _ in range(min(_BATCH, len(self._unread)))]
                self._size -= sum(map(len, batch)) + _OVERHEAD * len(batch)
                yield batch
            self._check()
            self._news.clear()
            await self._wait()

    def _check(self) -> None:
        if self._lost.done():
            raise self._lost.result()

    async def _wait(self) -> None:
        await self._news.wait()

    async def _answered(self, pong: "asyncio.Future[bool]") -> None:
        """Wait until the server has answered a PING, or the connection is lost."""
        either: tuple[asyncio.Future[Any], ...] = (pong, self._lost)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not pong.done():
            self._check()

    async def _confirmed(self, *, alone: bool) -> None:
        """Wait until the server has confirmed the subscription, and the rest of its cluster has had time to hear of it.

        The server does not wait for the others, and nothing says when they know. Without this, one in a hundred of the
        publications made on another server at once was missed, on loopback. A slow answer tells of slow servers.
        """
        began = asyncio.get_running_loop().time()
        await self._answered(await ping(self._client))
        self._check()
        if not alone:
            least, most = _SPREAD
            await asyncio.sleep(min(max(least, 10 * (asyncio.get_running_loop().time() - began)), most))

    @property
    @abstractmethod
    def _client(self) -> Client: ...

    @abstractmethod
    async def _write(self, bodies: Sequence[bytes]) -> None: ...


class OwnConnection(NatsConnection):
    """A connection that the bus has made."""

    def __init__(self, subject: str, *, secure: bool, grace: float) -> None:
        super().__init__(subject)
        self._grace = grace
        self._own = OneConnection(self.heard, self._ended, secure=secure)
        self._connected = False

    @property
    def _client(self) -> Client:
        return self._own

    @property
    def client(self) -> Client:
        """For what the server has told."""
        return self._own

    async def open(self, url: str, settings: dict[str, Any]) -> None:
        """Connect and subscribe, and return when the server has confirmed it. Call `aclose` whatever comes of it."""
        # Without reconnecting, and without a buffer of the client's: what cannot be sent now is for the outbox.
        try:
            await self._own.connect(
                url, allow_reconnect=False, error_cb=self._failed, no_echo=False, pending_size=0, **settings
            )
        except (ConnectionResetError, BrokenPipeError) as exc:
            raise ConnectionError(_HUNG_UP) from exc
        if not self._own.is_connected:
            # nats-py takes the end of the connection for an answer.
            raise ConnectionError(_HUNG_UP)
        self._connected = True
        self.max_body = self._own.max_payload
        await self._own.write(f"SUB {self.subject}  1\r\n".encode())
        await self._confirmed(alone=not self._own.clustered)

    async def _failed(self, exc: Exception) -> None:
        if not self._connected:
            # While connecting nats-py tries again, many times, unless this is raised.
            raise exc
        if not self.denied(exc):
            self.lose(exc)

    def _ended(self, reason: Exception | None) -> None:
        self.lose(reason or ConnectionError("the connection was closed"))

    async def _write(self, bodies: Sequence[bytes]) -> None:
        head = f"PUB {self.subject} ".encode()
        await self._own.write(b"".join([b"%b%d\r\n%b\r\n" % (head, len(body), body) for body in bodies]))

    async def aclose(self) -> None:
        # Until the server has read everything. A socket that is closed with something unread in it, such as the echo of
        # what was just published, is reset, and a reset takes with it what the server has not read yet.
        with anyio.move_on_after(self._grace), suppress(Exception):
            if not self._lost.done():
                await self._answered(await ping(self._own))
        await self._own.end()


def grant(subject: str) -> str:
    """The permissions that a user of the server needs."""
    return f'permissions {{ publish: "{subject}", subscribe: "{subject}" }}'
