"""`BrokerBus`: everything that is the same for every broker. An adapter adds `connect`."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self, Unpack, cast
from urllib.parse import urlencode

import anyio

from notification_bus._broker.ledger import Ledger
from notification_bus._broker.outbox import BURST
from notification_bus._broker.remedy import remedy
from notification_bus._broker.supervisor import Supervisor
from notification_bus._fanout import Buffer, Subscription
from notification_bus._lifecycle import ReferenceCounted
from notification_bus._loops import backend_name, current_loop, turn
from notification_bus.connection import BrokerConnection
from notification_bus.errors import BusBackendError, BusClosedError, BusNotReadyError
from notification_bus.notification import DEFAULT_MAX_BODY, BusNotification, encode_body
from notification_bus.options import BusOptions, OptionValues
from notification_bus.stats import BusStats
from notification_bus.url import redact, split_url

__all__ = ["BrokerBus"]


class BrokerBus(ReferenceCounted, ABC):
    """A `NotificationBus` over a broker. Keeps the whole contract; an adapter implements `connect`.

    It owns the outbox and its writer, the reader, reconnecting, liveness, gaps, the local subscriptions, size checks,
    counting and closing. Entering starts it and does not wait: a server must come up while its broker is down.

    Args:
        address: The broker as logs and errors may show it, without credentials.
        channel: The broker-side name. One name is one logical bus.
        secrets: What must never be shown, such as the password: redacted from what the client's errors say.
        options: See `BusOptions`.

    Raises:
        BusURLError: An option is of the wrong type or out of range.
    """

    broker: ClassVar[str] = "broker"
    """The broker's name: the last part of the logger's name, `notification_bus.<broker>`."""

    backends: ClassVar[Sequence[str]] = ("asyncio", "trio")
    """The async libraries that the adapter's client runs on."""

    tls_help: ClassVar[str] = ""
    """How TLS is set up for this broker, in half a sentence; part of the remedies for errors of TLS and time-outs."""

    max_body: int = DEFAULT_MAX_BODY
    """Bytes of the largest body that this bus carries."""

    def __init__(
        self, address: str, *, channel: str, secrets: Sequence[str] = (), **options: Unpack[OptionValues]
    ) -> None:
        super().__init__()
        self.address = address
        self.options: BusOptions = BusOptions(channel=channel, **options)
        self._logger = logging.getLogger(f"notification_bus.{self.broker}")
        self._ledger = Ledger(repr(self), self._logger, self.options)
        self._secrets = tuple(secrets)
        self._supervisor: Supervisor | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Build from a URL with this library's options in its query, `channel` at least.

        The rest of the URL goes to the class as its first argument, the client's own options included.

        Raises:
            BusURLError: The URL cannot be read, or an option is unknown or out of range.
        """
        server, ours, theirs = split_url(url)
        channel = str(ours.pop("channel", ""))
        if theirs:
            server = f"{server}?{urlencode(theirs)}"
        return cls(server, channel=channel, **cast("OptionValues", ours))

    @abstractmethod
    async def connect(self) -> BrokerConnection:
        """Make one connection whose subscription the broker has confirmed. One try at one host, with no retries.

        May be cancelled at any await, and then leaves nothing open. What it raises is reported, each cause once in an
        outage, and tried again: at once, then backing off. An adapter with several hosts puts one that failed last.
        """

    def remedy(self, exc: BaseException) -> str | None:
        """Return what a user can do about this error, in half a sentence; `None` if nothing is known.

        Knows the operating system's errors. An adapter adds those of its client, and returns this for the rest.
        """
        return remedy(exc, self.tls_help)

    @property
    def channel(self) -> str:
        """The broker-side name."""
        return self.options.channel

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} channel={self.channel!r}>"

    async def publish(self, notification: BusNotification) -> None:
        """Queue a notification for every subscription of every replica, this one included, and return.

        Never waits for the broker and never raises for its trouble. A cancelled call has published.

        Raises:
            NotificationTooLargeError: The body has more than `max_body` bytes.
            BusClosedError: The bus is not open.
        """
        self._check_open()
        body = encode_body(notification, self.max_body)
        self._ledger.counters["published"] += 1
        outbox = self._ledger.outbox
        outbox.put(body)
        waiting = len(outbox)
        if waiting % BURST == 0 or 2 * waiting > self.options.outbox:
            # Without this a burst from one task would keep the writer from running until the outbox overflows. A single
            # publish does not yield: its caller would wait for the writer's work.
            await turn()

    def subscribe(self) -> Subscription:
        """Return a subscription: a context manager that is ready once entered, and yields an iterator of notifications.

        Raises:
            BusNotReadyError: On entering, if the broker does not confirm within `ready_timeout`.
            BusClosedError: On entering, if the bus is not open.
        """
        return Subscription(self._open_buffer, self._remove_buffer)

    async def _open_buffer(self) -> Buffer:
        await self.wait_ready()
        # No await between seeing the connection up and opening the buffer: nothing can be missed in between.
        return self._ledger.fanout.open()

    def _remove_buffer(self, buffer: Buffer) -> None:
        self._ledger.fanout.remove(buffer)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait for the broker's confirmation.

        Args:
            timeout: Seconds; `None` takes `ready_timeout`.

        Raises:
            BusNotReadyError: No confirmation in time. Names each cause; `__cause__` is the last native error.
            BusClosedError: The bus is not open, or was closed meanwhile.
        """
        self._check_open()
        supervisor = self._supervisor
        assert supervisor is not None  # noqa: S101  # an open bus has one
        limit = self.options.ready_timeout if timeout is None else timeout
        with anyio.move_on_after(limit):
            while not supervisor.connected:
                await supervisor.wait_changed()
                if self._supervisor is not supervisor:
                    raise BusClosedError(f"{self!r} was closed while waiting for the broker")
            return
        cause = supervisor.causes or "the broker has not answered yet"
        raise BusNotReadyError(f"{self!r} is not ready after {limit:g} s: {cause}") from supervisor.last_exception

    def stats(self) -> BusStats:
        """Return what the bus has counted up to now."""
        return self._ledger.counters.snapshot(len(self._ledger.fanout))

    def describe(self, exc: BaseException | None) -> str:
        """Return an error in one line for logs: its type, text and remedy, without secrets."""
        if exc is None:
            return "the client gave no reason"
        text = " ".join(f"{type(exc).__name__}: {exc}".split()) if str(exc) else type(exc).__name__
        remedy = self.remedy(exc)
        text = f"{text} ({remedy})" if remedy else text
        return redact(text, self._secrets)

    def _start(self) -> None:
        backend = backend_name(current_loop())
        if backend not in self.backends:
            raise BusBackendError(
                f"{type(self).__name__} runs on {' or '.join(self.backends)} only, since its client library does, "
                f"and this is {backend}: start your server with anyio.run(..., backend={self.backends[0]!r})"
            )
        self._ledger.renew()
        self._ledger.counters.mark(connected=False)
        self._supervisor = Supervisor(self._ledger, self._logger, self._connect, self.describe)

    async def _connect(self) -> BrokerConnection:
        connection = await self.connect()
        self.max_body = connection.max_body
        return connection

    async def _stop(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.stop(self.options.close_timeout)
        self._ledger.close()
        self._ledger.counters.close()

    def _forget(self) -> None:
        self._supervisor = None
        self._ledger.renew()
