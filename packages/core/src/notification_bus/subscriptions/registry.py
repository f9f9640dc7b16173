"""The registry: the streams of this process, fed by one subscription to a bus."""

import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Final, Self, Unpack

import anyio

from notification_bus._floodlog import FloodLog
from notification_bus._lifecycle import ReferenceCounted
from notification_bus._loops import BackgroundTask, turn
from notification_bus.bus import NotificationBus
from notification_bus.errors import NotificationBusError
from notification_bus.notification import DEFAULT_MAX_BODY, GAP, BusNotification, encode_body
from notification_bus.subscriptions._gaps import GapSchedule
from notification_bus.subscriptions._keys import LIST_KEYS, UPDATED, uri_of
from notification_bus.subscriptions._mailbox import Mailbox
from notification_bus.subscriptions._pump import Pump
from notification_bus.subscriptions._signals import SignalChain
from notification_bus.subscriptions._table import StreamTable
from notification_bus.subscriptions._taps import Tap, Taps
from notification_bus.subscriptions.errors import InvalidSubscriptionIdError, SubscriptionLimitError
from notification_bus.subscriptions.filter import Capabilities, SubscriptionFilter
from notification_bus.subscriptions.options import RegistryOptions, RegistryOptionValues
from notification_bus.subscriptions.stats import SubscriptionStats
from notification_bus.subscriptions.stream import Admitted, SubscriptionId, SubscriptionStream

__all__ = ["SubscriptionRegistry"]

_logger = logging.getLogger("notification_bus.subscriptions")

_TURN: Final = 64
"""Notifications published without a bus before the event loop gets a turn."""

_STEP: Final = 0.01
"""Seconds between two checks of which streams are due to be told of a gap: cheaper than a timer for each."""


