"""The handler of `subscriptions/listen`, on the registry of this node's streams."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from notification_bus._floodlog import FloodLog
from notification_bus._loops import BackgroundTask
from notification_bus.mcp._authorize import Authorizer
from notification_bus.mcp._errors import as_protocol_errors
from notification_bus.mcp._messages import to_sdk
from notification_bus.subscriptions import Capabilities, SubscriptionFilter, SubscriptionRegistry, SubscriptionStream

__all__ = ["ListenHandler"]

_FORWARDING: Final = 0.05
"""Seconds that a transport has to send on what it was given."""


class ListenHandler:
    """Serves a listen stream for each call: acknowledgment first, then what its filter admits, then the final result.

    Args:
        registry: Holds the streams.
        can_push: What the server advertises to a client of a protocol version.
        authorizer: Narrows further, per caller.
        logger: For what the client is not told.
        arriving: Called for each listen, before its stream is opened.
        end_empty: Whether a stream ends right after its acknowledgment where nothing was accepted.
    """

    def __init__(
        self,
        registry: SubscriptionRegistry,
        can_push: Callable[[str], Capabilities],
        authorizer: Authorizer,
        logger: logging.Logger,
        arriving: Callable[[], None],
        *,
        end_empty: bool,
    ) -> None:
        self._end_empty = end_empty
        self._arriving = arriving
        self._registry = registry
        self._can_push = can_push
        self._authorizer = authorizer
        self._floods = FloodLog(logger)
        self._in_flight: WeakKeyDictionary[object, set[types.RequestId]] = WeakKeyDictionary()

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        request_id = ctx.request_id
        if request_id is None:
            raise MCPError(types.INVALID_REQUEST, "subscriptions/listen needs the id of a request")
        self._arriving()
        with self._only_one(ctx, request_id):
            async with AsyncExitStack() as stack:
                stream = await self._open(stack, ctx, request_id, params)
                if self._end_empty and stream.accepted.is_empty and not stream.accepted.extra:
                    stream.end()
                # The acknowledgment is the first of these, and everything goes out from this one task.
                async for message in stream:
                    await ctx.session.send_notification(to_sdk(message), related_request_id=request_id)
                _once_answered(stream.defer_result())
            return types.SubscriptionsListenResult(_meta=stream.meta)

    @contextmanager
    def _only_one(self, ctx: ServerRequestContext[Any, Any], request_id: types.RequestId) -> Generator[None]:
        """Refuse the id of a stream that is open on the same connection: neither could be cancelled or told apart."""
        connection = _connection_of(ctx)
        in_flight: set[types.RequestId] = set() if connection is None else self._in_flight.setdefault(connection, set())
        if request_id in in_flight:
            raise MCPError(
                types.INVALID_REQUEST,
                f"a listen with the id {request_id!r:.100} is open on this connection already: use another id",
            )
        in_flight.add(request_id)
        try:
            yield
        finally:
            in_flight.discard(request_id)

    async def _open(
        self,
        stack: AsyncExitStack,
        ctx: ServerRequestContext[Any, Any],
        request_id: types.RequestId,
        params: types.SubscriptionsListenRequestParams,
    ) -> SubscriptionStream:
        with as_protocol_errors(self._floods):
            # The limits come before the hook, which may have to ask a database about each URI.
            requested = self._registry.narrow(_filter_of(ctx, params).narrow(self._can_push(ctx.protocol_version)))
            allowed = await self._authorizer.allowed(ctx, requested)
            return await stack.enter_async_context(self._registry.listen(request_id, allowed))


def _filter_of(
    ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
) -> SubscriptionFilter:
    # As it was sent: the model of the SDK has turned `"yes"` into True, and a copy of 100,000 URIs costs its time.
    raw = ctx.params.get("notifications") if isinstance(ctx.params, Mapping) else None
    return SubscriptionFilter.from_wire(
        params.notifications.model_dump(by_alias=True, exclude_none=True) if raw is None else raw
    )


def _connection_of(ctx: ServerRequestContext[Any, Any]) -> object | None:
    """What stands for the connection of a request; `None` where each request has a connection of its own (HTTP).

    The context has no word for it: the session is made anew for each request. The channel for unsolicited messages is
    one for each connection over stdio. Where another version of the SDK hides it, nothing is refused.
    """
    channel = getattr(getattr(ctx.session, "_connection", None), "outbound", None)
    # Over HTTP all requests share one that goes nowhere.
    return None if channel is None or type(channel).__name__ == "_NoChannelOutbound" else channel


def _once_answered(release: Callable[[], None]) -> None:
    """Let a drain go on when the final result has been written, which the SDK does after the handler, in its task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        BackgroundTask(partial(_release_later, release), "notification-bus: release of a drained stream")
    else:
        # The transport's own task sends it on: give that its turns, too.
        loop = task.get_loop()
        task.add_done_callback(lambda _: loop.call_later(_FORWARDING, release))


async def _release_later(release: Callable[[], None]) -> None:
    await anyio.sleep(_FORWARDING)
    release()
