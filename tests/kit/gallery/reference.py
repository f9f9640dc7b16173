"""A small correct bus, whose parts can be broken one at a time.

It is a second implementation of the contract beside `BrokerBus`, so that the kit is known to accept one. Each part is a
method of its own, so that a broken bus of the gallery can replace it. It runs on a hub.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from random import uniform
from secrets import token_hex
from typing import Any, ClassVar, Final, Unpack, cast

import anyio
from anyio.lowlevel import checkpoint

from notification_bus._floodlog import FloodLog
from notification_bus._lifecycle import ReferenceCounted
from notification_bus._loops import BackgroundTask
from notification_bus.connection import BrokerConnection
from notification_bus.errors import BusNotReadyError, MalformedBodyError, NotificationTooLargeError, SendRefusedError
from notification_bus.notification import GAP, BusNotification
from notification_bus.options import BusOptions, OptionValues
from tests.kit.gallery.stream import Stream
from tests.kit.hub import Hub, HubConnection

__all__ = ["PROBE", "ReferenceBus"]

PROBE: Final = "notifications/bus/probe"

_logger = logging.getLogger("notification_bus.gallery")


class ReferenceBus(ReferenceCounted):
    """The contract of `NotificationBus` in few lines.

    Args:
        hub: The broker.
        channel: The broker-side name.
        options: See `BusOptions`.
    """

    broker: ClassVar[str] = "gallery"
    stream_type: ClassVar[type[Stream]] = Stream

    def __init__(self, hub: Hub, channel: str, **options: Unpack[OptionValues]) -> None:
        super().__init__()
        self.hub = hub
        self.options: BusOptions = BusOptions(channel=channel, **options)
        self.max_body: int = hub.max_body
        self.instance: str = token_hex(8)
        self.streams: dict[Stream, None] = {}
        self.outbox: deque[bytes] = deque()
        self.connection: BrokerConnection | None = None
        self.attachment: HubConnection | None = None
        """The connection beneath a link, at the broker's end."""
        self.changed: anyio.Event = anyio.Event()
        self.floods: FloodLog = FloodLog(_logger)
        self.attempt: int = 0
        self.outage: str | None = None
        self.owes_gap: bool = False
        self.sending: bool = False
        self._sent = 0
        self._proven = 0
        self._probes = 0
        self._probe_due = False
        self._marks: dict[int, int] = {}
        self._supervisor: BackgroundTask | None = None

    @property
    def channel(self) -> str:
        """The broker-side name."""
        return self.options.channel

    # -- the protocol

    async def publish(self, notification: BusNotification) -> None:
        """Encode, queue and return; see `NotificationBus.publish`."""
        self._check_open()
        self.hand_off(self.encode(notification))
        # The turn comes after the hand-off: who is cancelled here has published.
        await checkpoint()

    def subscribe(self) -> Stream:
        """A subscription; see `NotificationBus.subscribe`."""
        return self.stream_type(self, self.options.buffer)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the broker has confirmed this instance's subscription."""
        limit = self.options.ready_timeout if timeout is None else timeout
        with anyio.move_on_after(limit):
            while True:
                self._check_open()
                if self.connection is not None:
                    return
                await self.changed.wait()
        raise BusNotReadyError(f"not ready after {limit:g} s: {self.outage or 'the broker has not answered'}")

    # -- subscriptions

    async def open_stream(self, stream: Stream) -> None:
        """Make a subscription ready. Registered after the last await, so a cancelled entering leaves nothing behind."""
        await self.wait_ready()
        self.streams[stream] = None

    def close_stream(self, stream: Stream) -> None:
        """Forget a subscription."""
        self.streams.pop(stream, None)

    def deliver(self, notification: BusNotification) -> None:
        """Hand a notification to every subscription, whatever state the others are in."""
        for stream in self.streams:
            stream.put(notification)

    def announce_gap(self) -> None:
        """Tell every subscription of a gap."""
        for stream in self.streams:
            stream.gap()

    def dropped(self, where: str, text: str, count: int = 1) -> None:
        """Warn of a drop, at most once an interval, with the number of them."""
        self.floods.add(f"dropped:{where}", f"dropped a notification: {text}", count)

    # -- the way out

    def encode(self, notification: object) -> bytes:
        """The body, or an error that tells the caller what to change."""
        if not isinstance(notification, BusNotification):
            raise TypeError(f"publish takes a BusNotification, not {type(notification).__name__}")
        body = notification.encode()
        if (size := self.size_of(body)) > self.max_body:
            raise NotificationTooLargeError(size, self.max_body)
        return body

    def size_of(self, body: bytes) -> int:
        """What counts against the limit."""
        return len(body)

    def hand_off(self, body: bytes) -> None:
        """Queue a body, at the cost of the oldest where the outbox is full."""
        if len(self.outbox) >= self.options.outbox:
            self.outbox.popleft()
            self.dropped("outbox", "too many wait to be sent; the oldest goes first")
            self.owe_gap()
        self.outbox.append(body)
        self.ring()

    def owe_gap(self) -> None:
        """Something that was published may be lost: the peers are told ahead of the next thing that is sent."""
        self.owes_gap = True

    def ring(self) -> None:
        """Wake everything that waits for a change, to look again."""
        self.changed.set()
        self.changed = anyio.Event()

    async def write(self, connection: BrokerConnection) -> None:
        """Send what is queued, in batches, for as long as the connection lasts."""
        while True:
            bodies = self.take_batch()
            if not bodies:
                await self.changed.wait()
                continue
            self.sending = True
            await self.send(connection, bodies)
            self.sending = False
            self.ring()

    def take_batch(self) -> list[bytes]:
        """What is to be sent next: what is queued, then a probe that is due, and before either a gap that is owed."""
        bodies = list(self.outbox)
        self.outbox.clear()
        if self.owes_gap and (bodies or self._probe_due):
            self.owes_gap = False
            bodies.insert(0, GAP.encode())
        # Counted before it is sent: if the connection breaks in the middle, all of it is in doubt.
        self._sent += len(bodies)
        if self._probe_due:
            self._probe_due = False
            self._marks[self._probes] = self._sent
            bodies.append(self.probe_body(self._probes))
        return bodies

    def probe_body(self, number: int) -> bytes:
        """The probe that travels the way of everything else."""
        return BusNotification(PROBE, {"instance": self.instance, "number": number}).encode()

    async def send(self, connection: BrokerConnection, bodies: list[bytes]) -> None:
        """Send once. A send that fails is not repeated: it may have arrived."""
        try:
            await connection.send(bodies)
        except SendRefusedError as exc:
            self.dropped("refused", str(exc), len(bodies))
            self.owe_gap()

    # -- the way in

    async def read(self, connection: BrokerConnection) -> None:
        """Deliver what arrives, for as long as the connection lasts."""
        async with aclosing(cast("AsyncGenerator[Sequence[bytes]]", connection.receive())) as batches:
            async for batch in batches:
                for body in batch:
                    self.receive(body)
                    # A batch can be longer than the buffers: its readers need their turns in between.
                    await checkpoint()
        raise ConnectionError("the broker ended the subscription")

    def receive(self, body: bytes) -> None:
        """One body has arrived."""
        try:
            notification = self.decode(body)
        except MalformedBodyError as exc:
            self.floods.add("malformed", f"skipped a body that is no notification: {exc}")
            return
        if notification.method == PROBE:
            self.on_probe(notification)
        elif notification.method == GAP.method:
            self.announce_gap()
        else:
            self.deliver(notification)

    def decode(self, body: bytes) -> BusNotification:
        """Read a body, or raise `MalformedBodyError`."""
        return BusNotification.decode(body)

    # -- liveness

    async def prove(self, connection: BrokerConnection) -> None:
        """Have a probe come back now and then, and fail where it does not."""
        while True:
            self._probes += 1
            self._probe_due = True
            self.ring()
            with anyio.move_on_after(self.options.probe_timeout):
                while self._probe_due or self._probes in self._marks:
                    await self.changed.wait()
            if self._probe_due or self._probes in self._marks:
                raise ConnectionError(f"a probe did not come back within {self.options.probe_timeout:g} s")
            await anyio.sleep(self.options.probe_interval)

    def on_probe(self, notification: BusNotification) -> None:
        """An own probe that comes back proves that everything sent before it has reached the broker."""
        params = notification.params or {}
        number = params.get("number")
        if params.get("instance") == self.instance and isinstance(number, int) and number in self._marks:
            self._proven = self._marks.pop(number)
            self.attempt = 0
            self.outage = None
            self.ring()

    # -- the connection

    async def supervise(self) -> None:
        """Connect, again and again, for as long as the bus is open."""
        while True:
            try:
                await self.live()
            except Exception as exc:
                # Whatever a connection fails by means one thing: make another.
                self.on_outage(exc)
            await anyio.sleep(self.next_delay())

    def next_delay(self) -> float:
        """Seconds to wait before the next attempt: none at first, then growing with jitter up to the cap."""
        self.attempt += 1
        if self.attempt == 1:
            return 0.0
        return uniform(0.5, 1.0) * min(self.options.backoff_cap, 0.01 * 2.0 ** min(self.attempt, 10))

    def on_outage(self, exc: Exception) -> None:
        """Warn once an outage, not once an attempt. An outage is over when a probe has come back."""
        if self.outage is None:
            _logger.warning("no connection to the broker; trying until there is one: %s", _cause(exc))
        self.outage = _cause(exc)

    async def live(self) -> None:
        """The life of one connection; returns or raises when it is over."""
        with anyio.fail_after(self.options.probe_timeout):
            connection = await self.connect()
        try:
            self.on_connected(connection)
            async with anyio.create_task_group() as tasks:
                for part in (self.read, self.write, self.prove):
                    tasks.start_soon(part, connection)
        finally:
            self.on_disconnected()
            with anyio.CancelScope(shield=True):
                await connection.aclose()

    async def connect(self) -> BrokerConnection:
        """A connection whose subscription the broker has confirmed."""
        self.attachment = await self.hub.connect(self.channel)
        return self.attachment

    def on_connected(self, connection: BrokerConnection) -> None:
        """The gap comes before anything that the new connection brings."""
        self.connection = connection
        self.gap_after_outage()
        self.ring()

    def gap_after_outage(self) -> None:
        """Every subscription that is there was there before this connection, and may have missed something."""
        self.announce_gap()

    def on_disconnected(self) -> None:
        """What was sent and not proven to have arrived is in doubt: it is not sent again, but told of."""
        self.connection = None
        self.sending = self._probe_due = False
        if self._sent > self._proven:
            self.owe_gap()
        self._sent = self._proven = 0
        self._marks.clear()
        self.ring()

    # -- starting and stopping; the counting is in ReferenceCounted

    def _start(self) -> None:
        self.attempt = 0
        self.outage = None
        self.changed = anyio.Event()  # the one of the last run may belong to another loop
        self._supervisor = BackgroundTask(self.supervise, f"supervisor of a {type(self).__name__}")

    async def _stop(self) -> None:
        self.ring()
        with anyio.move_on_after(self.options.close_timeout / 2):
            await self.flush()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await self._supervisor.wait()
        self._forget()

    async def flush(self) -> None:
        """Wait until everything queued has been sent, or cannot be."""
        while self.connection is not None and (self.outbox or self.sending):
            await self.changed.wait()

    def _forget(self) -> None:
        self._supervisor = self.connection = None
        self.outbox.clear()
        for stream in tuple(self.streams):
            self.close_stream(stream)
            stream.finish()
        self.floods.flush(force=True)


def _cause(exc: BaseException) -> str:
    """The first error of a group, for the others are its consequences."""
    group: Any = exc
    while isinstance(group, BaseExceptionGroup):
        group = cast("Any", group).exceptions[0]
    return repr(group)
