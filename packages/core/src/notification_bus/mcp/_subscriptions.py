"""`McpSubscriptions`: the seam of the official MCP SDK, over any notification bus."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, Unpack, cast
from weakref import WeakSet

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.subscriptions import event_from_wire
from mcp_types import SubscriptionsListenRequestParams

from notification_bus._floodlog import FloodLog
from notification_bus.bus import NotificationBus
from notification_bus.mcp._convert import to_notification, uris_of
from notification_bus.mcp._legacy import LegacyClients
from notification_bus.mcp._listen import Authorize, Authorizer, ListenHandler
from notification_bus.mcp._registry import ServerRegistry
from notification_bus.mcp._servers import NarrowAnswers, low_level_of, watch_lists
from notification_bus.notification import BusNotification
from notification_bus.subscriptions import Capabilities, RegistryOptionValues, SubscriptionStats

__all__ = ["McpSubscriptions"]

ServerT = TypeVar("ServerT")
ResultT = TypeVar("ResultT")

_logger = logging.getLogger("notification_bus.mcp")

_LISTEN = "subscriptions/listen"


class McpSubscriptions:
    """Subscriptions of an MCP server over a notification bus: changes reach the clients of every replica.

    ```python
    subscriptions = McpSubscriptions(open_bus("redis://localhost?channel=board"))
    mcp = MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.lifespan)
    ```

    `Server("board", lifespan=subscriptions.lifespan)` and `FastMCP("board", lifespan=subscriptions.lifespan)` alike.
    Tools stay as they are: `await ctx.notify_tools_changed()` and the rest publish here. FastMCP and the low-level
    server have no such methods: publish by `await subscriptions.notify_tools_changed()`.

    * What is published is handed to the bus and comes back from it, to this replica as to every other. Publishing never
      waits for the broker and never fails because of it, since the change has already been made.
    * The lifespan has `subscriptions/listen` served here. A client is acknowledged what it asked for and the server can
      push; the server says to clients what that is.
    * A client that does not read loses nothing and costs nothing: what changed twice is told once.
    * When something may have been missed, each open stream is told that all that is in its filter has changed.
    * The streams end with their final result when the server is told to stop; see `drain`.

    Args:
        bus: Where notifications travel. One that is an async context manager is entered and left by `lifespan`; any
            other is used as it is.
        capabilities: What the server may push; by default all that it has.
        authorize: Narrows what a caller may watch: `authorize(context, filter)` returns a filter, or an awaitable of
            one. Raising `PermissionError` refuses the stream.
        watch: Also publish changes of the server's own lists: of `add_tool`, `remove_tool`, `enable`, `disable` and the
            like, on this server (not on those mounted in it), while it runs.
        legacy_clients: Also tell clients of the revisions before 2026-07-28, which open no listen stream: of the lists,
            and of the resources that they name by `resources/subscribe`. Not over stateless HTTP, where nothing can be
            sent to them. Each counts as a stream. Over HTTP, what changes while such a client has its GET stream not
            open does not reach it, unless the server has an event store.
        drain_on_signals: End the streams when SIGTERM or SIGINT reaches the process: servers such as uvicorn wait for
            open streams, without a limit, before they leave the lifespan. Handlers that are set are called, too.
        options: See `subscriptions.RegistryOptions`. `ready_timeout` is 2 seconds here by default. The start of a
            server waits as long for the bus to confirm, and then starts all the same, with a warning, since it must
            come up while its broker is down. One start waits once, however many connections enter the lifespan.

    Raises:
        TypeError: `bus` is no bus.
        RegistryOptionError: An option is of the wrong type or out of range.
    """

    def __init__(
        self,
        bus: NotificationBus,
        *,
        capabilities: Capabilities | None = None,
        authorize: Authorize | None = None,
        watch: bool = False,
        legacy_clients: bool = False,
        drain_on_signals: bool = True,
        **options: Unpack[RegistryOptionValues],
    ) -> None:
        if not isinstance(bus, NotificationBus):
            raise TypeError(
                f"McpSubscriptions takes a NotificationBus, not a {type(bus).__name__}: "
                "build one with open_bus('redis://localhost?channel=board')"
            )
        self.bus = bus
        options.setdefault("ready_timeout", 2.0)
        self._registry = ServerRegistry(bus, drain_on_signals=drain_on_signals, **options)
        self._capabilities = Capabilities() if capabilities is None else capabilities
        self._authorizer = Authorizer(authorize, _logger)
        self._watch = watch
        self._legacy_clients = legacy_clients
        self._floods = FloodLog(_logger)
        self._served: WeakSet[Server[Any]] = WeakSet()

    def __repr__(self) -> str:
        return f"<McpSubscriptions over {self.bus!r}>"

    @asynccontextmanager
    async def lifespan(self, server: object = None) -> AsyncGenerator[dict[str, Any]]:
        """Start on entering, stop on the last leaving. Yields `{}`.

        It has the form that `MCPServer`, the low-level `Server`, FastMCP and Starlette take as `lifespan=`. Entering is
        counted, since it happens once a process over HTTP and once a connection over stdio and in memory.

        Args:
            server: What the framework passes. An MCP server has its listen streams served here from then on, as by
                `install`, except that a listen handler that a low-level `Server` was built with is left in place.
                Nothing is done to anything else, such as a Starlette app.

        Raises:
            ValueError: An `MCPServer` that was built without `subscriptions=` this object.
            TypeError: `watch` is set and the server keeps no lists.
            Exception: Whatever entering the bus raises, such as `BusBackendError`. A broker that does not answer is no
                error here.
        """
        low_level = low_level_of(server)
        if low_level is not None:
            self._serve(server, low_level, keep=low_level is server)
        async with self._registry:
            await self._registry.wait_started()
            yield {}

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

    def install(self, server: object) -> None:
        """Serve the listen streams of a server whose lifespan is somebody else's.

        The lifespan does it for the server that it is given. This is for a server that is built by other code, which
        enters `subscriptions.lifespan()` somewhere else. Call it before the first client connects.

        Args:
            server: An `MCPServer`, a low-level `Server`, or a `FastMCP`; one after the other, and any number of times.

        Raises:
            TypeError: It is no server that can be served; or `watch` is set and it keeps no lists.
            ValueError: An `MCPServer` that was built without `subscriptions=` this object.
        """
        low_level = low_level_of(server)
        if low_level is None:
            raise TypeError(
                f"install() takes an MCPServer or low-level Server of mcp 2, or a FastMCP of fastmcp 4, not a "
                f"{type(server).__module__}.{type(server).__qualname__}: call it with the server, before its HTTP app "
                "is built"
            )
        self._serve(server, low_level, keep=False)

    def _serve(self, server: object, low_level: Server[Any], *, keep: bool) -> None:
        """Put the handlers in place, once. `keep` leaves a listen handler that is there already."""
        if low_level in self._served:
            return
        if isinstance(server, MCPServer) and server._subscriptions is not self:  # noqa: SLF001
            raise ValueError(
                "this MCPServer was built without these subscriptions, and what its tools publish by ctx.notify_*() "
                "would go elsewhere: build it as MCPServer(..., subscriptions=subscriptions, "
                "lifespan=subscriptions.lifespan)"
            )
        if self._watch:
            watch_lists(cast("object", server), self._registry.publish_soon)
        parts = (low_level, self._capabilities, self._registry, self._authorizer, self._floods)
        if not (keep and low_level.get_request_handler(_LISTEN)):
            low_level.add_request_handler(_LISTEN, SubscriptionsListenRequestParams, ListenHandler(*parts))
        answers = {"server/discover"}
        if self._legacy_clients:
            LegacyClients(*parts)
        else:
            answers.add("initialize")
        if self._capabilities != Capabilities(extensions=self._capabilities.extensions):
            low_level.middleware.append(NarrowAnswers(self._capabilities, frozenset(answers)))
        self._served.add(low_level)
        self._registry.serves_streams = True

    async def drain(self, timeout: float | None = None) -> int:
        """End the listen streams, and wait until each client has its final result. Later listens are refused.

        Done by itself on SIGTERM and SIGINT, and when the lifespan is left. Call it where neither comes before the
        transport goes: hypercorn's workers hear of no signal.

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
        return self._registry.is_subscribed(uri)

    async def publish(self, event: ServerEvent) -> None:
        """Tell the clients of every replica. The SDK calls this for `ctx.notify_*`.

        Never waits for the broker and never raises for its trouble; a caller cancelled in here has published.

        Raises:
            TypeError: `event` is none of the SDK's four.
            InvalidNotificationError: The URI of a resource is no string, or cannot be encoded.
            NotificationTooLargeError: The URI of a resource is longer than the bus carries.
            BusClosedError: The lifespan was never entered, or was left, or runs in another event loop.
        """
        await self._registry.publish(to_notification(event))

    def publish_from_thread(self, event: ServerEvent) -> None:
        """`publish`, for a thread that runs no event loop: a watcher, a consumer, a synchronous tool.

        Returns when the event has been handed to the bus. In a worker thread of anyio (a synchronous tool),
        `anyio.from_thread.run(subscriptions.notify_tools_changed)` does the same.

        Raises:
            RuntimeError: Called in the event loop's own thread, which would wait for itself: `await publish(event)`.
            Exception: As for `publish`.
        """
        self._registry.publish_from_thread(to_notification(event))

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener of the SDK's seam, such as one of its own `ListenHandler(subscriptions)`.

        It is called with each event, its own replica's included: at once, and with equal ones once in 20 ms at most,
        which leaves the SDK's streams time to write. After a gap it is called with all that may have changed: the
        lists, and the resources in the filter of an SDK stream.

        *Limit*: a listener of your own, which shows no filter, is then told of the last 1,024 resources that were
        updated before; not of a resource whose very first update fell into the gap.

        Args:
            listener: Called in the server's event loop. What it raises is logged and keeps nothing from the others.

        Returns:
            A function that removes it; calling it twice does no harm.

        Raises:
            BusClosedError: The lifespan was never entered, or was left: a stream acknowledged now would stay silent.
        """

        def tap(notification: BusNotification) -> None:
            event = event_from_wire(notification.method, notification.params)
            if event is not None:
                listener(event)

        return self._registry.tap(tap, uris_of(listener))

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

    def stats(self) -> SubscriptionStats:
        """What has been counted up to now; `taps` are the listeners of `subscribe`."""
        return self._registry.stats()
