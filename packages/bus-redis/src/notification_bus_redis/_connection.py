"""One attachment to Redis: a connection that publishes, and one that is subscribed."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from notification_bus import BrokerConnection, NotPrimaryError, SendRefusedError

__all__ = ["RedisConnection"]

_TURNS: Final = 0.1
"""Seconds; an aborted transport is gone within a turn of the loop."""


class RedisConnection(BrokerConnection):
    """Two connections: on a single one, the reply to a PUBLISH would queue behind pushed messages.

    They are redis-py's connections without its clients. A client sends a command again when its reply was lost, which
    would publish twice, and resubscribes silently, which would hide a gap.
    """

    def __init__(self, publishing: AbstractConnection, subscribed: AbstractConnection, channel: str) -> None:
        self._publishing = publishing
        self._subscribed = subscribed
        self._channel = channel
        self._tells_role = True
        self._writers: list[asyncio.StreamWriter] = []
        for connection in (publishing, subscribed):
            self._note_writer(connection)

    def _note_writer(self, connection: AbstractConnection) -> None:
        """Keep a reference to the stream, to abort it: redis-py drops its own at the first error, AUTH included."""
        theirs = connection.redis_connect_func

        async def greet(connection: Any) -> None:
            self._writers.append(connection._writer)  # noqa: SLF001  # there is no public way to abort it
            if theirs is None:
                await connection.on_connect()
            elif inspect.isawaitable(greeting := theirs(connection)):
                await greeting

        connection.redis_connect_func = greet

    @classmethod
    async def open(cls, make: Callable[[], AbstractConnection], channel: str) -> "RedisConnection":
        self = cls(make(), make(), channel)
        try:
            await self._publishing.connect()
            await self.check()
            await self._subscribed.connect()
            await self._subscribed.send_command("SUBSCRIBE", channel)
            # The reply says that the subscription is active; that the command was sent says nothing.
            await _read(self._subscribed)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def send(self, bodies: Sequence[bytes]) -> None:
        publishing = self._publishing
        commands = publishing.pack_commands([("PUBLISH", self._channel, body) for body in bodies])
        await publishing.send_packed_command(commands, check_health=False)
        refused, reason = 0, ""
        for _ in bodies:
            try:
                await _read(publishing)
            except ResponseError as exc:
                refused, reason = refused + 1, f"{type(exc).__name__}: {exc}"
        if refused:
            raise SendRefusedError(f"{reason} (grant it: {grant(self._channel)})", refused)

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            reply = await _read(self._subscribed)
            if reply[0] == b"message":
                yield (reply[2],)

    async def check(self) -> None:
        if not self._tells_role:
            return
        await self._publishing.send_command("ROLE")
        try:
            role = await _read(self._publishing)
        except ResponseError:
            # The user may not ask, or a service that is compatible with Redis does not know the command.
            self._tells_role = False
            return
        if role[0] != b"master":
            primary = f"{role[1].decode(errors='replace')}:{role[2]}" if len(role) > 2 else "unknown"
            raise NotPrimaryError(f"this node is a replica (its primary is {primary}): point the URL to the primary")

    async def version(self) -> str:
        await self._publishing.send_command("INFO", "server")
        text = bytes(await _read(self._publishing)).decode(errors="replace")
        about = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        valkey = about.get("valkey_version")
        return f"Valkey {valkey}" if valkey else f"Redis {about.get('redis_version', '')}".rstrip()

    async def aclose(self) -> None:
        # `close` would first write out what is buffered, and never return if the peer does not read.
        for writer in self._writers:
            writer.transport.abort()
        for connection in (self._publishing, self._subscribed):
            with suppress(RedisError):
                await connection.disconnect(nowait=True)
        for writer in self._writers:
            # Retrieves the error that ended the connection: asyncio logs one that nobody has retrieved, at any time.
            with suppress(OSError):
                async with asyncio.timeout(_TURNS):
                    await writer.wait_closed()


def _read(connection: AbstractConnection) -> Awaitable[Any]:
    # Returns redis-py's own coroutine: an `async def` around it would double the cost of each message.
    return cast("Awaitable[Any]", connection.read_response(disable_decoding=True))


def grant(channel: str) -> str:
    """The command that lets a user use the channel."""
    return f"ACL SETUSER <user> resetchannels &{channel} +publish +subscribe +role"
