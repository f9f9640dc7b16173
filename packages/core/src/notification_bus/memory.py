"""`MemoryBus`: the contract within one process, for development, tests and servers with a single replica."""

import logging
from typing import Self, Unpack, cast
from weakref import WeakValueDictionary

from anyio.lowlevel import RunVar

from notification_bus._fanout import Buffer, Fanout, Subscription
from notification_bus._floodlog import FloodLog
from notification_bus._lifecycle import ReferenceCounted
from notification_bus._loops import turn
from notification_bus.errors import BusURLError
from notification_bus.notification import DEFAULT_MAX_BODY, BusNotification, encode_body
from notification_bus.options import BusOptions, OptionValues
from notification_bus.stats import BusStats, Counters
from notification_bus.url import refuse_unknown, split_url

__all__ = ["MemoryBus"]

_logger = logging.getLogger("notification_bus.memory")


class _Channel:
    """The open buses of one channel name in one event loop."""

    def __init__(self) -> None:
        self.members: set[MemoryBus] = set()


_channels: RunVar[WeakValueDictionary[str, _Channel]] = RunVar("notification_bus_memory_channels")


class MemoryBus(ReferenceCounted):
    """A bus without a broker: it reaches the buses of the same channel name in this process and event loop.

    It keeps the contract of `NotificationBus`; there is no connection to lose. It is entered before use like every
    other bus, so code that works with it works with a broker.

    Args:
        channel: The name that buses share; `None` for a bus that shares with no other.
        max_body: Bytes of the largest body.
        options: See `BusOptions`. Those about a broker have no effect here.
    """

    def __init__(
        self, channel: str | None = None, *, max_body: int = DEFAULT_MAX_BODY, **options: Unpack[OptionValues]
    ) -> None:
        super().__init__()
        self.channel = channel
        self.max_body = max_body
        self.options: BusOptions = BusOptions(channel="private" if channel is None else channel, **options)
        self._counters = Counters()
        self._floods = FloodLog(_logger)
        self._fanout = Fanout(self.options.buffer, self._on_drop)
        self._shared: _Channel | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Build from `memory://?channel=name`; without a channel the bus shares with no other."""
        base, ours, theirs = split_url(url)
        if base != "memory://":
            # `memory://board` was meant to reach others; ignoring the host would give a bus that hears nobody.
            raise BusURLError("memory:// has no host: name the channel, as in 'memory://?channel=board'")
        refuse_unknown(theirs)
        channel = cast("str | None", ours.pop("channel", None))
        return cls(channel, **cast("OptionValues", ours))

    def __repr__(self) -> str:
        return f"<MemoryBus channel={self.channel!r}>"

    async def publish(self, notification: BusNotification) -> None:
        """Hand a notification to every subscription of the channel. Never waits for a subscriber.

        Raises:
            NotificationTooLargeError: The body has more than `max_body` bytes.
            BusClosedError: The bus is not open.
        """
        self._check_open()
        encode_body(notification, self.max_body)
        self._counters["published"] += 1
        assert self._shared is not None  # noqa: S101  # an open bus has one
        for bus in self._shared.members:
            bus._deliver(notification)  # noqa: SLF001  # one of the same class
        await turn()

    def _deliver(self, notification: BusNotification) -> None:
        self._counters["delivered"] += self._fanout.deliver(notification)

    def subscribe(self) -> Subscription:
        """Return a subscription, which is ready at once: there is no broker to wait for."""
        return Subscription(self._open_buffer, self._remove_buffer)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Return at once: an open bus without a broker is ready."""
        self._check_open()

    def stats(self) -> BusStats:
        """Return what the bus has counted up to now."""
        return self._counters.snapshot(len(self._fanout))

    async def _open_buffer(self) -> Buffer:
        self._check_open()
        return self._fanout.open()

    def _remove_buffer(self, buffer: Buffer) -> None:
        self._fanout.remove(buffer)

    def _on_drop(self, count: int) -> None:
        self._counters.dropped["buffer"] += count
        self._floods.add("dropped:buffer", f"a subscription of {self!r} reads too slowly: dropped its oldest", count)

    def _start(self) -> None:
        if self.channel is None:
            channel = _Channel()
        else:
            known = _channels.get(None)
            if known is None:
                known = WeakValueDictionary[str, _Channel]()
                _channels.set(known)
            channel = known.setdefault(self.channel, _Channel())
        self._shared = channel
        channel.members.add(self)
        self._counters.mark(connected=True)

    async def _stop(self) -> None:
        self._fanout.close()
        self._leave()

    def _forget(self) -> None:
        # Readers are not woken: they waited in a closed loop, or in another process.
        self._fanout = Fanout(self.options.buffer, self._on_drop)
        self._leave()

    def _leave(self) -> None:
        if self._shared is not None:
            self._shared.members.discard(self)
            self._shared = None
        self._floods.flush(force=True)
        self._counters.close()
