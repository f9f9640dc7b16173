"""A replica of the board as a process. It reads one JSON object from its standard input, and ends with that input.

It answers with one JSON object on its standard output: the port that it listens on, or why it does not.
"""

import json
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypedDict

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from notification_bus import OpenableBus, open_bus
from notification_bus.cli.demo._board import build
from notification_bus.mcp import McpSubscriptions

__all__ = ["WITH", "WITHOUT", "Answer", "Order"]

WITHOUT: Final = "/without"
WITH: Final = "/with"
"""The board is served twice, so that one start shows both: with the SDK's own subscriptions, and over the bus."""


class Order(TypedDict):
    """What the replica reads. In its input, since arguments are shown to everybody and a URL may hold a password."""

    bus: str
    timeout: float


class Answer(TypedDict, total=False):
    """What the replica answers."""

    port: int
    error: str


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  # the parent reads it


def _main() -> None:
    order: Order = json.loads(sys.stdin.readline())
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    bus = open_bus(order["bus"])
    subscriptions = McpSubscriptions(bus, ready_timeout=order["timeout"])
    boards = {WITHOUT: build(None), WITH: build(subscriptions)}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for board in boards.values():
                await stack.enter_async_context(board.session_manager.run())
            ready = subscriptions.stats().ready
            _say({"port": port} if ready else {"error": _cause(bus)})
            yield

    app = Starlette(
        routes=[Mount(path, app=board.streamable_http_app()) for path, board in boards.items()], lifespan=lifespan
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))

    def end_with_parent() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end_with_parent, daemon=True).start()
    server.run(sockets=[listening])


def _cause(bus: OpenableBus) -> str:
    return f"{bus!r} is not ready: {bus.stats().last_error or 'the broker has not answered'}"


if __name__ == "__main__":
    _main()
