"""A client that prints every note, and prints again what has changed: it reads what it is told of, and nothing else.

    python -m examples.updates.watch http://127.0.0.1:8001/mcp

Ends when the server does; `examples/subscriptions/client.py` shows how to go on with another replica.
"""

import sys

import anyio
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

NOT_FOUND = INVALID_PARAMS
"""How a server says that a resource is not there."""


class Watch:
    """What one client has seen of the resources of a server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: dict[str, str] = {}

    async def run(self) -> None:
        """Print what changes until the server ends the stream."""
        while not await self._listen(await self._list()):
            pass

    async def _listen(self, uris: list[str]) -> bool:
        """Watch these resources; whether the stream has ended, or else the list of them is another by now."""
        async with self._client.listen(resources_list_changed=True, resource_subscriptions=uris) as stream:
            # Read after listening, not before: there is no replay, and a change between the two would go unseen.
            if await self._list() != uris:
                return False
            for uri in {**self._seen, **dict.fromkeys(uris)}:
                await self._show(uri)
            async for event in stream:
                if not isinstance(event, ResourceUpdated):
                    return False  # a filter is fixed once it is acknowledged: a new resource takes a new stream
                await self._show(event.uri)
        return True

    async def _list(self) -> list[str]:
        return [resource.uri for resource in (await self._client.list_resources()).resources]

    async def _show(self, uri: str) -> None:
        """Read a resource, and print it if that is news. To be told of a change is no more than a reason to look."""
        try:
            result = await self._client.read_resource(uri)
        except MCPError as error:
            if error.code != NOT_FOUND:
                raise
            if self._seen.pop(uri, None) is not None:
                print(f"{uri} is gone", flush=True)
            return
        text = "".join(getattr(content, "text", "") for content in result.contents)
        if self._seen.get(uri) != text:
            self._seen[uri] = text
            print(f"{uri} = {text!r}", flush=True)


async def main(url: str) -> None:
    """Watch one server."""
    async with Client(url) as client:
        await Watch(client).run()
    print(f"{url} is shutting down", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    anyio.run(main, sys.argv[1])
