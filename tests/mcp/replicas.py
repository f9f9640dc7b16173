"""Two replicas of the board as processes, and what listens to them."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import anyio
from mcp.client.subscriptions import ServerEvent, Subscription

from tests.mcp.board import BUS, INSTALL, JSON, LEGACY

__all__ = ["LIMIT", "ROOT", "expect", "replica", "stalled_listener", "start_replicas", "url_of"]

LIMIT: Final = 20.0
"""Seconds that anything may take that must happen."""

ROOT: Final = Path(__file__).parents[2]


@contextmanager
def start_replicas(
    bus_url: str, count: int = 2, *, install: bool = False, legacy: bool = False
) -> Generator[Sequence[str]]:
    """The URLs of running replicas that share a bus. They are killed at the end."""
    with ExitStack() as stack:
        processes = [stack.enter_context(replica(bus_url, install=install, legacy=legacy)) for _ in range(count)]
        yield [url_of(process) for process in processes]


def url_of(process: subprocess.Popen[str]) -> str:
    """Where a replica listens; waits until it does."""
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    assert port, f"a replica ended at start with code {process.wait(LIMIT)}; its errors are above"
    return f"http://127.0.0.1:{port}/mcp"


@contextmanager
def replica(
    bus_url: str, *, install: bool = False, legacy: bool = False, json_response: bool = False
) -> Generator[subprocess.Popen[str]]:
    """A process that is killed at the end, if it is there still."""
    switches = {name: "1" for name, on in ((INSTALL, install), (LEGACY, legacy), (JSON, json_response)) if on}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mcp.board"],
        cwd=ROOT,
        env=os.environ | {BUS: bus_url} | switches,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def expect(subscription: Subscription, *expected: ServerEvent) -> list[ServerEvent]:
    """Read until all of these have arrived, in any order; all that arrived."""
    missing = set(expected)
    seen: list[ServerEvent] = []
    with anyio.move_on_after(LIMIT):
        while missing:
            event = await anext(subscription)
            seen.append(event)
            missing.discard(event)
        return seen
    raise AssertionError(f"waited {LIMIT:g} s in vain for {missing}; these came: {seen}")


@contextmanager
def stalled_listener(url: str) -> Generator[socket.socket]:
    """A client that opens a listen stream and then reads nothing, behind a receive buffer that is soon full."""
    host, _, port = url.removeprefix("http://").removesuffix("/mcp").partition(":")
    body = (
        '{"jsonrpc":"2.0","id":"stalled","method":"subscriptions/listen","params":{"notifications":'
        '{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        '"io.modelcontextprotocol/clientInfo":{"name":"stalled","version":"1"},'
        '"io.modelcontextprotocol/clientCapabilities":{}}}}'
    )
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: application/json, text/event-stream\r\n"
        "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(LIMIT)
        client.connect((host, int(port)))
        client.sendall(f"{head}{body}".encode())
        answer = b""
        while b"notifications/subscriptions/acknowledged" not in answer:
            answer += client.recv(1)
        yield client
