"""Joins the hubs of several processes into one, so that a child process can be a peer.

Threads and plain sockets: a bridge serves clients of several event loops, and outlives each of them.
"""

import queue
import socket
import struct
import threading
import weakref
from contextlib import suppress
from typing import BinaryIO, Final

from tests.kit.hub import Hub

__all__ = ["join", "listen"]

_HEAD: Final = struct.Struct("!HI")
"""Length of the channel's name, length of the body; both follow."""


class _Bridge:
    """One end of a connection between two processes. It publishes what arrives whole, and never half a body."""

    def __init__(self, hub: Hub, connection: socket.socket) -> None:
        self._hub: Final = weakref.ref(hub)
        self._socket: Final = connection
        self._outgoing: Final[queue.SimpleQueue[bytes | None]] = queue.SimpleQueue()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hub.add_relay(self.relay)
        for half in (self._read, self._write):
            threading.Thread(target=half, name="a bridge between hubs", daemon=True).start()

    def relay(self, channel: str, body: bytes) -> None:
        name = channel.encode()
        # Queued, since this runs in an event loop, and the other process may not be reading.
        self._outgoing.put(_HEAD.pack(len(name), len(body)) + name + body)

    def close(self) -> None:
        """End it, from any thread."""
        self._outgoing.put(None)

    def _write(self) -> None:
        with suppress(OSError):
            while (frame := self._outgoing.get()) is not None:
                self._socket.sendall(frame)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        with self._socket, self._socket.makefile("rb") as stream, suppress(OSError):
            while (frame := _read_frame(stream)) is not None:
                hub = self._hub()
                if hub is None:
                    break
                hub.publish(*frame, came_by=self.relay)
                del hub  # waiting for the next frame must not keep the hub alive
        self.close()
        hub = self._hub()
        if hub is not None:
            hub.remove_relay(self.relay)


def _read_frame(stream: BinaryIO) -> tuple[str, bytes] | None:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    name_size, body_size = _HEAD.unpack(head)
    name, body = stream.read(name_size), stream.read(body_size)
    return None if len(body) < body_size else (name.decode(), body)


def listen(hub: Hub) -> int:
    """Let hubs of other processes join this one, until it is collected; the loopback port for `join`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    known = weakref.ref(hub)

    def accept() -> None:
        with listener, suppress(OSError):
            while True:
                connection, _ = listener.accept()
                hub = known()
                if hub is None:
                    connection.close()
                    return
                bridge = _Bridge(hub, connection)
                weakref.finalize(hub, bridge.close)
                del hub, bridge

    def stop() -> None:
        try:
            listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            # Not every system can shut a listener down; a connection wakes its `accept` there.
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()

    threading.Thread(target=accept, name="waits for other hubs", daemon=True).start()
    weakref.finalize(hub, stop)
    return port


def join(hub: Hub, port: int) -> None:
    """Join the hub of another process."""
    _Bridge(hub, socket.create_connection(("127.0.0.1", port)))
