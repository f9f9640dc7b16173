"""Server-sent events without any MCP: browsers look at a page, and look again when it is changed on any replica.

    python -m examples.sse.app --port 8001
    python -m examples.sse.app --port 8002

Open http://127.0.0.1:8001 and http://127.0.0.1:8002, write in one and watch the other. Or, without a browser:

    curl -N 'http://127.0.0.1:8001/changes?page=welcome'
    curl -X PUT -d 'hello' http://127.0.0.1:8002/pages/welcome

Needs `pip install notification-bus notification-bus-redis starlette uvicorn`, and a Redis; `--bus` names it.

`bus.subscribe()` would do for one reader that keeps up. A server that holds many streams wants what the registry adds:
each stream is told of its own pages only; a slow reader is told once of what changed ten times; a gap becomes a change
of everything that a stream watches, spread over a moment; and a shutdown ends the streams before it ends the server.
"""

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from notification_bus import BusNotification, NotificationBusError, open_bus
from notification_bus.subscriptions import (
    SubscriptionFilter,
    SubscriptionLimitError,
    SubscriptionMessage,
    SubscriptionRegistry,
    SubscriptionStream,
)

KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies cut connections that say nothing."""


def uri_of(name: str) -> str:
    """What streams watch and `write` publishes: compared as strings, so it is made in one place."""
    return f"/pages/{name}"


def build(bus_url: str, folder: Path) -> Starlette:
    """The application, over a folder of pages that its replicas share."""
    registry = SubscriptionRegistry(open_bus(bus_url), ready_timeout=2.0)

    def file_of(name: str) -> anyio.Path:
        if not name.isalnum():
            raise HTTPException(404, "a page's name is letters and digits")
        return anyio.Path(folder, f"{name}.txt")

    async def read(request: Request) -> Response:
        try:
            return Response(await file_of(request.path_params["name"]).read_bytes(), media_type="text/plain")
        except FileNotFoundError:
            raise HTTPException(404, "no such page") from None

    async def write(request: Request) -> Response:
        name: str = request.path_params["name"]
        await file_of(name).write_bytes(await request.body())
        # After the change, not before: whoever is told of it reads at once. It reaches this replica's streams the same
        # way as everybody's, and it does not fail where the broker is down, since the change has been made.
        await registry.publish(BusNotification.resource_updated(uri_of(name)))
        return Response(status_code=204)

    async def home(_: Request) -> Response:
        return FileResponse(Path(__file__).with_name("page.html"))

    async def refuse(_: Request, error: Exception) -> Response:
        if isinstance(error, SubscriptionLimitError) and error.limit != "max_streams":
            return PlainTextResponse(str(error), 400)
        # No broker, a shutdown, too many streams: another replica may answer. Why is in the log, and not for a browser.
        return PlainTextResponse("no stream here for now: try again", 503, {"Retry-After": "1"})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        # Does not wait for the broker: the pages can be read and written while it is down. The streams wait for it.
        async with registry:
            # uvicorn waits for open streams before it leaves this: the signal itself has to end them.
            with registry.draining_on_signals():
                yield

    return Starlette(
        routes=[
            Route("/", home),
            Route("/pages/{name}", read),
            Route("/pages/{name}", write, methods=["PUT"]),
            Route("/changes", Changes(registry)),
        ],
        exception_handlers={NotificationBusError: refuse},
        lifespan=lifespan,
    )


class Changes:
    """The stream: `GET /changes?page=welcome&page=news`.

    An ASGI application, so that the stream is open before the response begins, which can still be a refusal then, and
    is left when the last byte of the response has been handed over, which is what a draining registry waits for.
    """

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream."""
        names = Request(scope).query_params.getlist("page")
        wanted = SubscriptionFilter(resource_subscriptions=tuple(map(uri_of, names)))
        async with self._registry.listen(uuid4().hex, wanted) as stream:
            response = StreamingResponse(
                events(stream), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
            )
            await response(scope, receive, send)


async def events(stream: SubscriptionStream) -> AsyncGenerator[str]:
    """What goes over the wire. `ready` is also the reader's first reason to look: there is no replay."""
    yield "retry: 500\n"  # after the end of a stream a browser comes back by itself, after so many milliseconds
    while True:
        message: SubscriptionMessage | None = None
        with anyio.move_on_after(KEEP_ALIVE):  # a read that is cancelled loses nothing
            try:
                message = await anext(stream)
            except StopAsyncIteration:
                return
        if message is None:
            yield ":\n\n"
        elif message.is_acknowledgment:
            yield "event: ready\ndata:\n\n"
        else:
            yield f"event: updated\ndata: {message.uri}\n\n"


def main() -> None:
    """Serve until the process is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--bus", default="redis://localhost?channel=pages")
    parser.add_argument("--folder", type=Path, default=Path("pages"))
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    # The limit is for clients that have stopped reading: nothing can be handed over to them.
    uvicorn.run(build(options.bus, options.folder), port=options.port, log_level="warning", timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
