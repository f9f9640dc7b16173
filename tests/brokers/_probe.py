"""Whether a server answers, and which version it is: on the wire, for readiness must not depend on a client library."""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tests.brokers._base import Kind

__all__ = ["answers", "ask_version"]

_TIMEOUT = 1.0
"""Seconds that one try to get an answer may take; a server that is starting is asked again."""


def answers(kind: Kind, host: str, port: int, *, secure: bool = False, timeout: float = _TIMEOUT) -> bool:
    """Whether the server speaks its protocol: a refusal of the login is an answer, a "not yet" is none."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            return _PROBES[kind](connection, secure)
    except OSError:
        return False


def _redis(connection: socket.socket, secure: bool) -> bool:
    if secure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(connection) as wrapped:
            return _redis(wrapped, secure=False)
    connection.sendall(b"PING\r\n")
    return connection.recv(256).startswith((b"+PONG", b"-NOAUTH"))


def _nats(connection: socket.socket, secure: bool) -> bool:
    if not connection.recv(4096).startswith(b"INFO "):
        return False
    if secure:
        return True
    connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
    return connection.recv(256).startswith((b"PONG", b"-ERR", b"INFO"))


def _postgres(connection: socket.socket, secure: bool) -> bool:
    # In the clear also where TLS is demanded: a refusal proves more than a yes to TLS, which a starting server gives.
    words = b"user\0postgres\0database\0postgres\0\0"
    connection.sendall(struct.pack("!ii", 8 + len(words), 196608) + words)
    # "R" opens every kind of authentication, 28000 is a refusal by the rules. A server that is starting says 57P03.
    reply = connection.recv(1024)
    return reply.startswith(b"R") or b"\0C28000\0" in reply


_PROBES: Mapping[Kind, Callable[[socket.socket, bool], bool]] = {"redis": _redis, "nats": _nats, "postgres": _postgres}


def ask_version(kind: Kind, url: str) -> str:
    """Ask a running server, by a login with its URL. Blocks for a round trip, also where an event loop runs."""
    match kind:
        case "redis":
            return _ask_redis(url)
        case "nats":
            return _ask_nats(url)
        case "postgres":
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(lambda: asyncio.run(_ask_postgres(url))).result()


def _ask_redis(url: str) -> str:
    from redis import Redis

    with Redis.from_url(url, socket_timeout=5) as client:  # pyright: ignore[reportUnknownMemberType]
        info = client.info("server")  # pyright: ignore[reportUnknownMemberType]
    return str(info.get("valkey_version") or info["redis_version"])


def _ask_nats(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 4222), 5) as connection:
        greeting = connection.recv(4096)
    found = re.search(rb'"version":"([^"]+)"', greeting)
    if found is None:
        raise ConnectionError(f"{parts.hostname}:{parts.port} greets like no NATS server: {greeting[:80]!r}")
    return found[1].decode()


async def _ask_postgres(url: str) -> str:
    import asyncpg

    connection = await asyncpg.connect(url, timeout=5)
    try:
        return str(await connection.fetchval("SHOW server_version")).split()[0]
    finally:
        await connection.close(timeout=5)
