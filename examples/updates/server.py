"""Notes as resources: what a tool changes on one replica, the clients of every replica are told to read again.

    python -m examples.updates.server --port 8001
    python -m examples.updates.server --port 8002
    python -m examples.updates.watch http://127.0.0.1:8001/mcp

Then call `create_note`, `edit_note` and `delete_note` on port 8002, and look at what the third command prints.
Needs `pip install "notification-bus[mcp]" notification-bus-redis uvicorn`, and a Redis; `--bus` names it.

Three habits make it right:

* The change is committed first and told of afterwards: whoever is told, reads, and must find it.
* What did not change is not told of: a tool that fails has published nothing.
* What a list holds is read from what the replicas share. A resource added to one replica's own list (`add_resource`)
  would be announced everywhere and found in one place.
"""

import argparse
from pathlib import Path
from typing import Annotated, TypeAlias

from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import Resource
from pydantic import Field

from examples.updates.store import INDEX, NAME, Notes, uri_of
from notification_bus import open_bus
from notification_bus.mcp import McpSubscriptions
from notification_bus.subscriptions import Capabilities

Name: TypeAlias = Annotated[str, Field(pattern=NAME)]


class NotesServer(MCPServer[dict[str, object]]):
    """Lists the notes of the store, whichever replica created them."""

    def __init__(self, notes: Notes, subscriptions: McpSubscriptions) -> None:
        super().__init__("notes", subscriptions=subscriptions, lifespan=subscriptions.lifespan, log_level="WARNING")
        self._notes = notes

    async def list_resources(self) -> list[Resource]:
        """The index, and every note."""
        notes = await run_sync(self._notes.read_all)
        return [*await super().list_resources(), *(Resource(uri=uri_of(name), name=name) for name in notes)]


def build(bus_url: str, notes: Notes) -> NotesServer:
    """The server, over the notes that its replicas share."""
    subscriptions = McpSubscriptions(
        open_bus(bus_url), capabilities=Capabilities(tools_list_changed=False, prompts_list_changed=False)
    )
    mcp = NotesServer(notes, subscriptions)

    @mcp.resource(INDEX, name="index")
    async def read_index() -> str:
        texts = await run_sync(notes.read_all)
        return "\n".join(f"{name}: {text}" for name, text in texts.items())

    @mcp.resource("note://{name}")
    async def read_note(name: str) -> str:
        text = await run_sync(notes.read, name)
        if text is None:
            raise ResourceNotFoundError(f"there is no note {name!r}")
        return text

    async def tell(ctx: Context, name: str, *, listed: bool) -> None:
        """Name everything that reads otherwise now: the note, the collection that shows it, and the list of both."""
        await ctx.notify_resource_updated(uri_of(name))
        await ctx.notify_resource_updated(INDEX)
        if listed:
            await ctx.notify_resources_changed()

    @mcp.tool()
    async def create_note(name: Name, text: str, ctx: Context) -> str:
        if not await run_sync(notes.create, name, text):
            raise ToolError(f"there is a note {name!r} already: edit it")
        await tell(ctx, name, listed=True)
        return f"created {uri_of(name)}"

    @mcp.tool()
    async def edit_note(name: Name, text: str, ctx: Context) -> str:
        if not await run_sync(notes.edit, name, text):
            raise ToolError(f"there is no note {name!r}: create it")
        await tell(ctx, name, listed=False)
        return f"edited {uri_of(name)}"

    @mcp.tool()
    async def delete_note(name: Name, ctx: Context) -> str:
        if not await run_sync(notes.delete, name):
            raise ToolError(f"there is no note {name!r}")
        # The note is told of, too: who watches it reads, and finds that it is gone.
        await tell(ctx, name, listed=True)
        return f"deleted {uri_of(name)}"

    _ = read_index, read_note, create_note, edit_note, delete_note
    return mcp


def main() -> None:
    """Serve until the process is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--bus", default="redis://localhost?channel=notes")
    parser.add_argument("--notes", type=Path, default=Path("notes.sqlite"))
    options = parser.parse_args()
    build(options.bus, Notes(options.notes)).run(transport="streamable-http", port=options.port)


if __name__ == "__main__":
    main()
