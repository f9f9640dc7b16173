"""The examples of subscriptions, run as a reader would run them: two servers, a client, a change on the other one."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from tests.brokers import Server, free_port
from tests.examples.processes import EXAMPLES, answers, running
from tests.mcp.replicas import expect


@pytest.fixture
def anyio_backend() -> str:
    """The servers are processes."""
    return "asyncio"


async def test_the_board_is_shown_again_and_survives_the_end_of_a_replica(redis_server: Server, tmp_path: Path) -> None:
    """The client goes on with the other one."""
    script = str(EXAMPLES / "subscriptions" / "server.py")
    bus = f"{redis_server.url}?channel=test-example"
    with ExitStack() as stack:
        ports = [free_port() for _ in range(2)]
        a, _ = [
            stack.enter_context(
                running(script, "--port", str(port), "--bus", bus, "--board", str(tmp_path / "board.txt"))
            )
            for port in ports
        ]
        urls = [f"http://127.0.0.1:{port}/mcp" for port in ports]
        for url in urls:
            await answers(url)
        client = stack.enter_context(running(str(EXAMPLES / "subscriptions" / "client.py"), *urls))
        await client.said("board: empty")
        async with Client(urls[1]) as other:
            await other.call_tool("add_task", {"title": "wash up"})
            await client.said("board: wash up")
            a.process.terminate()
            await client.said(f"{urls[0]} is shutting down")
            await client.said("board: wash up")
            await other.call_tool("add_task", {"title": "dry"})
            await client.said("board: wash up, dry")


async def test_the_board_of_fastmcp(redis_server: Server) -> None:
    """With a change of a resource and one of a list."""
    port = free_port()
    environment = {"PORT": str(port), "BUS": f"{redis_server.url}?channel=test-example-fastmcp"}
    with running(str(EXAMPLES / "fastmcp_board" / "server.py"), **environment):
        url = f"http://127.0.0.1:{port}/mcp"
        await answers(url)
        async with (
            Client(url) as client,
            client.listen(tools_list_changed=True, resource_subscriptions=["board://tasks"]) as stream,
        ):
            await client.call_tool("add_task", {"title": "wash up"})
            await expect(stream, ResourceUpdated("board://tasks"))
            await client.call_tool("freeze", {})
            await expect(stream, ToolsListChanged())
            assert {tool.name for tool in (await client.list_tools()).tools} == {"freeze"}
