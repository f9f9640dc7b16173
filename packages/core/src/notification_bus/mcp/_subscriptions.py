"""`McpSubscriptions`: the seam of the official MCP SDK, over any notification bus."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack
from weakref import WeakKeyDictionary, WeakSet

from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import SubscriptionsListenRequestParams

from notification_bus._floodlog import FloodLog
from notification_bus._loops import current_loop, loop_is_over, run_soon
from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError
from notification_bus.mcp._authorize import Authorize, Authorizer
from notification_bus.mcp._delivery import Delivery
from notification_bus.mcp._events import to_notification
from notification_bus.mcp._install import advertise, host_of, watch_lists
from notification_bus.mcp._legacy import LegacyClients
from notification_bus.mcp._listen import ListenHandler
from notification_bus.mcp._listeners import Listeners
from notification_bus.mcp._pump import Pump
from notification_bus.mcp._stats import McpStats
from notification_bus.subscriptions import Capabilities, RegistryOptions, SubscriptionRegistry
from notification_bus.subscriptions._signals import SignalChain

__all__ = ["McpSubscriptions", "StreamOptionValues"]

ServerT = TypeVar("ServerT")
ResultT = TypeVar("ResultT")

_logger = logging.getLogger("notification_bus.mcp")


class StreamOptionValues(TypedDict, total=False):
    """Options of the listen streams as keywords; what each means is said in `subscriptions.RegistryOptions`."""

    max_streams: int
    max_uris: int
    max_uri_length: int
    max_lifetime: float | None
    drain: float
    gap_spread: float
    gap_interval: float
    sub_resources: bool
    end_empty: bool


class McpSubscriptions:
    """What `MCPServer(subscriptions=...)` takes, over a notification bus: changes reach the clients of every replica.

    ```python
    subscriptions = McpSubscriptions(open_bus("redis://localhost?channel=board"))
    mcp = MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.lifespan)
    ```

    Tools stay as they are: `await ctx.notify_tools_changed()` and the rest go through here. `install` has it serve the
    listen streams, too, in place of the SDK's handler: within limits, orderly at the end, and on servers that serve
    none. Without that it keeps the SDK's `SubscriptionBus` protocol, and the low-level `Server` uses it by
    `ListenHandler(subscriptions)`.

    * What a tool publishes is handed to the bus and comes back from it, to this replica as to every other. Publishing
      never waits for the broker and never fails because of it, since the change has already been made.
    * A listener is told of an event at once, and of equal ones once in 20 ms at most; every event gives the event loop
      its turns. So a client that reads never falls behind the 1,024 events at which the SDK ends a stream.
    * When something may have been missed, every open stream is told that all that is in its filter has changed: after
      an outage of the broker, and when the broker confirms for the first time only after streams were opened.

    *Limit*: a listener of your own, which shows no filter, is told after a gap that the lists have changed, and the
    last 1,024 resources that were updated before; not of a resource whose very first update fell into the gap.

    Args:
        bus: Where notifications travel. One that is an async context manager is entered and left by `lifespan`; any
            other is used as it is.
        ready_timeout: Seconds that the start of a server waits for the bus to confirm. After that the server starts all
            the same, with a warning: it must come up while its broker is down. One start waits once, however many
            connections enter the lifespan. After `install`, a listen waits as long, and is refused then.
        capabilities: What the server is to say that it can push, after `install`; by default all that it has.
        authorize: Narrows what a caller may watch, after `install`: `authorize(context, filter)` returns a filter, or
            an awaitable of one. Raising `PermissionError` refuses the stream.
        drain_on_signals: End the streams, after `install`, when SIGTERM or SIGINT reaches the process: servers such as
            uvicorn wait for open streams, for ever, before they leave the lifespan. Handlers are chained to.
        options: For the streams, after `install`; see `subscriptions.RegistryOptions`.

    Raises:
        TypeError: `bus` is none.
        RegistryOptionError: An option is of the wrong type or out of range.
    """

    def __init__(
        self,
        bus: NotificationBus,
        *,
        ready_timeout: float = 2.0,
        capabilities: Capabilities | None = None,
        authorize: Authorize | None = None,
        drain_on_signals: bool = True,
        **options: Unpack[StreamOptionValues],
    ) -> None:
        if not isinstance(bus, NotificationBus):
            raise TypeError(
                f"McpSubscriptions takes a NotificationBus, not a {type(bus).__name__}: "
                "build one with open_bus('redis://localhost?channel=board')"
            )
        self.bus = bus
        floods = FloodLog(_logger)
        self._listeners = Listeners()
        self._delivery = Delivery(self._listeners, _logger, floods)
        self._pump = Pump(bus, self._delivery, _logger, floods, ready_timeout)
        # Not the registry's to do here: the stream of an earlier revision's client may be empty at first.
        self._end_empty = RegistryOptions(**options).end_empty
        options["end_empty"] = False
        self._registry = SubscriptionRegistry(bus, capabilities=capabilities, ready_timeout=ready_timeout, **options)
        self._authorizer = Authorizer(authorize, _logger)
        self._drain_on_signals = drain_on_signals
        self._signals: SignalChain | None = None
        self._hosts: WeakKeyDictionary[object, Callable[[str], Capabilities]] = WeakKeyDictionary()
        self._bridged: WeakSet[object] = WeakSet()
        self._watched: WeakSet[object] = WeakSet()
        self._installed = False
        self._untold: dict[ServerEvent, None] = {}

    def __repr__(self) -> str:
        return f"<McpSubscriptions over {self.bus!r}>"

    @asynccontextmanager
    async def lifespan(self, server: object = None) -> AsyncGenerator[dict[str, Any]]:
        """Start on entering, stop on the last leaving. Yields `{}`.

        It has the form that `MCPServer`, the low-level `Server`, FastMCP and Starlette take as `lifespan=`. Entering is
        counted, since it happens once a process over HTTP and once a connection over stdio and in memory.

        Args:
            server: What the framework passes; not used.

        Raises:
            Exception: Whatever entering the bus raises, such as `BusBackendError`. A broker that does not answer is no
                error here.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._pump)
            await self._pump.wait_started()
            if self._installed:
                if self._pump.users == 1:
                    self._untold.clear()
                await stack.enter_async_context(self._registry)
                stack.callback(self._unchain_signals)
                self._chain_signals()
            yield {}

    def _chain_signals(self) -> None:
        if not self._drain_on_signals or (self._signals is not None and self._signals.loop is current_loop()):
            return
        if self._signals is not None:  # of a loop that was given up
            self._signals.take_back()
        self._signals = SignalChain(self._registry.begin_drain, self.drain)

    def _renew_signals(self) -> None:
        if self._signals is not None and self._signals.loop is current_loop():
            self._signals.renew()

    def _unchain_signals(self) -> None:
        # By the last lifespan that is left.
        if self._signals is not None and self._pump.users == 1:
            self._signals.take_back()
            self._signals = None

    def compose(
        self, lifespan: Callable[[ServerT], AbstractAsyncContextManager[ResultT]]
    ) -> Callable[[ServerT], AbstractAsyncContextManager[ResultT]]:
        """Your lifespan with this one around it: `lifespan=subscriptions.compose(my_lifespan)`.

        Yours is entered second and left first, so that it can publish in both halves; what it yields is yielded.

        Args:
            lifespan: A function of the server that returns an async context manager.
        """

        @asynccontextmanager
        async def composed(server: ServerT) -> AsyncGenerator[ResultT]:
            async with self.lifespan(server), lifespan(server) as result:
                yield result

        return composed

    def install(self, server: object, *, watch: bool = False, legacy_clients: bool = False) -> None:
        """Serve the listen streams of a server: an `MCPServer`, a low-level `Server`, or a `FastMCP`.

        To be called once the server is built, before it runs. The server is also given `lifespan=`, and an `MCPServer`
        `subscriptions=`, since that is where `ctx.notify_*` goes.

        * A client is acknowledged what it asked for and the server can push; the server says to clients what that is.
        * A client that does not read loses nothing and costs nothing: what changed twice is told once.
        * The streams end with their final result when the server is told to stop; see `drain`.

        Args:
            server: One server, or one after the other; calling it twice for one does no harm.
            watch: Also tell of changes of the server's own lists: of `add_tool`, `remove_tool`, `enable`, `disable`
                and the like, on this server (not on those mounted in it), while it runs.
            legacy_clients: Also tell clients of the revisions before 2026-07-28, which open no listen stream: of the
                lists, and of what they have named by `resources/subscribe`. Not over stateless HTTP, where nothing
                can be sent to them. Each counts as a stream. Over HTTP, what changes while such a client has its GET
                stream not open does not reach it, unless the server has an event store.

        Raises:
            TypeError: It is no server that can be served; or `watch` is set and it keeps no lists.
            ValueError: An `MCPServer` that was built without `subscriptions=` this object.
            RuntimeError: The first server is installed while the lifespan runs already.
        """
        host = host_of(server)
        if isinstance(server, MCPServer) and server._subscriptions is not self:  # noqa: SLF001
            raise ValueError(
                "this MCPServer was built without these subscriptions, and what its tools publish by ctx.notify_*() "
                "would go elsewhere: build it as MCPServer(..., subscriptions=subscriptions, "
                "lifespan=subscriptions.lifespan), then install"
            )
        if self._pump.users and not self._installed:
            raise RuntimeError("install() before the server starts: its lifespan has begun without the streams")
        if watch and host.low_level not in self._watched:
            watch_lists(host, self._tell)
            self._watched.add(host.low_level)
        if host.low_level not in self._hosts:
            can_push = advertise(host.low_level, self._registry.capabilities)
            handler = ListenHandler(
                self._registry, can_push, self._authorizer, _logger, self._renew_signals, end_empty=self._end_empty
            )
            host.low_level.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, handler)
            self._hosts[host.low_level] = can_push
        if legacy_clients and host.low_level not in self._bridged:
            can_push = self._hosts[host.low_level]
            LegacyClients(
                host.low_level,
                self._registry,
                can_push,
                authorizer=self._authorizer,
                logger=_logger,
                arriving=self._renew_signals,
            )
            self._bridged.add(host.low_level)
        self._installed = True

    async def drain(self, timeout: float | None = None) -> int:
        """End the listen streams, and wait until each client has its final result. Later listens are refused.

        Done by itself on SIGTERM and SIGINT, and when the lifespan is left. To be called where neither comes before
        the transport goes: hypercorn's workers hear of no signal. Concerns streams that `install` has served.

        Args:
            timeout: Seconds to wait at most; `None` takes what is left of the option `drain` (2.0), counted from the
                first call or the signal.

        Returns:
            Streams that had not handed over their result by then; 0 is a graceful end for every client.
        """
        return await self._registry.drain(timeout)

    def is_subscribed(self, uri: str) -> bool:
        """Whether a client of *this replica* may be watching a resource.

        Use it to skip work that only serves those. Never use it to decide whether to publish: other replicas have
        other clients.
        """
        return self._registry.is_subscribed(uri) or self._listeners.may_watch(uri)

    def _tell(self, event: ServerEvent) -> None:
        """Publish from code that cannot wait, in any thread. What happens before the start is no change."""
        try:
            loop = self._pump.home
        except BusClosedError:
            return
        if event in self._untold:
            return
        self._untold[event] = None
        if not run_soon(loop, partial(self._publish_quietly, event), "notification-bus: a list has changed"):
            self._untold.pop(event, None)

    async def _publish_quietly(self, event: ServerEvent) -> None:
        # First, so that a change from here on is told of once more.
        self._untold.pop(event, None)
        try:
            await self.publish(event)
        except BusClosedError:
            pass  # stopped since
        except Exception:
            _logger.warning("a change of the server's own lists could not be published", exc_info=True)

    async def publish(self, event: ServerEvent) -> None:
        """Tell the clients of every replica. The SDK calls this for `ctx.notify_*`.

        Never waits for the broker and never raises for its trouble; a caller cancelled in here has published.

        Raises:
            TypeError: `event` is none of the SDK's four.
            InvalidNotificationError: The URI of a resource is no string, or cannot be encoded.
            NotificationTooLargeError: The URI of a resource is longer than the bus carries.
            BusClosedError: The lifespan was never entered, or was left, or runs in another event loop.
        """
        notification = to_notification(event)
        self._pump.check_open()
        await self.bus.publish(notification)

    def publish_from_thread(self, event: ServerEvent) -> None:
        """`publish`, for a thread that runs no event loop: a watcher, a consumer, a synchronous tool.

        Returns when the event has been handed to the bus. In a worker thread of anyio (a synchronous tool),
        `anyio.from_thread.run(subscriptions.notify_tools_changed)` does the same.

        Raises:
            RuntimeError: Called in the event loop's own thread, which would wait for itself: `await publish(event)`.
            Exception: As for `publish`.
        """
        loop = self._pump.home
        try:
            here = current_loop()
        except RuntimeError:
            here = None
        if here is loop:
            raise RuntimeError("publish_from_thread() was called in the event loop: use `await publish(event)` there")
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._publish_on_asyncio(event, loop)
        else:
            import trio  # noqa: PLC0415  # only where it already runs

            assert isinstance(loop, trio.lowlevel.TrioToken)  # noqa: S101  # the one other kind of loop
            try:
                trio.from_thread.run(self.publish, event, trio_token=loop)
            except trio.RunFinishedError as exc:
                raise BusClosedError("the event loop of these McpSubscriptions has ended") from exc

    def _publish_on_asyncio(self, event: ServerEvent, loop: asyncio.AbstractEventLoop) -> None:
        publishing = self.publish(event)
        try:
            future = asyncio.run_coroutine_threadsafe(publishing, loop)
        except RuntimeError as exc:
            publishing.close()
            raise BusClosedError("the event loop of these McpSubscriptions has ended") from exc
        while True:
            try:
                return future.result(timeout=1.0)
            except TimeoutError:
                # A loop that ended in between would never answer, and the thread would keep the process alive.
                if future.done() or loop_is_over(loop):
                    raise BusClosedError("the event loop of these McpSubscriptions has ended") from None

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener; the SDK calls this for every listen stream.

        Args:
            listener: Called in the server's event loop with each event, its own replica's included. What it raises is
                logged and keeps nothing from the other listeners.

        Returns:
            A function that takes it away again; calling it twice does no harm.

        Raises:
            BusClosedError: The lifespan was never entered, or was left: a stream acknowledged now would stay silent.
        """
        self._pump.check_open()
        return self._listeners.add(listener)

    async def notify_tools_changed(self) -> None:
        """Tell that the list of tools changed; for code outside a request. Raises as `publish` does."""
        await self.publish(ToolsListChanged())

    async def notify_prompts_changed(self) -> None:
        """Tell that the list of prompts changed; for code outside a request. Raises as `publish` does."""
        await self.publish(PromptsListChanged())

    async def notify_resources_changed(self) -> None:
        """Tell that the list of resources changed; for code outside a request. Raises as `publish` does."""
        await self.publish(ResourcesListChanged())

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell that a resource changed; for code outside a request. Raises as `publish` does.

        Args:
            uri: The very string that clients subscribe to: URL types normalise, and then differ from it.
        """
        await self.publish(ResourceUpdated(uri))

    def stats(self) -> McpStats:
        """What has been counted up to now."""
        return McpStats(
            ready=self._pump.ready and (not self._installed or self._registry.stats().ready),
            listeners=len(self._listeners),
            delivered=self._delivery.delivered,
            coalesced=self._delivery.coalesced,
            ignored=self._pump.ignored,
            gaps=self._pump.gaps,
            listener_errors=self._delivery.listener_errors,
            streams=self._registry.stats() if self._installed else None,
        )
