"""What a client of replica A hears of changes made on replica B."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, TypeAlias

import anyio
from mcp import Client
from mcp.client.subscriptions import ServerEvent, Subscription
from mcp.server.subscriptions import ResourceUpdated

from notification_bus.cli._command import CommandError
from notification_bus.cli.demo._board import CHANGES, SENTINEL, Board, Change
from notification_bus.cli.demo._stage import Tell

__all__ = ["Heard", "Hearing", "measure"]

Heard: TypeAlias = "float | None"
"""Seconds from the call of the tool to the notification at the client; `None` where it never came."""

_URIS: Final = tuple(change.event.uri for change in (*CHANGES, SENTINEL) if isinstance(change.event, ResourceUpdated))


@dataclass(frozen=True, slots=True)
class Hearing:
    """What was heard of the changes on B, and of A's own."""

    on_a: dict[Change, Heard]
    on_b: dict[Change, Heard]
    """What a client of B itself heard: where that is nothing, nothing was published."""
    sentinel: Heard
    """What the client of A heard of a change made on A afterwards: where that is nothing, its stream was dead."""


class _Ear:
    """A listen stream, and when each event first came on it."""

    def __init__(self, stream: Subscription) -> None:
        self._stream = stream
        self._times: dict[ServerEvent, float] = {}
        self._news = anyio.Event()

    async def listen(self) -> None:
        async for event in self._stream:
            self._times.setdefault(event, perf_counter())
            self._news.set()
            self._news = anyio.Event()

    async def heard(self, event: ServerEvent, since: float, limit: float) -> Heard:
        """How long after `since` the event came; waits for it until `limit` seconds from now."""
        with anyio.move_on_after(limit):
            while event not in self._times:
                await self._news.wait()
        return self._times[event] - since if event in self._times else None


async def measure(a: str | Board, b: str | Board, *, patience: float, limit: float, tell: Tell) -> Hearing:
    """Listen on A, change everything on B, and see.

    Args:
        a: The URL of a replica, or a server in this process.
        b: Another.
        patience: Seconds that a client of A waits for what was changed on B, after A's own change has arrived.
        limit: Seconds that anything else may take.
        tell: Takes what is being done.
    """
    async with AsyncExitStack() as stack:
        on_a, on_b = [await stack.enter_async_context(Client(server)) for server in (a, b)]
        for client in (on_a, on_b):
            await _call(client, "list_tasks", {}, limit)  # the first call of a tool also asks for its schema
        ears = [
            _Ear(
                await stack.enter_async_context(
                    client.listen(
                        tools_list_changed=True,
                        prompts_list_changed=True,
                        resources_list_changed=True,
                        resource_subscriptions=_URIS,
                    )
                )
            )
            for client in (on_a, on_b)
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for ear in ears:
            tasks.start_soon(ear.listen)
        hearing = await _change_everything(on_a, on_b, *ears, patience=patience, limit=limit, tell=tell)
        tasks.cancel_scope.cancel()
    return hearing


async def _change_everything(
    on_a: Client, on_b: Client, ear_a: _Ear, ear_b: _Ear, *, patience: float, limit: float, tell: Tell
) -> Hearing:
    starts: dict[Change, float] = {}
    heard_on_b: dict[Change, Heard] = {}
    tell("calling tools on B, listening on A")
    for change in CHANGES:
        starts[change] = perf_counter()
        await _call(on_b, change.tool, change.arguments, limit)
        heard_on_b[change] = await ear_b.heard(change.event, starts[change], limit)
    start = perf_counter()
    await _call(on_a, SENTINEL.tool, SENTINEL.arguments, limit)
    sentinel = await ear_a.heard(SENTINEL.event, start, limit)
    tell("waiting for what A has not heard of")
    deadline = perf_counter() + patience
    heard_on_a = {
        change: await ear_a.heard(change.event, starts[change], max(0.0, deadline - perf_counter()))
        for change in CHANGES
    }
    return Hearing(heard_on_a, heard_on_b, sentinel)


async def _call(client: Client, tool: str, arguments: dict[str, Any], limit: float) -> None:
    with anyio.move_on_after(limit):
        result = await client.call_tool(tool, arguments)
        if result.is_error:
            raise CommandError(f"the tool {tool!r} of the demo's own server failed: {result.content}")
        return
    raise CommandError(f"the tool {tool!r} of the demo's own server has not answered within {limit:g} s")
