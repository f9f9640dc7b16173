"""The pages of examples/sse: a stream of one replica tells of what was written on the other one."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from tests.brokers import Server, free_port
from tests.examples.processes import Running, responds, running
from tests.mcp.replicas import LIMIT


@pytest.fixture
def anyio_backend() -> str:
    """The servers are processes."""
    return "asyncio"


@asynccontextmanager
async def replicas(bus: str, folder: Path, count: int = 2) -> AsyncGenerator[list[tuple[httpx.AsyncClient, Running]]]:
    """Clients of as many replicas over one folder, and their processes."""
    with ExitStack() as stack:
        ports = [free_port() for _ in range(count)]
        processes = [
            stack.enter_context(
                running("-m", "examples.sse.app", "--port", str(port), "--bus", bus, "--folder", folder)
            )
            for port in ports
        ]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url in urls:
            await responds(url)
        clients = [httpx.AsyncClient(base_url=url, timeout=LIMIT) for url in urls]
        try:
            yield list(zip(clients, processes, strict=True))
        finally:
            for client in clients:
                await client.aclose()


@asynccontextmanager
async def changes(client: httpx.AsyncClient, *pages: str) -> AsyncGenerator[AsyncIterator[tuple[str, str]]]:
    """What a browser's EventSource makes of the stream: the type and the data of each event."""
    async with client.stream("GET", "/changes", params={"page": pages}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")

        async def read() -> AsyncGenerator[tuple[str, str]]:
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, value = line.partition(":")
                if name:
                    fields[name] = value.strip()
                elif "data" in fields:
                    yield fields.get("event", "message"), fields["data"]
                    fields.clear()

        events = read()
        try:
            yield events
        finally:
            await events.aclose()


async def after(events: AsyncIterator[tuple[str, str]]) -> tuple[str, str] | None:
    """The next event, or `None` at the end of the stream."""
    with anyio.fail_after(LIMIT):
        return await anext(events, None)


async def test_a_stream_of_one_replica_tells_of_what_was_written_on_the_other(
    redis_server: Server, tmp_path: Path
) -> None:
    """Of the pages that it watches; and what is read then, on its own replica, is the new text."""
    async with replicas(f"{redis_server.url}?channel=test-example-sse", tmp_path) as ((a, _), (b, _)):
        assert "EventSource" in (await a.get("/")).text
        assert (await a.get("/pages/welcome")).status_code == 404
        async with changes(a, "welcome", "news") as events, changes(b, "news") as others:
            assert await after(events) == ("ready", "")
            assert await after(others) == ("ready", "")
            assert (await b.put("/pages/elsewhere", content="nobody looks")).status_code == 204
            assert (await b.put("/pages/welcome", content="hello")).status_code == 204
            assert await after(events) == ("updated", "/pages/welcome")
            assert (await a.get("/pages/welcome")).text == "hello"
            assert (await a.put("/pages/news", content="none")).status_code == 204
            assert await after(events) == ("updated", "/pages/news")
            assert await after(others) == ("updated", "/pages/news")
            assert (await b.get("/pages/news")).text == "none"
        assert (await a.put("/pages/..%5Coutside", content="")).status_code == 404


async def test_a_server_that_is_told_to_stop_ends_its_streams_and_then_itself(
    redis_server: Server, tmp_path: Path
) -> None:
    """A stream that uvicorn broke, after its own patience, would raise here; this one ends as a whole answer does."""
    async with (
        replicas(f"{redis_server.url}?channel=test-example-sse-stop", tmp_path, 1) as [(client, server)],
        changes(client, "welcome") as events,
    ):
        assert await after(events) == ("ready", "")
        server.process.terminate()
        assert await after(events) is None
        await server.ended()


async def test_the_pages_are_served_while_the_broker_is_down_and_the_streams_refused(tmp_path: Path) -> None:
    """A write has happened whatever becomes of its notification; a stream that would stay silent is not opened."""
    bus = f"redis://127.0.0.1:{free_port()}?channel=test-example-sse-down"
    async with replicas(bus, tmp_path, 1) as [(client, _)]:
        assert (await client.put("/pages/welcome", content="hello")).status_code == 204
        assert (await client.get("/pages/welcome")).text == "hello"
        refused = await client.get("/changes", params={"page": "welcome"})
        assert refused.status_code == 503
        # Why is in the server's log: the address of a broker is nothing for a browser.
        assert "redis" not in refused.text
        many = await client.get("/changes", params={"page": [str(number) for number in range(1001)]})
        assert many.status_code == 400
        assert "at most 1000" in many.text
