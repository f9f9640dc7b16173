"""A client that shows the board, and shows it again whenever it has changed on any replica.

    python examples/subscriptions/client.py http://127.0.0.1:8001/mcp http://127.0.0.1:8002/mcp

Give as many replicas as there are: when one shuts down, or is lost, it goes on with the next.
"""

import sys
from itertools import cycle

import anyio
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError

TASKS = "board://tasks"


async def watch(url: str) -> None:
    """Listen until the stream ends."""
    async with Client(url) as client, client.listen(resource_subscriptions=[TASKS]) as stream:
        # Read after listening, not before: there is no replay, and a change between the two would go unseen.
        await show(client)
        async for _ in stream:
            await show(client)


async def show(client: Client) -> None:
    """Print the tasks on one line."""
    result = await client.read_resource(TASKS)
    texts = [getattr(content, "text", "") for content in result.contents]
    print("board:", ", ".join("".join(texts).splitlines()) or "empty", flush=True)


async def main() -> None:
    """Listen again, for ever."""
    for url in cycle(sys.argv[1:]):
        try:
            await watch(url)
            print(f"{url} is shutting down", flush=True)
        except* (SubscriptionLost, MCPError, OSError) as lost:
            print(f"{url} is lost: {lost.exceptions[0]!r}", flush=True)
            await anyio.sleep(1)


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    anyio.run(main)
