"""`McpSubscriptions`: the seam of the official MCP SDK, over any notification bus."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from notification_bus._backend import current_loop, loop_is_over
from notification_bus._warnings import FloodLog
from notification_bus.bus import NotificationBus
from notification_bus.errors import BusClosedError
from notification_bus.mcp._delivery import Delivery
from notification_bus.mcp._events import to_notification
from notification_bus.mcp._listeners import Listeners
from notification_bus.mcp._pump import Pump

__all__ = ["McpStats", "McpSubscriptions"]

ServerT = TypeVar("ServerT")
ResultT = TypeVar("ResultT")

_logger = logging.getLogger("notification_bus.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStats:
    """A snapshot. Counts run from the building of the object."""

    ready: bool
    """Whether the bus has confirmed: a listen stream that is opened now misses nothing."""

    listeners: int
    """Listen streams that are open on this replica now."""

    delivered: int
    """Events handed to listeners, counted for each listener that they concern."""

    coalesced: int
    """Events that were not handed over because an equal one was waiting already."""

    ignored: int
    """Notifications on the bus that no listen stream carries, such as log messages; gaps are not counted here."""

    gaps: int
    """Times that everything was reported as changed because something may have been missed."""

    listener_errors: int
    """Times that a listener raised."""


class McpSubscriptions:
    """What `MCPServer(subscriptions=...)` takes, over a notification bus: changes reach the clients of every replica.

    ```python
    subscriptions = McpSubscriptions(open_bus("redis://localhost?channel=board"))
    mcp = MCPServer("board", subscriptions=subscriptions, lifespan=subscriptions.lifespan)
    ```

    Tools stay as they are: `await ctx.notify_tools_changed()` and the rest go through here. It keeps the SDK's
    `SubscriptionBus` protocol, so the low-level `Server` uses it by `ListenHandler(subscriptions)`.

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
            connections enter the lifespan.
    """

    def __init__(self, bus: NotificationBus, *, ready_timeout: float = 2.0) -> None:
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
        async with self._pump:
            await self._pump.wait_started()
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
            ready=self._pump.ready,
            listeners=len(self._listeners),
            delivered=self._delivery.delivered,
            coalesced=self._delivery.coalesced,
            ignored=self._pump.ignored,
            gaps=self._pump.gaps,
            listener_errors=self._delivery.listener_errors,
        )
