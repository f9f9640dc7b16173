"""The handler of `subscriptions/listen`, and the hook that decides who may watch what."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from notification_bus._floodlog import FloodLog
from notification_bus._loops import BackgroundTask
from notification_bus.mcp._convert import as_protocol_errors, connection_of, to_sdk
from notification_bus.mcp._registry import ServerRegistry
from notification_bus.mcp._servers import can_push
from notification_bus.subscriptions import Capabilities, SubscriptionFilter

__all__ = ["Authorize", "Authorizer", "ListenHandler"]

Authorize: TypeAlias = Callable[
    [ServerRequestContext[Any, Any], SubscriptionFilter], SubscriptionFilter | Awaitable[SubscriptionFilter]
]
"""Narrows what a caller may watch: gets the request's context and what was asked for, as far as the server can push it,
and returns what of it is allowed. It cannot widen it. Whatever it raises refuses the stream."""

_REFUSED: Final = "this caller may not open this subscription"
"""Always the same words: they must not reveal which resources exist."""

_FORWARDING: Final = 0.05
"""Seconds that a transport has to send on what it was given."""


class Authorizer:
    """Asks the user's hook.

    Args:
        authorize: The hook; `None` allows everything.
        logger: For what the client is not told.
    """

    def __init__(self, authorize: Authorize | None, logger: logging.Logger) -> None:
        self._authorize = authorize
        self._logger = logger

    async def allowed(self, ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
        """Return what of `requested` its caller may watch.

        Raises:
            MCPError: The hook refuses, or fails.
        """
        if self._authorize is None:
            return requested
        try:
            allowed = self._authorize(ctx, requested)
            if isawaitable(allowed):
                allowed = await allowed
            return requested.intersect(allowed)
        except PermissionError:
            raise self.refusal() from None
        except Exception:
            self._logger.exception("`authorize` failed; the subscription was refused")
            raise self.refusal() from None

    @staticmethod
    def refusal() -> MCPError:
        """Return what a caller is told that may not watch."""
        return MCPError(types.INVALID_REQUEST, _REFUSED)


class ListenHandler:
    """Serves one listen stream a call: the acknowledgment, then what its filter admits, then the final result.

    Args:
        server: Says what can be pushed, with `option`.
        option: What the user lets the server push.
        registry: Holds the streams.
        authorizer: Narrows further, per caller.
        floods: For what the client is not told.
    """

    def __init__(
        self,
        server: Server[Any],
        option: Capabilities,
        registry: ServerRegistry,
        authorizer: Authorizer,
        floods: FloodLog,
    ) -> None:
        self._can_push = partial(can_push, server, option)
        self._registry = registry
        self._authorizer = authorizer
        self._floods = floods
        self._in_flight: WeakKeyDictionary[object, set[types.RequestId]] = WeakKeyDictionary()

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        request_id = ctx.request_id
        if request_id is None:
            raise MCPError(types.INVALID_REQUEST, "subscriptions/listen needs the id of a request")
        self._registry.renew_signals()
        with self._only_one(ctx, request_id):
            async with AsyncExitStack() as stack:
                with as_protocol_errors(self._floods):
                    opening = self._registry.listen(
                        request_id,
                        _filter_of(ctx, params),
                        capabilities=self._can_push(ctx.protocol_version),
                        authorize=partial(self._authorizer.allowed, ctx),
                    )
                    stream = await stack.enter_async_context(opening)
                # The acknowledgment is the first of these, and everything is sent by this one task.
                async for message in stream:
                    await ctx.session.send_notification(to_sdk(message), related_request_id=request_id)
                _once_answered(stream.defer_result())
            return types.SubscriptionsListenResult(_meta=stream.meta)

    @contextmanager
    def _only_one(self, ctx: ServerRequestContext[Any, Any], request_id: types.RequestId) -> Generator[None]:
        """Refuse the id of a stream that is open on the same connection: neither could be cancelled or told apart."""
        connection = connection_of(ctx)
        # Over HTTP each request has a connection of its own.
        in_flight: set[types.RequestId] = (
            set() if connection is None else self._in_flight.setdefault(connection.outbound, set())
        )
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


def _filter_of(
    ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
) -> SubscriptionFilter:
    # As it was sent: the SDK's model has turned `"yes"` into True, and a copy of 100,000 URIs takes its time.
    raw = ctx.params.get("notifications") if isinstance(ctx.params, Mapping) else None
    return SubscriptionFilter.from_wire(
        params.notifications.model_dump(by_alias=True, exclude_none=True) if raw is None else raw
    )


def _once_answered(release: Callable[[], None]) -> None:
    """Let a drain go on when the final result has been written, which the SDK does after the handler, in its task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        BackgroundTask(partial(_release_later, release), "notification-bus: release of a drained stream")
    else:
        # The transport's own task sends it on and needs its turns, too.
        loop = task.get_loop()
        task.add_done_callback(lambda _: loop.call_later(_FORWARDING, release))


async def _release_later(release: Callable[[], None]) -> None:
    await anyio.sleep(_FORWARDING)
    release()
