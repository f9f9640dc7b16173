"""A replica of the board as a process. It reads one JSON object from its standard input, and ends with that input.

It answers with one JSON object on its standard output: the port that it listens on, or why it does not.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from notification_bus import open_bus
from notification_bus.cli.demo._order import PATH, WITH, WITHOUT, Answer, Order

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__: list[str] = []


class _Watch:
    """Ends the process with its parent, which may be killed at any time, also while the SDK is still being loaded."""

    def __init__(self) -> None:
        self.end: Callable[[], None] = lambda: os._exit(1)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.read()
        self.end()


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  # the parent reads it


def _main() -> None:
    line = sys.stdin.readline()
    if line:
        _serve(json.loads(line), _Watch())


def _serve(order: Order, watch: _Watch) -> None:
    import uvicorn  # noqa: PLC0415  # with all that follows the SDK loads, which takes its time
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Mount  # noqa: PLC0415

    from notification_bus.cli.demo._board import build  # noqa: PLC0415
    from notification_bus.mcp import McpSubscriptions  # noqa: PLC0415

    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    bus = open_bus(order["bus"])
    subscriptions = McpSubscriptions(bus, ready_timeout=order["timeout"])
    boards = {WITHOUT: build(None), WITH: build(subscriptions)}

    @asynccontextmanager
    async def lifespan(_: "Starlette") -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for board in boards.values():
                await stack.enter_async_context(board.session_manager.run())
            if subscriptions.stats().ready:
                _say({"port": port})
            else:
                _say({"error": f"{bus!r} is not ready: {bus.stats().last_error or 'the broker has not answered'}"})
            yield

    app = Starlette(
        routes=[
            Mount(path, app=board.streamable_http_app(streamable_http_path=PATH)) for path, board in boards.items()
        ],
        lifespan=lifespan,
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))

    def end() -> None:
        server.should_exit = True

    watch.end = end
    server.run(sockets=[listening])


if __name__ == "__main__":
    _main()
