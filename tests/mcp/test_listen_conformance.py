"""The official conformance suite, through a proxy that gives each connection to the next of two replicas on Redis."""

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import cycle
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream

from tests.brokers import Server
from tests.mcp.conformance import KINDS
from tests.mcp.official import Suite
from tests.mcp.replicas import ROOT

pytestmark = pytest.mark.timeout(300)  # the first of them installs the suite


@pytest.fixture
def anyio_backend() -> str:
    """The proxy is no subject of this."""
    return "asyncio"


@contextmanager
def replica(kind: str, bus_url: str) -> Generator[int]:
    """A server as a process; its port."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mcp.conformance", kind, bus_url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


@asynccontextmanager
async def round_robin(ports: Sequence[int]) -> AsyncGenerator[int]:
    """One connection, one replica; the port of the proxy."""
    turns = cycle(ports)

    async def forward(source: ByteReceiveStream, target: ByteSendStream) -> None:
        try:
            async for data in source:
                await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            await target.aclose()

    async def connected(client: SocketStream) -> None:
        async with (
            client,
            await anyio.connect_tcp("127.0.0.1", next(turns)) as server,
            anyio.create_task_group() as both,
        ):
            both.start_soon(forward, client, server)
            both.start_soon(forward, server, client)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, connected)
        port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610  # of anyio
        yield port
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_official_suite_has_nothing_to_say(
    kind: str, redis_server: Server, conformance: Suite, tmp_path: Path
) -> None:
    """Also no warning: its exit code would not show one, and with the SDK's own bus there are two of this kind."""
    bus_url = f"{redis_server.url}?channel=test-conformance-{kind}"
    with ExitStack() as stack:
        ports = [stack.enter_context(replica(kind, bus_url)) for _ in range(2)]
        async with round_robin(ports) as port:
            results = await conformance.check_server(
                f"http://127.0.0.1:{port}/mcp", "server-stateless", "2026-07-28", tmp_path
            )
    bad = [
        f"{check['status']} {check['id']}: {check.get('errorMessage')}"
        for check in results
        if check["status"] != "SUCCESS"
    ]
    assert not bad
    checked = Counter(check["id"] for check in results)
    print(f"{kind}: {len(results)} checks")  # noqa: T201
    for list_name in ("tools", "prompts"):
        assert checked[f"sep-2575-server-sends-{list_name}-list-changed-on-subscription"]
