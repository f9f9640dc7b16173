"""The notes of examples/updates: a client of one replica reads again what was changed on the other one."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated

from tests.brokers import Server, free_port
from tests.examples.processes import Running, answers, running
from tests.mcp.replicas import expect


@pytest.fixture
def anyio_backend() -> str:
    """The servers are processes."""
    return "asyncio"


class Replicas(NamedTuple):
    a: str
    b: str
    process_a: Running


@asynccontextmanager
async def replicas(bus: str, notes: Path) -> AsyncGenerator[Replicas]:
    with ExitStack() as stack:
        ports = [free_port() for _ in range(2)]
        processes = [
            stack.enter_context(
                running("-m", "examples.updates.server", "--port", str(port), "--bus", bus, "--notes", notes)
            )
            for port in ports
        ]
        urls = [f"http://127.0.0.1:{port}/mcp" for port in ports]
        for url in urls:
            await answers(url)
        yield Replicas(urls[0], urls[1], processes[0])


async def test_the_client_of_one_replica_reads_what_the_other_one_changed(redis_server: Server, tmp_path: Path) -> None:
    """Created, edited and deleted on B; what the client prints it has read from A."""
    async with replicas(f"{redis_server.url}?channel=test-example-updates", tmp_path / "notes.sqlite") as (
        a,
        b,
        process,
    ):
        with running("-m", "examples.updates.watch", a) as client:
            await client.said("notes://index = ''")
            async with Client(b) as other:
                await other.call_tool("create_note", {"name": "shopping", "text": "milk"})
                await client.said("note://shopping = 'milk'", "notes://index = 'shopping: milk'")
                await other.call_tool("edit_note", {"name": "shopping", "text": "milk, bread"})
                await client.said("note://shopping = 'milk, bread'", "notes://index = 'shopping: milk, bread'")
                await other.call_tool("delete_note", {"name": "shopping"})
                await client.said("note://shopping is gone", "notes://index = ''")
                # A name that the client has seen go comes back as any new one does.
                await other.call_tool("create_note", {"name": "shopping", "text": "beer"})
                await client.said("note://shopping = 'beer'")
            process.process.terminate()
            await client.said(f"{a} is shutting down")
            assert await client.ended() == 0


async def test_each_change_is_told_as_what_it_is_and_a_refused_one_not_at_all(
    redis_server: Server, tmp_path: Path
) -> None:
    """The notifications themselves: three for a note that appears or goes, two for an edit, none for a failure."""
    note, index = ResourceUpdated("note://a"), ResourceUpdated("notes://index")
    async with (
        replicas(f"{redis_server.url}?channel=test-example-updates-kinds", tmp_path / "notes.sqlite") as (a, b, _),
        Client(a) as client,
        Client(b) as other,
        client.listen(resources_list_changed=True, resource_subscriptions=[note.uri, index.uri]) as stream,
    ):
        await other.call_tool("create_note", {"name": "a", "text": "1"})
        assert len(await expect(stream, note, index, ResourcesListChanged())) == 3
        assert [resource.uri for resource in (await client.list_resources()).resources] == [index.uri, note.uri]
        for tool, arguments in (
            ("create_note", {"name": "a", "text": "2"}),
            ("edit_note", {"name": "b", "text": "2"}),
            ("delete_note", {"name": "b"}),
            ("create_note", {"name": "NOT/SUCH", "text": "2"}),
        ):
            assert (await other.call_tool(tool, arguments)).is_error, tool
        await other.call_tool("edit_note", {"name": "a", "text": "3"})
        # Had one of the four told of anything, that would have come before these, and the edit has no list to tell of.
        assert await expect(stream, note, index) == [note, index]
        await other.call_tool("delete_note", {"name": "a"})
        assert await expect(stream, note, index, ResourcesListChanged()) == [note, index, ResourcesListChanged()]
        assert [resource.uri for resource in (await client.list_resources()).resources] == [index.uri]
