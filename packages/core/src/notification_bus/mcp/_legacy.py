"""Clients of the revisions before 2026-07-28, which open no listen stream: the registry's streams, sent to each."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from notification_bus._backoff import Backoff
from notification_bus._floodlog import FloodLog
from notification_bus._loops import BackgroundTask
from notification_bus.errors import BusClosedError, BusNotReadyError, NotificationBusError
from notification_bus.mcp._convert import as_protocol_errors, connection_of, to_sdk
from notification_bus.mcp._listen import Authorizer
from notification_bus.mcp._registry import ServerRegistry
from notification_bus.mcp._servers import can_push, with_flags
from notification_bus.subscriptions import (
    Capabilities,
    SubscriptionFilter,
    SubscriptionMessage,
    SubscriptionsClosedError,
    SubscriptionStats,
    SubscriptionStream,
)
from notification_bus.subscriptions._pump import LONGEST_PAUSE

__all__ = ["LegacyClients"]

_logger = logging.getLogger("notification_bus.mcp")

_SUBSCRIBE: Final = "resources/subscribe"
_UNSUBSCRIBE: Final = "resources/unsubscribe"

_LISTS: Final = SubscriptionFilter(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
"""What every such client is told of. It never asks for it: the server's capabilities say so."""

_NOTHING: Final = Capabilities(
    tools_list_changed=False, prompts_list_changed=False, resources_list_changed=False, resources_subscribe=False
)
"""What can be pushed to a client that nothing but answers can be sent to."""

_SHUTTING_DOWN: Final = "this server is shutting down and takes no subscription any more"


class LegacyClients:
    """A middleware of the server that serves these clients from `notifications/initialized` until they are gone.

    A client that cannot be written to without a request (stateless HTTP) is told that nothing is pushed, and
    `resources/subscribe` is an unknown method there.

    Args:
        server: Gets the middleware and two handlers. Handlers of its own are called, too, and may refuse. Says what can
            be pushed, with `option`.
        option: What the user lets the server push.
        registry: Holds the streams.
        authorizer: Narrows further, per caller: for the lists at the beginning, for each resource when it is asked for.
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
        self._clients: dict[Connection, _Client] = {}
        self._theirs = {method: server.get_request_handler(method) for method in (_SUBSCRIBE, _UNSUBSCRIBE)}
        server.add_request_handler(_SUBSCRIBE, types.SubscribeRequestParams, self._subscribe)
        server.add_request_handler(_UNSUBSCRIBE, types.UnsubscribeRequestParams, self._unsubscribe)
        server.middleware.append(self)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize" and ctx.request_id is not None:
            return self._greeted(ctx, await call_next(ctx))
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized" and (client := self._client_of(ctx)) is not None:
            await self._begin(ctx, client)
        return result

    def _greeted(self, ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> HandlerResult:
        """Take the client on, and have the answer say what it will be told of."""
        self._registry.renew_signals()
        can = _NOTHING
        connection = connection_of(ctx)
        if connection is not None:
            can = self._can_push()
            if connection not in self._clients:
                self._clients[connection] = _Client(self._registry, can, self._authorizer, self._floods)
                connection.exit_stack.push_async_callback(self._dismiss, connection)
        if result is None:
            return None
        subscribe = can.resources_subscribe or self._theirs[_SUBSCRIBE] is not None
        flags = {
            "tools": {"listChanged": can.tools_list_changed},
            "prompts": {"listChanged": can.prompts_list_changed},
            "resources": {"listChanged": can.resources_list_changed, "subscribe": subscribe},
        }
        return with_flags(result, flags)

    async def _dismiss(self, connection: Connection) -> None:
        await self._clients.pop(connection).aclose()

    async def _begin(self, ctx: ServerRequestContext[Any, Any], client: "_Client") -> None:
        # One after the other, and begun only when it has: a request may be cancelled while `authorize` is asked.
        async with client.beginning:
            if client.begun:
                return
            since = self._registry.stats()
            lists = _LISTS.narrow(client.can)
            try:
                lists = await self._authorizer.allowed(ctx, lists)
            except MCPError:
                lists = SubscriptionFilter()  # may still ask for resources, and is refused or not
            client.start(ctx, lists, since)

    async def _subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> HandlerResult:
        client, uri = self._client_of(ctx), _uri_of(ctx, params)
        if client is None:
            return await self._ask_theirs(ctx, params)
        added = await self._watch(ctx, client, uri)
        try:
            return await self._ask_theirs(ctx, params)
        except BaseException:
            if added:
                client.unwatch(uri)
            raise

    async def _watch(self, ctx: ServerRequestContext[Any, Any], client: "_Client", uri: str) -> bool:
        """Add a resource to the client's stream; return whether it is new there."""
        with as_protocol_errors(self._floods):
            asked = self._registry.narrow(SubscriptionFilter(resource_subscriptions=(uri,)), client.can)
            if asked.is_empty:
                if self._theirs[_SUBSCRIBE] is not None:
                    return False  # served by the server itself, as it says
                raise _no_method(_SUBSCRIBE)
            if (await self._authorizer.allowed(ctx, asked)).is_empty:
                raise self._authorizer.refusal()
            await self._begin(ctx, client)
            return await client.watch(uri)

    async def _unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> HandlerResult:
        result = await self._ask_theirs(ctx, params)
        client = self._client_of(ctx)
        if client is not None:
            client.unwatch(_uri_of(ctx, params))
        return result

    async def _ask_theirs(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.SubscribeRequestParams | types.UnsubscribeRequestParams,
    ) -> HandlerResult:
        theirs = self._theirs.get(ctx.method)
        if theirs is not None:
            return await theirs.handler(ctx, params)
        if self._client_of(ctx) is None:
            raise _no_method(ctx.method)
        return types.EmptyResult()

    def _client_of(self, ctx: ServerRequestContext[Any, Any]) -> "_Client | None":
        connection = connection_of(ctx)
        return None if connection is None else self._clients.get(connection)


