"""A session: the writer, the reader and the prober of one connection. The first that fails ends all three."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from notification_bus._broker.ledger import Ledger
from notification_bus._broker.liveness import CONTROL_PREFIX, GAP_METHOD, PROBE_METHOD, Peers, Probe, may_be_control
from notification_bus._broker.outbox import BURST
from notification_bus._loops import clock, turn
from notification_bus.connection import BrokerConnection
from notification_bus.errors import EchoLostError, MalformedBodyError, NotPrimaryError, SendRefusedError
from notification_bus.notification import GAP, BusNotification, decode_bodies, encode_frame

__all__ = ["Session"]

_TURN: Final = 64
"""Bodies that the reader delivers at most before it yields to the subscribers; never more than half of a buffer, or
healthy subscribers would overflow."""

_BATCH: Final = 200
_BATCH_BYTES: Final = 1_000_000
_FRAME: Final = 100
_FRAME_BYTES: Final = 60_000
_FRAMES: Final = 8

_SLICES: Final = 8
"""Parts in which the time for a probe is waited: an event loop that was blocked uses up one, not the whole time."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """What a returned probe confirms."""

    number: int
    sent: int
    gap: int


class Session:
    """Runs one connection until it fails or is closed. Nothing taken from the outbox is put back: at most once."""

    def __init__(
        self, ledger: Ledger, connection: BrokerConnection, peers: Peers, on_proven: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._on_proven = on_proven
        self._connection = connection
        self._scope = anyio.CancelScope()
        self._cause: BaseException | None = None
        self._peers = peers
        self._marks: deque[_Mark] = deque()
        self._sent = 0
        self._confirmed = 0
        self._number = 0
        self._probe: Probe | None = None
        self._answered = anyio.Event()
        self._refusal: SendRefusedError | None = None
        self._batch = _FRAME * _FRAMES if ledger.options.frames else _BATCH
        self._now = clock()
        self._heard_at = self._now()
        self._sending = False
        self._idle: anyio.Event | None = None
        self._over = False

    @property
    def in_doubt(self) -> int:
        """Notifications handed to the connection that no returned probe has confirmed."""
        return self._sent - self._confirmed

    @property
    def refused(self) -> bool:
        """True if the broker refused the last batch."""
        return self._refusal is not None

    async def run(self) -> BaseException | None:
        """Run until the connection fails. Returns the cause, or `None` if it ended without one."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for half in (self._write, self._read, self._prove):
                        tasks.start_soon(self._guard, half)
        finally:
            self._over = True
            self._wake_flush()
        return self._cause

    async def _guard(self, half: Callable[[], Awaitable[None]]) -> None:
        # Any end of one half ends the session: also a clean return, and a cancellation that escapes a client library. A
        # reader that ends unnoticed is the fault that this library exists to prevent.
        try:
            await half()
        except Exception as exc:
            self._cause = self._cause or exc
        finally:
            self._scope.cancel()

    async def flush(self) -> bool:
        """Send everything queued, then a leaving probe. Returns False if the connection failed before that."""
        self._probe = Probe(self._ledger.instance, self._next_number(), self._peers.interval, leaving=True)
        self._ledger.outbox.ring()
        while not self._over and (self._sending or self._probe is not None or len(self._ledger.outbox)):
            self._idle = anyio.Event()
            await self._idle.wait()
        return not self._over

    def _wake_flush(self) -> None:
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    # -- the publishing half

    async def _write(self) -> None:
        ledger = self._ledger
        while True:
            await ledger.outbox.wait()
            await ledger.outbox.gather(BURST, self._batch)
            bodies, notifications = self._take()
            probe = self._probe
            if probe is not None:
                self._probe = None
                bodies.append(probe.encode())
            if ledger.debt.due:
                # The gap goes first: what was dropped is older than what is left.
                gap = BusNotification(GAP_METHOD, {"from": ledger.instance, "epoch": ledger.debt.send()})
                bodies.insert(0, gap.encode())
                ledger.counters["gaps"] += 1
            if bodies:
                # ReferenceCounted before the sending: if it breaks in the middle, these are in doubt too.
                self._sent += notifications
                self._sending = True
                if probe is not None:
                    self._marks.append(_Mark(probe.number, self._sent, ledger.debt.sent))
                await self._send(bodies, notifications)
                if probe is not None and not probe.leaving:
                    await self._check()
                self._sending = False
            self._wake_flush()

    async def _check(self) -> None:
        try:
            await self._connection.check()
        except NotPrimaryError:
            # Probes have confirmed what was published here, but it reached nobody on the primary.
            self._ledger.debt.incur()
            raise

    def _take(self) -> tuple[list[bytes], int]:
        ledger, limit = self._ledger, self._connection.max_body
        taken = ledger.outbox.take(self._batch, _BATCH_BYTES)
        bodies = [body for body in taken if len(body) <= limit]
        if len(bodies) < len(taken):
            ledger.dropped("too_large", f"the broker now carries at most {limit} bytes", len(taken) - len(bodies))
        return bodies, len(bodies)

    async def _send(self, bodies: list[bytes], notifications: int) -> None:
        messages = bodies
        if self._ledger.options.frames and len(bodies) > 1:
            messages = _pack(bodies, min(_FRAME_BYTES, self._connection.max_body))
        try:
            await self._connection.send(messages)
        except SendRefusedError as exc:
            self._refused(exc, notifications)
        else:
            self._refusal = None

    def _refused(self, exc: SendRefusedError, notifications: int) -> None:
        # With frames or a gap in the batch it is unknown which notifications were refused: count up to all of them.
        refused = notifications if exc.count is None else min(notifications, exc.count)
        self._sent -= refused
        first, self._refusal = self._refusal is None, exc
        self._marks.clear()
        self._ledger.debt.refused()
        if refused:
            self._ledger.dropped("refused", f"the broker refused to publish: {exc}", refused)
        else:
            self._ledger.counters.last_error = str(exc)
            if first:
                # Only a probe was refused. Logged once: the instance may be one that is only allowed to listen.
                self._ledger.floods.add("refused", f"{self._ledger.name}: the broker refuses to publish: {exc}")
        self._answered.set()

    # -- the receiving half

    async def _read(self) -> None:
        batches = self._connection.receive()
        try:
            await self._deliver(batches)
        finally:
            if isinstance(batches, AsyncGenerator):
                # If cancelled between two batches, the generator would be left to the garbage collector.
                with anyio.move_on_after(self._ledger.options.close_timeout / 2, shield=True):
                    await batches.aclose()
        raise ConnectionError("the broker ended the subscription")

    async def _deliver(self, batches: AsyncIterator[Sequence[bytes | str]]) -> None:
        ledger = self._ledger
        patience = room = min(_TURN, max(1, ledger.options.buffer // 2))
        async for batch in batches:
            self._heard_at = self._now()
            # Without subscriptions, as in a process that only publishes, only probes and gaps are decoded.
            reading = bool(ledger.fanout)
            arrived: list[BusNotification] = []
            for data in batch:
                notifications, errors = decode_bodies(data) if reading or may_be_control(data) else ((), ())
                if errors:
                    ledger.malformed(errors)
                if not notifications:
                    room -= 1
                arrived += notifications
                while len(arrived) >= room:
                    self._hand_out(arrived[:room])
                    arrived, room = arrived[room:], patience
                    await turn()
            self._hand_out(arrived)
            room -= len(arrived)

    def _hand_out(self, notifications: Sequence[BusNotification]) -> None:
        """Deliver to the subscriptions, in order. Probes and gaps are handled here."""
        ledger = self._ledger
        ready: list[BusNotification] = []
        for notification in notifications:
            if notification.method.startswith(CONTROL_PREFIX):
                ledger.counters["delivered"] += ledger.fanout.deliver(*ready)
                ready = []
                self._control(notification)
            else:
                ready.append(notification)
        ledger.counters["delivered"] += ledger.fanout.deliver(*ready)

    def _control(self, notification: BusNotification) -> None:
        if notification.method == PROBE_METHOD:
            probe = Probe.read(notification)
            if probe is None:
                self._ledger.malformed([MalformedBodyError("it is a liveness probe with params that cannot be read")])
            elif probe.instance != self._ledger.instance:
                self._peers.heard(probe, self._now())
            elif not probe.leaving:
                self._echoed(probe)
        elif notification.method == GAP_METHOD:
            params = notification.params or {}
            epoch = params.get("epoch")
            own = params.get("from") == self._ledger.instance and isinstance(epoch, int)
            if not own or self._ledger.debt.is_news(epoch if isinstance(epoch, int) else 0):
                self._ledger.counters["gaps"] += 1
                self._ledger.fanout.deliver(GAP)
        else:
            # Perhaps a control method of a later version; subscribers ignore it like any unknown method.
            self._ledger.counters["delivered"] += self._ledger.fanout.deliver(notification)

    def _echoed(self, probe: Probe) -> None:
        if not self._marks or probe.number < self._marks[0].number:
            return  # sent on an earlier connection
        while self._marks and self._marks[0].number <= probe.number:
            mark = self._marks.popleft()
            self._confirmed = max(self._confirmed, mark.sent)
            self._ledger.debt.pay(mark.gap)
        if probe.number == self._number:
            self._on_proven()
            self._answered.set()

    # -- liveness

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    async def _prove(self) -> None:
        options = self._ledger.options
        while True:
            probed_at = self._now()
            self._answered = anyio.Event()
            self._probe = Probe(self._ledger.instance, self._next_number(), self._peers.interval)
            self._ledger.outbox.ring()
            for _ in range(_SLICES):
                with anyio.move_on_after(options.probe_timeout / _SLICES):
                    await self._answered.wait()
                    break
            else:
                raise EchoLostError(
                    f"what this instance published did not come back within {options.probe_timeout:g} s: "
                    "the link is dead, or the broker confirms and does not deliver"
                )
            now = self._now()
            if self._refusal is not None and now - self._heard_at > 3 * options.probe_interval:
                raise ConnectionError(f"nothing heard, and no probe can prove the link: {self._refusal}")
            if self._peers.all_lost(now):
                # Probes have confirmed what was published here, but it may have reached nobody else.
                self._ledger.debt.incur()
                raise ConnectionError(
                    "every other instance fell silent at once: this node may be one that they have left"
                )
            # In a large fleet each instance probes rarely; the probes of the others then prove the receiving half. If
            # nothing comes in, the stated interval holds.
            while True:
                now = self._now()
                due = min(probed_at + self._peers.interval, max(self._heard_at, probed_at) + options.probe_interval)
                if now >= due:
                    break
                await anyio.sleep(due - now)


def _pack(bodies: Sequence[bytes], limit: int) -> list[bytes]:
    """Pack bodies into frames of limited count and size, in order. A body alone in its frame is sent bare."""
    frames: list[bytes] = []
    part: list[bytes] = []
    size = 2
    for body in bodies:
        if part and (len(part) >= _FRAME or size + len(body) > limit):
            frames.append(encode_frame(part) if len(part) > 1 else part[0])
            part, size = [], 2
        part.append(body)
        size += len(body) + 1
    frames.append(encode_frame(part) if len(part) > 1 else part[0])
    return frames
