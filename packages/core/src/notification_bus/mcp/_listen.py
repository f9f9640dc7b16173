"""The handler of `subscriptions/listen`, on the registry of this node's streams."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from notification_bus._warnings import FloodLog
from notification_bus.errors import NotificationBusError
from notification_bus.subscriptions import (
    InvalidFilterError,
    SubscriptionFilter,
    SubscriptionLimitError,
    SubscriptionMessage,
    SubscriptionRegistry,
    SubscriptionsClosedError,
)

__all__ = ["Authorize", "ListenHandler"]

Authorize: TypeAlias = Callable[
    [ServerRequestContext[Any, Any], SubscriptionFilter], SubscriptionFilter | Awaitable[SubscriptionFilter]
]
"""Narrows what a caller may watch: gets the request's context and the filter asked for, and returns what of it is allowed.
It cannot widen it. Raising `PermissionError` refuses the stream."""

_NOTIFICATIONS: Final[dict[str, type[Any]]] = {
    "notifications/subscriptions/acknowledged": types.SubscriptionsAcknowledgedNotification,
    "notifications/tools/list_changed": types.ToolListChangedNotification,
    "notifications/prompts/list_changed": types.PromptListChangedNotification,
    "notifications/resources/list_changed": types.ResourceListChangedNotification,
    "notifications/resources/updated": types.ResourceUpdatedNotification,
}

_REFUSED: Final = "this caller may not open this subscription"
"""The same words whatever was asked for: they must not tell which resources there are."""

_UNAVAILABLE: Final = "subscriptions are not available at the moment: try again"
"""What is wrong with the broker is for the server's log; it is nothing that a client could mend, or should know."""


class ListenHandler:
    """Serves a listen stream for each call: acknowledgment first, then what its filter admits, then the final result."""

    def __init__(self, registry: SubscriptionRegistry, authorize: Authorize | None, logger: logging.Logger) -> None:
        self._registry = registry
        self._authorize = authorize
        self._floods = FloodLog(logger)
        self._logger = logger
        self._in_flight: WeakKeyDictionary[Any, set[types.RequestId]] = WeakKeyDictionary()

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        request_id = ctx.request_id
        if request_id is None:
            raise MCPError(types.INVALID_REQUEST, "subscriptions/listen needs the id of a request")
        in_flight = self._in_flight.setdefault(ctx.session, set())
        if request_id in in_flight:
            raise MCPError(
                types.INVALID_REQUEST,
                f"a listen with the id {request_id!r} is open on this connection already: use another id",
            )
        in_flight.add(request_id)
        try:
            return await self._serve(ctx, request_id, params)
        finally:
            in_flight.discard(request_id)

    async def _serve(
        self,
        ctx: ServerRequestContext[Any, Any],
        request_id: types.RequestId,
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        requested = await self._allowed(ctx, _filter_of(params))
        stream = self._registry.listen(request_id, requested)
        try:
            await stream.__aenter__()
        except SubscriptionLimitError as exc:
            code = types.INTERNAL_ERROR if exc.limit == "max_streams" else types.INVALID_PARAMS
            raise MCPError(code, str(exc)) from None
        except SubscriptionsClosedError as exc:
            raise MCPError(types.INTERNAL_ERROR, str(exc)) from None
        except NotificationBusError as exc:
            self._floods.add("listen", f"a listen was refused, since the bus is not ready: {exc}")
            raise MCPError(types.INTERNAL_ERROR, _UNAVAILABLE) from None
        async with _Leaving(stream):
            # The acknowledgment is the first of these, and everything goes out from this one task.
            async for message in stream:
                await ctx.session.send_notification(_notification(message), related_request_id=request_id)
            _release_when_answered(stream.defer_result())
        return types.SubscriptionsListenResult(_meta=stream.meta)

    async def _allowed(self, ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
        if self._authorize is None:
            return requested
        try:
            allowed = self._authorize(ctx, requested)
            if isawaitable(allowed):
                allowed = await allowed
            return requested.intersect(allowed)
        except PermissionError:
            raise MCPError(types.INVALID_REQUEST, _REFUSED) from None
        except Exception:
            self._logger.exception("`authorize` failed; the listen was refused")
            raise MCPError(types.INVALID_REQUEST, _REFUSED) from None


class _Leaving:
    """The leaving half of a stream's context, which was entered where its errors have a meaning."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *exc: Any) -> None:
        await self._stream.__aexit__(*exc)


def _filter_of(params: types.SubscriptionsListenRequestParams) -> SubscriptionFilter:
    try:
        return SubscriptionFilter.from_wire(params.notifications.model_dump(by_alias=True, exclude_none=True))
    except InvalidFilterError as exc:
        raise MCPError(types.INVALID_PARAMS, str(exc)) from None


def _notification(message: SubscriptionMessage) -> Any:
    return _NOTIFICATIONS[message.method].model_validate({"method": message.method, "params": message.params})


def _release_when_answered(release: Callable[[], None]) -> None:
    """Let a drain go on once the final result has been written, which the SDK does in this task after the handler."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        release()
        return
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # a coroutine runs in one
    # The transport's own task sends it on: give that its turns, too.
    task.add_done_callback(lambda _: loop.call_later(_FORWARDING, release))


_FORWARDING: Final = 0.05
"""Seconds that a transport has to send on what it was given."""