class _Client:
    """One client and its stream. The client does not know the stream: it is sent changes, and names resources singly.

    Args:
        registry: Holds the stream.
        can: What can be pushed to the client.
        authorizer: See `LegacyClients`.
        floods: See `LegacyClients`.
    """

    def __init__(self, registry: ServerRegistry, can: Capabilities, authorizer: Authorizer, floods: FloodLog) -> None:
        self._registry = registry
        self.can = can
        self._authorizer = authorizer
        self._floods = floods
        self._ctx: ServerRequestContext[Any, Any]
        self._asked = SubscriptionFilter()
        self._since: SubscriptionStats
        self._stream: SubscriptionStream | None = None
        self._opened = anyio.Event()
        self._task: BackgroundTask | None = None
        self._refusal: NotificationBusError | None = None
        self.beginning = anyio.Lock()

    @property
    def begun(self) -> bool:
        return self._task is not None

    def start(self, ctx: ServerRequestContext[Any, Any], lists: SubscriptionFilter, since: SubscriptionStats) -> None:
        """Serve it. It may have read already what has changed since `since`: nothing holds it back meanwhile."""
        self._ctx = ctx
        self._since = since
        self._asked = lists
        self._task = BackgroundTask(self._run, "notification-bus: client of an earlier revision")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await self._task.wait()

    async def watch(self, uri: str) -> bool:
        """Tell of the updates of a resource from now on. Waits, as a listen does, for a bus that is not ready yet.

        Returns:
            Whether it was not done before.

        Raises:
            NotificationBusError: It cannot be done.
        """
        seconds = self._registry.options.ready_timeout
        with anyio.move_on_after(seconds):
            await self._opened.wait()
        if self._refusal is not None:
            raise self._refusal
        if self._stream is None:
            raise BusNotReadyError(f"the stream of this client could not be opened within {seconds:g} s")
        before = uri in self._stream.accepted.resource_subscriptions
        if not self._stream.watch(uri):
            raise SubscriptionsClosedError(_SHUTTING_DOWN)
        return not before

    def unwatch(self, uri: str) -> None:
        if self._stream is not None:
            self._stream.unwatch(uri)
        rest = tuple(known for known in self._asked.resource_subscriptions if known != uri)
        self._asked = replace(self._asked, resource_subscriptions=rest)

    def _refuse(self, error: NotificationBusError) -> None:
        self._refusal = error
        self._opened.set()  # for who waits

    async def _run(self) -> None:
        backoff = Backoff(LONGEST_PAUSE)
        late = not self._since.ready
        while True:
            try:
                async with self._registry.listen(0, self._asked, capabilities=self.can, keep_empty=True) as stream:
                    backoff.reset()
                    if late or self._registry.stats().received != self._since.received:
                        # This client cannot be asked to come again: it was promised to hear, and has missed something.
                        stream.look_again()
                    await self._follow(stream)
                if self._registry.options.max_lifetime is not None:
                    await self._ask_again()
            except SubscriptionsClosedError:
                self._refuse(SubscriptionsClosedError(_SHUTTING_DOWN))
                return
            except BusClosedError as exc:  # never started: what has been stopped says that it shuts down
                self._floods.add("legacy", f"clients of the earlier revisions hear nothing: {exc}")
                self._refuse(exc)
                return
            except NotificationBusError as exc:
                self._floods.add("legacy", f"a client of an earlier revision hears nothing yet, trying again: {exc}")
            except Exception:
                _logger.debug("a client of an earlier revision could not be told any more", exc_info=True)
                return
            late = True
            await anyio.sleep(backoff.next())

    async def _follow(self, stream: SubscriptionStream) -> None:
        """Up to the end of the stream: the drain, or the most that it may last."""
        await anext(stream)  # the acknowledgment, which such a client does not know
        self._stream = stream
        self._opened.set()
        try:
            async for message in stream:
                await self._ctx.session.send_notification(to_sdk(_unnamed(message)))
        finally:
            self._stream, self._opened = None, anyio.Event()
            self._asked = stream.accepted

    async def _ask_again(self) -> None:
        """Remove what is no longer allowed: `authorize` is asked again after each `max_lifetime`."""
        if self._asked.is_empty:
            return
        try:
            allowed = await self._authorizer.allowed(self._ctx, self._asked)
        except MCPError:
            allowed = SubscriptionFilter()
        # It may have been narrowed by the client, too, meanwhile.
        self._asked = self._asked.intersect(allowed)


def _unnamed(message: SubscriptionMessage) -> SubscriptionMessage:
    """Without the name of its stream."""
    meta = {name: value for name, value in message.params["_meta"].items() if name != SUBSCRIPTION_ID_META_KEY}
    params = {name: value for name, value in message.params.items() if name != "_meta"}
    return message._replace(params=params | ({"_meta": meta} if meta else {}))


def _uri_of(
    ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams | types.UnsubscribeRequestParams
) -> str:
    """As it was sent: URL types normalise, and what is published is compared as a string."""
    raw = ctx.params.get("uri") if isinstance(ctx.params, Mapping) else None
    return raw if isinstance(raw, str) else str(params.uri)


def _no_method(method: str) -> MCPError:
    """What the SDK answers where there is no handler."""
    return MCPError(types.METHOD_NOT_FOUND, "Method not found", method)
