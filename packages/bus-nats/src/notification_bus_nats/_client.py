"""nats-py's client as a single connection: what nats-py has no public way for is here, each with its reason."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import anyio
from nats.aio.client import Client

__all__ = ["OneConnection"]

_CLOSING: Final = 0.1
"""Seconds; closing takes a few turns of the loop once the transport is aborted."""


class OneConnection(Client):
    """A client that connects once and reports the end of its connection, whatever the reason.

    Args:
        heard: Called with the payload of each message. It bypasses nats-py's queue and task for each subscription,
            which cost more than all the rest of reading.
        ended: Called when the connection is over, with the reason if there is one. nats-py skips its own callback if
            flushing fails, and always before 2.12.
        secure: Refuse to go on without TLS. nats-py sends the password in the clear to a server that offers no TLS,
            also where the URL says `tls://`.
    """

    def __init__(
        self, heard: Callable[[bytes], None], ended: Callable[[Exception | None], None], *, secure: bool
    ) -> None:
        super().__init__()
        self._heard = heard
        self._ended = ended
        self._secure = secure
        self.clustered = False
        """Whether the server is one of several."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self._heard(data)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self._secure and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise ConnectionError("the server offers no TLS, and this connection is to be encrypted")
            info["tls_required"] = True  # nats-py then goes on with TLS
        self.clustered = "cluster" in info
        await super()._process_info(info, initial_connection)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # Pending are only PINGs; nats-py would write them to a dead transport, raise, and leave it open.
        self._pending = []
        self._pending_data_size = 0
        self._ended(self.last_error)
        await super()._close(status, do_cbs)

    async def ping(self) -> "asyncio.Future[bool]":
        """Send a PING; the future is done when the server has answered it, and everything sent before it.

        Not `flush`: if that is cancelled or times out, the late PONG ends nats-py's reader silently.
        """
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        await self._send_ping(pong)  # pyright: ignore[reportUnknownMemberType]
        return pong

    async def write(self, commands: bytes) -> None:
        """Write to the transport, and wait while its buffer is full. A PING after it does not overtake it.

        Raises:
            ConnectionError: The connection is lost.
        """
        transport = cast("Any", self._transport)
        if self.is_closed or transport is None:
            raise ConnectionError("the connection is closed")
        transport.write(commands)
        await transport.drain()

    async def end(self) -> None:
        """Close without flushing, and leave nothing open, in any state.

        nats-py's own closing waits without limit for a transport whose buffer cannot be written out.
        """
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        closing = asyncio.create_task(self.close(), name="closing a connection to NATS")
        closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        with anyio.move_on_after(5 * _CLOSING, shield=True):
            await asyncio.wait({closing}, timeout=_CLOSING)
            # A websocket waits for its peer's close frame; before 2.16, one that could not be opened waits for ever.
            closing.cancel()
            session = getattr(self._transport, "_client", None)
            if session is not None:
                await session.close()
