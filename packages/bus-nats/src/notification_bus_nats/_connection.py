"""One attachment to NATS: publishing and subscribed, on one connection."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import ParseResult

import anyio
from nats.aio.client import Client

from notification_bus import BrokerConnection, SendRefusedError
from notification_bus_nats._client import OneConnection

__all__ = ["NatsConnection", "grant"]

_BATCH: Final = 256
"""Bodies that the reader is given at once."""

_UNREAD: Final = 32 * 1024 * 1024
"""Bytes that may wait for the reader. nats-py never makes the server wait, so nothing else bounds the memory."""

_OVERHEAD: Final = 100
"""Bytes of memory that a body takes in addition to its own."""

_SPREAD: Final = (0.1, 0.5)
"""Seconds, at least and at most, in which the other servers of a cluster learn of a new interest."""


class NatsConnection(BrokerConnection):
    """Publishes and is subscribed on one connection.

    A server reports a denied publication some time after it, on the connection only. So the first batch waits for the
    answer to a PING sent behind it, and so does each one after a refused one. A refusal that comes later, when a
    permission is withdrawn, ends the connection: what was sent is then in doubt.

    Args:
        subject: What to publish to, and to subscribe to.
        discovered: Called when the server announces others in its cluster.
        secure: Send nothing without TLS.
        grace: Seconds that closing waits at most for the server to read what was sent.
    """

    def __init__(self, subject: str, discovered: Callable[[Client], None], *, secure: bool, grace: float) -> None:
        self.subject = subject
        self._discovered = discovered
        self._grace = grace
        self._client = OneConnection(self._heard, self._ended, secure=secure)
        self._connected = False
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._asking = True
        self._refusal: Exception | None = None

    async def open(self, url: str, settings: dict[str, Any]) -> Sequence[ParseResult]:
        """Connect and subscribe; return when the server has confirmed it, with the others of its cluster."""

        async def discovered() -> None:
            self._discovered(self._client)

        try:
            # Without a buffer of the client's: what cannot be sent now stays in the outbox.
            await self._client.connect(
                url,
                **settings,
                allow_reconnect=False,
                error_cb=self._failed,
                discovered_server_cb=discovered,
                no_echo=False,
                pending_size=0,
            )
            if not self._client.is_connected:
                # nats-py takes the end of the connection for an answer.
                raise ConnectionResetError
            self._connected = True
            self.max_body = self._client.max_payload
            await self._client.write(f"SUB {self.subject}  1\r\n".encode())
            await self._confirmed()
        except BaseException as exc:
            await self._client.end()
            if isinstance(exc, ConnectionResetError | BrokenPipeError):
                raise ConnectionError("the server closed the connection during the handshake") from exc
            raise
        return self._client.discovered_servers

    def _heard(self, body: bytes) -> None:
        """Keep a body for the reader."""
        self._size += len(body) + _OVERHEAD
        if self._size > _UNREAD:
            self._lose(ConnectionError(f"more than {_UNREAD >> 20} MB have arrived unread: this process is too slow"))
        elif not self._lost.done():
            self._unread.append(body)
            self._news.set()

    def _lose(self, exc: Exception) -> None:
        """Note that the connection is over; the first reason counts."""
        if not self._lost.done():
            self._lost.set_result(exc)
            self._news.set()

    def _denied(self, exc: Exception) -> bool:
        """Handle a server's error about a permission on this subject; false if it is about something else."""
        text = str(exc)  # in lower case, with the subject, by nats-py
        if "permissions violation" not in text or f'"{self.subject.lower()}"' not in text:
            return False
        if "violation for publish" not in text:
            self._lose(PermissionError(f"not allowed to subscribe to {self.subject!r}"))
        elif self._asking:
            self._refusal = exc
        else:
            self._lose(PermissionError(f"no longer allowed to publish to {self.subject!r}"))
        return True

    async def send(self, bodies: Sequence[bytes]) -> None:
        self._refusal = None
        self._check()
        head = f"PUB {self.subject} ".encode()
        await self._client.write(b"".join([b"%b%d\r\n%b\r\n" % (head, len(body), body) for body in bodies]))
        if self._asking:
            await self._answered(await self._client.ping())
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
            await self._news.wait()

    def _check(self) -> None:
        if self._lost.done():
            raise self._lost.result()

    async def _answered(self, pong: "asyncio.Future[bool]") -> None:
        """Wait until the server has answered a PING, or the connection is lost."""
        either: tuple[asyncio.Future[Any], ...] = (pong, self._lost)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not pong.done():
            self._check()

    async def _confirmed(self) -> None:
        """Wait until the server has confirmed the subscription, and the rest of its cluster has had time to hear of it.

        The server does not wait for the others, and nothing says when they know. Without this, one in a hundred of the
        publications made on another server at once was missed, on loopback. A slow answer tells of slow servers.
        """
        now = asyncio.get_running_loop().time
        began = now()
        await self._answered(await self._client.ping())
        self._check()
        if self._client.clustered:
            least, most = _SPREAD
            await asyncio.sleep(min(max(least, 10 * (now() - began)), most))

    async def _failed(self, exc: Exception) -> None:
        if not self._connected:
            # nats-py would go on trying to connect if this were not raised.
            raise exc
        if not self._denied(exc):
            self._lose(exc)

    def _ended(self, reason: Exception | None) -> None:
        self._lose(reason or ConnectionError("the connection was closed"))

    async def version(self) -> str:
        version = self._client.connected_server_version
        return f"nats-server {version.major}.{version.minor}.{version.patch}"

    async def aclose(self) -> None:
        # First until the server has read everything. A socket that is closed with something unread in it, such as the
        # echo of what was just published, is reset, and the reset discards what the server has not read yet.
        with anyio.move_on_after(self._grace), suppress(Exception):
            if not self._lost.done():
                await self._answered(await self._client.ping())
        await self._client.end()


def grant(subject: str) -> str:
    """The permissions that a user of the server needs."""
    return f'permissions {{ publish: "{subject}", subscribe: "{subject}" }}'
