"""A client of version 1 of the SDK, for its own environment: `python client.py URL_OF_ONE URL_OF_ANOTHER_REPLICA`.

Prints, as JSON, what the server says that it pushes, and what arrives of the changes made on the other replica.
"""

# pyright: reportDeprecated=false

import json
import sys
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client import streamable_http

# The name of version 1; what checks the types sees version 2.
connect: Any = vars(streamable_http)["streamablehttp_client"]

TASK, OTHER = "board://tasks/1", "board://tasks/2"


async def main(one: str, another: str) -> None:
    seen: list[str] = []

    async def note(message: Any) -> None:
        if (told := getattr(message, "root", None)) is not None:
            seen.append(f"{told.method} {getattr(told.params, 'uri', '')}".strip())

    async with (
        connect(one) as (reading, writing, _),
        ClientSession(reading, writing, message_handler=note) as listener,
        connect(another) as (reading, writing, _),
        ClientSession(reading, writing) as changer,
    ):
        said: Any = await listener.initialize()
        await changer.initialize()
        await listener.subscribe_resource(TASK)
        with anyio.fail_after(20):
            # It hears from when its GET stream is open, which nothing says.
            while not seen:
                await changer.call_tool("change", {"kind": "tools"})
                await anyio.sleep(0.05)
            seen.clear()
            for uri in (OTHER, TASK):
                await changer.call_tool("update", {"uri": uri})
            await changer.call_tool("change", {"kind": "prompts"})
            while "notifications/prompts/list_changed" not in seen:
                await anyio.sleep(0.01)
    answer = {"version": said.protocolVersion, "said": said.capabilities.model_dump(), "seen": seen}
    print(json.dumps(answer))  # noqa: T201  # for the test


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
