"""The examples of subscriptions, run as a reader would run them: two servers, a client, a change on the other one."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from tests.brokers import Server, free_port
from tests.mcp.replicas import LIMIT, expect

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def anyio_backend() -> str:
    """The servers are processes."""
    return "asyncio"


@contextmanager
def running(*command: str, **environment: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *command], env=os.environ | environment, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def answers(url: str) -> None:
    with anyio.fail_after(LIMIT):
        while True:
            try:
                async with Client(url):
                    return
            except* Exception:
                await anyio.sleep(0.1)


async def until_said(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    with anyio.fail_after(LIMIT):
        while (await anyio.to_thread.run_sync(process.stdout.readline)).strip() != text:
            pass


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
        await until_said(client, "board: empty")
        async with Client(urls[1]) as other:
            await other.call_tool("add_task", {"title": "wash up"})
            await until_said(client, "board: wash up")
            a.terminate()
            await until_said(client, f"{urls[0]} is shutting down")
            await until_said(client, "board: wash up")
            await other.call_tool("add_task", {"title": "dry"})
            await until_said(client, "board: wash up, dry")


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