class SubscriptionRegistry(ReferenceCounted):
    """The live streams of one node, fed by a bus.

    Enter it before use, any number of times; the last exit stops it. It may be entered again afterwards, also on
    another event loop. Entering enters the bus, too, and does not wait for the broker: an application comes up while
    its broker is down. Opening a *stream* waits for the bus, since an acknowledged stream that misses the next change
    is worse than none.

    Everything that is published is delivered to the streams whose filter admits it, and at least once after it was
    published: a stream that has not read an earlier change of the same kind or URI is told once for both. What cannot
    be subscribed to is never delivered.

    `GAP` marks everything in the filter of each stream that was open when it was heard, at a random moment within
    `gap_spread`. Without a bus it does so at once.

    Without a bus a notification goes straight to the streams of this node: no queue, no task, no connection.

    Args:
        bus: Reaches the other replicas; `None` if there are none.
        capabilities: What this server can push. The attribute of that name may be changed; it holds for streams opened
            from then on.
        options: See `RegistryOptions`.

    Raises:
        RegistryOptionError: An option is of the wrong type or out of range.
    """

    def __init__(
        self,
        bus: NotificationBus | None = None,
        *,
        capabilities: Capabilities | None = None,
        **options: Unpack[RegistryOptionValues],
    ) -> None:
        super().__init__()
        self._bus = bus
        self.capabilities: Capabilities = Capabilities() if capabilities is None else capabilities
        self.options: RegistryOptions = RegistryOptions(**options)
        self._floods = FloodLog(_logger)
        self._counts = Counter[str]()
        self._reset()

    def _reset(self) -> None:
        options = self.options
        self._table = StreamTable(options, self._counts)
        self._taps = Taps(self._counts, self._floods, options.max_uri_length)
        self._gaps = GapSchedule(options.gap_spread, options.gap_interval, random=random.random, shuffle=random.shuffle)
        self._pump: Pump | None = None
        self._telling: BackgroundTask | None = None
        self._signalled: float | None = None
        self._streak = 0

    def __repr__(self) -> str:
        return f"<SubscriptionRegistry bus={self._bus!r} streams={self._table.streams}>"

    @property
    def bus(self) -> NotificationBus | None:
        """The bus that it was built with."""
        return self._bus

    async def publish(self, notification: BusNotification) -> None:
        """Publish to every replica, this one included; to this one alone where there is no bus.

        Whether anybody has subscribed is not asked: other replicas know other streams. A caller cancelled in here has
        published.

        Raises:
            NotificationTooLargeError: The body has more bytes than the bus carries (without a bus: 1 MiB).
            BusClosedError: The registry, or its bus, is not open.
        """
        if self._bus is not None:
            self._check_open()
            await self._bus.publish(notification)
            return
        self._check_open()
        encode_body(notification, DEFAULT_MAX_BODY)
        self._route(notification)
        self._streak += 1
        if self._streak >= _TURN:
            # A burst from one task must leave turns to the streams' readers. A lone publish goes on at once: nothing
            # is lost while it does, and a turn would charge its caller for the work of every reader.
            self._streak = 0
            await turn()

    def listen(
        self,
        subscription_id: SubscriptionId,
        filter: SubscriptionFilter,  # noqa: A002  # the protocol's word
        *,
        capabilities: Capabilities | None = None,
        authorize: Callable[[SubscriptionFilter], Awaitable[SubscriptionFilter]] | None = None,
        keep_empty: bool = False,
    ) -> SubscriptionStream:
        """A stream: `async with registry.listen(id, filter) as stream: async for message in stream: …`.

        Entering it waits for the bus if that is not ready yet, at most `ready_timeout`, and then raises: a stream
        acknowledged before could miss changes, and a client that asks again may reach a replica whose broker answers.
        Once the bus has been ready it owes a gap after each outage, so streams stay open through one, and may be
        opened during one: they are told of everything afterwards.

        Args:
            subscription_id: The id of the client's request, int or str; it is given back unchanged. It need not be
                unique.
            filter: What the client asks for. It is narrowed here, once, to what can be pushed.
            capabilities: What can be pushed to this client; `None` takes the registry's.
            authorize: Called with the narrowed filter, which is within the limits; returns what of it this client may
                watch. It cannot widen the filter. What it raises is raised on entering.
            keep_empty: Keep the stream open if nothing was accepted, in spite of the option `end_empty`: for a
                stream that is widened by `watch`.

        Raises:
            SubscriptionsClosedError: On entering, after the signal to shut down.
            SubscriptionLimitError: On entering, if the filter or the number of streams is too large.
            InvalidSubscriptionIdError: On entering, if the id is of another type.
            BusNotReadyError: On entering, if the bus has not become ready in time. Names the cause.
            BusClosedError: On entering, if the registry is not open.
        """
        admit = partial(self._admit, subscription_id, filter, capabilities, authorize, keep_empty=keep_empty)
        return SubscriptionStream(subscription_id, admit)

    def tap(self, function: Tap, uris: Iterable[str] | None = None) -> Callable[[], None]:
        """Call a function with the changes that reach this node: the four kinds that streams carry.

        For what is not a client's stream: a cache, or the listeners of a framework. A change is told at once, and equal
        ones once in 20 ms at most. After a gap the function is called for all three lists, and for the resources in
        `uris`, or else the last 1,024 that were updated. So it is after the first confirmation of a bus that was not
        ready yet.

        Args:
            function: Called in the registry's event loop. What it raises is counted and logged.
            uris: The resources whose updates it is called with; `None` for all.

        Returns:
            A function that removes the tap; it may be called any number of times.

        Raises:
            BusClosedError: The registry is not open.
        """
        self._check_open()
        if self._pump is not None and not self._pump.ready:
            self._pump.owes_gap = True
        return self._taps.add(function, uris)

    def narrow(self, filter: SubscriptionFilter, capabilities: Capabilities | None = None) -> SubscriptionFilter:  # noqa: A002  # as above
        """Return what `listen` would accept of a filter.

        Raises:
            SubscriptionLimitError: What remains names too many URIs, or one that is too long.
        """
        accepted = filter.narrow(self.capabilities if capabilities is None else capabilities)
        uris = accepted.resource_subscriptions
        self._check_limits(len(uris), max(map(len, uris), default=0))
        return accepted

    def _admits(self, capabilities: Capabilities | None, taken: int, uri: str) -> bool:
        if self.narrow(SubscriptionFilter(resource_subscriptions=(uri,)), capabilities).is_empty:
            return False
        self._check_limits(taken + 1, len(uri))
        return True

    def _check_limits(self, uris: int, longest: int) -> None:
        if uris > self.options.max_uris:
            raise SubscriptionLimitError("max_uris", uris, self.options.max_uris)
        if longest > self.options.max_uri_length:
            raise SubscriptionLimitError("max_uri_length", longest, self.options.max_uri_length)

    def is_subscribed(self, uri: str) -> bool:
        """Whether a stream or tap of *this node* watches a resource.

        Use it to skip work that only serves those. Never use it to decide whether to publish: other replicas
        hold other streams.
        """
        return self._table.is_watched(uri) or self._taps.is_watched(uri)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until what is published anywhere reaches this node, for those who want to fail fast.

        Args:
            timeout: Seconds; `None` takes the option `ready_timeout`.

        Raises:
            BusNotReadyError: It did not come to that in time. Names the cause.
            BusClosedError: The registry is not open.
        """
        self._check_open()
        pump = self._pump
        if pump is not None:
            seconds = self.options.ready_timeout if timeout is None else timeout
            with anyio.move_on_after(seconds):
                await pump.wait_ready()
            if not pump.ready:
                raise pump.not_ready(seconds)

    def begin_drain(self) -> None:
        """Signal the shutdown: streams end as soon as they have been told what waits, and no new one is opened.

        Returns at once, and may be called any number of times, in the registry's event loop: from a signal handler by
        `loop.call_soon_threadsafe(registry.begin_drain)`. It holds until the registry has been stopped and entered
        again.
        """
        if self._signalled is None:
            self._signalled = monotonic()
            self._table.begin_drain()

    @contextmanager
    def draining_on_signals(self) -> Generator[None]:
        """Signal the shutdown when SIGTERM or SIGINT reaches the process: `with registry.draining_on_signals(): …`.

        For a server's lifespan. Servers such as uvicorn wait until every connection is closed before they leave it, and
        an open stream would let them wait for ever. Their handlers are called afterwards, as before; where a signal
        would end the process at once, the drain comes first. To be entered in the event loop's own thread, after the
        server has set its handlers up; it does nothing outside the main thread.
        """
        chain = SignalChain(self.begin_drain, self.drain)
        try:
            yield
        finally:
            chain.take_back()

    async def drain(self, timeout: float | None = None) -> int:
        """Signal the shutdown, and wait until each stream has handed over its final result. Then the transport may go.

        Does not wait where no stream is open or being opened. Leaving the registry drains, too.

        Args:
            timeout: Seconds to wait at most; `None` takes what is left of the option `drain`, counted from the signal.

        Returns:
            Streams that had not handed over their result by then; 0 is a graceful end for every client.
        """
        self.begin_drain()
        assert self._signalled is not None  # noqa: S101  # just set
        table = self._table
        if table.waiting:
            seconds = max(0.0, self._signalled + self.options.drain - monotonic()) if timeout is None else timeout
            with anyio.move_on_after(seconds):
                await table.wait_idle()
            if table.waiting:
                _logger.warning(
                    "%d streams had not handed over their final result in time; their clients see them break",
                    table.waiting,
                )
        return table.waiting

    def stats(self) -> SubscriptionStats:
        """What the registry has counted up to now."""
        table, pump = self._table, self._pump
        return SubscriptionStats(
            streams=table.streams,
            arriving=table.arriving,
            uris=table.uris,
            taps=len(self._taps),
            ready=self._home is not None and (pump is None or pump.ready),
            draining=table.draining,
            **self._counts | {"coalesced": table.coalesced},
        )

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._pump is not None:
            try:
                await self._pump.entered()
            except BaseException:
                await super().__aexit__(None, None, None)
                raise
        return self

    def _start(self) -> None:
        self._reset()
        if self._bus is not None:
            self._pump = Pump(self._bus, self._receive, self._hear_gap, random=random.random)

    async def _stop(self) -> None:
        await self.drain()
        self._table.clear()
        await self._taps.aclose()
        if self._telling is not None:
            self._telling.cancel()
            await self._telling.wait()
        if self._pump is not None:
            await self._pump.aclose()
        self._floods.flush(force=True)

    def _forget(self) -> None:
        self._reset()

    async def _admit(
        self,
        subscription_id: object,
        requested: SubscriptionFilter,
        capabilities: Capabilities | None,
        authorize: Callable[[SubscriptionFilter], Awaitable[SubscriptionFilter]] | None,
        *,
        keep_empty: bool,
    ) -> Admitted:
        options, table, pump = self.options, self._table, self._pump
        try:
            table.check_open()
            self._check_open()
            if not isinstance(subscription_id, int | str) or isinstance(subscription_id, bool):
                raise InvalidSubscriptionIdError(
                    f"the id of a stream is {type(subscription_id).__name__} {subscription_id!r}: "
                    "give the id of the client's request, an int or a str"
                )
            # The limits come before `authorize`, which may have to ask a database about each URI.
            accepted = self.narrow(requested, capabilities)
            if authorize is not None:
                accepted = accepted.intersect(await authorize(accepted))
            with table.arrival(anyio.move_on_after(options.ready_timeout)):
                if pump is not None:
                    await pump.wait_ready()
            if pump is not None and not pump.ready:
                raise pump.not_ready(options.ready_timeout)
        except NotificationBusError:
            self._counts["refused"] += 1
            raise
        # From here on nothing waits: the stream is in the index before anything that its acknowledgment could precede.
        mailbox = Mailbox(accepted.keys(), self._gaps.number)
        table.add(mailbox)
        if options.end_empty and not keep_empty and accepted.is_empty and not accepted.extra:
            table.end(mailbox)
        deadline = None if options.max_lifetime is None else anyio.current_time() + options.max_lifetime
        return Admitted(mailbox, accepted, table, partial(self._admits, capabilities), deadline)

    def _receive(self, notification: BusNotification) -> None:
        """Take what the bus yields. One that cannot be handled must not deafen the node to those that come after it."""
        try:
            self._route(notification)
        except Exception as exc:
            self._malformed(f"the bus yielded {type(notification).__name__}, which failed: {type(exc).__name__}: {exc}")

    def _route(self, notification: BusNotification) -> None:
        counts, method = self._counts, notification.method
        counts["received"] += 1
        key = uri_of(notification) if method == UPDATED else LIST_KEYS.get(method)
        if key is not None:
            counts["delivered"] += self._table.put(key, notification) + self._taps.put(key, notification)
        elif method == UPDATED:
            self._malformed("an update came without a URI")
        elif method == GAP.method:
            self._hear_gap()
        else:
            counts["ignored"] += 1

    def _malformed(self, text: str) -> None:
        self._counts["malformed"] += 1
        self._floods.add("malformed:subscriptions", f"{text[:200]}; skipped")

    def _hear_gap(self) -> None:
        self._counts["gaps"] += 1
        self._taps.put_everything()
        if self._bus is None:
            self._tell_all(list(self._table))
        elif self._table.streams:
            self._gaps.hear()
            if self._telling is None or self._telling.done:
                self._telling = BackgroundTask(self._tell, "notification_bus.subscriptions gaps")

    async def _tell(self) -> None:
        """Tell the streams of gaps, each at its moment. Runs only while there is one to tell."""
        while (delay := self._gaps.delay(anyio.current_time())) is not None:
            await anyio.sleep(max(delay, _STEP))
            self._tell_all(self._gaps.take(anyio.current_time(), self._table))

    def _tell_all(self, mailboxes: list[Mailbox]) -> None:
        self._counts["told"] += len(mailboxes)
        for mailbox in mailboxes:
            mailbox.mark_all()
