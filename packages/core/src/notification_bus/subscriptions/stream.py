"""One stream: what a server's handler reads from, and sends on."""

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast, final

import anyio

from notification_bus._loops import turn
from notification_bus.notification import BusNotification
from notification_bus.subscriptions._keys import ACKNOWLEDGED, LIST_METHODS, SUBSCRIPTION_ID, UPDATED, Key
from notification_bus.subscriptions._mailbox import Mailbox
from notification_bus.subscriptions._table import StreamTable
from notification_bus.subscriptions.filter import SubscriptionFilter

__all__ = ["SubscriptionId", "SubscriptionMessage", "SubscriptionStream"]

_TURN: Final = 64
"""Messages that a reader takes from a full mailbox before it gives the event loop a turn."""

SubscriptionId: TypeAlias = int | str
"""The id of the request that opened a stream, as its client wrote it: `1` and `"1"` are two ids."""


class SubscriptionMessage(NamedTuple):
    """A JSON-RPC notification, ready to be sent: `params` is an object of this message alone."""

    method: str
    params: dict[str, Any]

    @property
    def uri(self) -> str | None:
        """The resource that was updated; `None` in a message of another kind."""
        return self.params["uri"] if self.method == UPDATED else None

    @property
    def is_acknowledgment(self) -> bool:
        """Whether it is the first message of its stream, which tells of no change."""
        return self.method == ACKNOWLEDGED

    def to_wire(self) -> dict[str, Any]:
        """`{"method": …, "params": …}`: what a transport adds `"jsonrpc"` to."""
        return {"method": self.method, "params": self.params}


class Admitted(NamedTuple):
    """What opening a stream gave it."""

    mailbox: Mailbox
    accepted: SubscriptionFilter
    table: StreamTable
    admits: Callable[[int, str], bool]
    """Whether one more URI, after so many, can be pushed. Raises where a limit is reached."""

    deadline: float | None


@final
class SubscriptionStream(AsyncIterator[SubscriptionMessage]):
    """A stream of messages for one client: the context that `listen` returns, and the iterator that entering it yields.

    * The first message is the acknowledgment, always; it holds the accepted filter.
    * Each message carries the stream's id in `params._meta["io.modelcontextprotocol/subscriptionId"]`.
    * What changed twice before it was read is told once. A reader that is slow, or stops, loses nothing and costs
      nobody anything.
    * The iteration ends when the registry drains, after `end`, or after the registry's `max_lifetime`: then the client
      is owed a final result. A client that went away is seen as the cancellation of the task that serves it, or as an
      error from the transport; both pass through. So a loop that ran to its end is a graceful end.
    * A cancelled read loses nothing.

    Leaving the context, from any task and any number of times, ends the iteration at once. It also tells a draining
    registry that the final result has been handed over, unless `defer_result` was called before.
    """

    __slots__ = ("_acknowledged", "_admit", "_admitted", "_changed", "_left", "_reading", "_streak", "subscription_id")

    def __init__(self, subscription_id: SubscriptionId, admit: Callable[[], Awaitable[Admitted]]) -> None:
        self.subscription_id: SubscriptionId = subscription_id
        self._admit = admit
        self._admitted: Admitted | None = None
        self._acknowledged = False
        self._changed = False
        self._left = False
        self._reading = False
        self._streak = 0

    @property
    def accepted(self) -> SubscriptionFilter:
        """What this stream carries: what was asked for and can be pushed."""
        admitted = self._entered()
        if self._changed:
            uris = tuple(key for key in admitted.mailbox.keys if isinstance(key, str))
            self._admitted = admitted = admitted._replace(
                accepted=replace(admitted.accepted, resource_subscriptions=uris)
            )
            self._changed = False
        return admitted.accepted

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` that names this stream, for the final result. A new object at each call."""
        return {SUBSCRIPTION_ID: self.subscription_id}

    def watch(self, uri: str) -> bool:
        """Carry the updates of one more resource, those published from now on.

        For clients that name one resource after the other: over a websocket, or by `resources/subscribe` of MCP's
        earlier revisions. The bus has been ready since the stream was opened, so there is nothing to wait for.

        Returns:
            Whether they are carried; not where the server cannot push updates, or the stream has ended.

        Raises:
            SubscriptionLimitError: The stream would name too many URIs, or this one is too long.
            InvalidFilterError: It is no string, or cannot be written as UTF-8.
        """
        admitted = self._entered()
        mailbox = admitted.mailbox
        if self._left or mailbox.closed:
            return False
        if not isinstance(uri, str) or uri not in mailbox.keys:
            lists = sum(isinstance(key, int) for key in mailbox.keys[: len(LIST_METHODS)])
            if not admitted.admits(len(mailbox.keys) - lists, uri):
                return False
            admitted.table.watch(mailbox, uri)
            self._changed = True
        return True

    def unwatch(self, uri: str) -> None:
        """Carry the updates of a resource no more; what waits to be told of it is not told. Any number of times."""
        admitted = self._entered()
        mailbox = admitted.mailbox
        if isinstance(uri, str) and uri in mailbox.keys and not (self._left or mailbox.closed):
            admitted.table.unwatch(mailbox, uri)
            self._changed = True

    def look_again(self) -> None:
        """Have all that the stream carries told as changed, as after a gap: for a client that has missed something."""
        self._entered().mailbox.mark_all()

    def end(self) -> None:
        """End gracefully: what waits can still be read, then the iteration ends."""
        admitted = self._entered()
        admitted.table.end(admitted.mailbox)

    def defer_result(self) -> Callable[[], None]:
        """Keep a draining registry waiting after this stream has been left, until the returned function is called.

        For a handler whose final result is written by somebody else after it has returned. Call it before leaving the
        context. The function may be called any number of times.
        """
        return self._entered().table.defer()

    def _entered(self) -> Admitted:
        if self._admitted is None:
            raise RuntimeError("this stream has not been entered: use `async with registry.listen(…) as stream`")
        return self._admitted

    async def __aenter__(self) -> Self:
        if self._admitted is not None or self._left:
            raise RuntimeError("this stream has been entered before: call listen() for each `async with`")
        self._admitted = await self._admit()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._left = True
        if self._admitted is not None:
            self._admitted.table.remove(self._admitted.mailbox)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SubscriptionMessage:
        admitted = self._entered()
        if not self._acknowledged and not self._left:
            # Whatever has happened since the entering waits in the mailbox, an end included: this comes first.
            self._acknowledged = True
            return SubscriptionMessage(ACKNOWLEDGED, {"notifications": self.accepted.to_wire(), "_meta": self.meta})
        if self._reading:
            raise anyio.BusyResourceError("reading from")
        self._reading = True
        try:
            if admitted.deadline is None:
                return await self._next(admitted.mailbox)
            # A reader that waits is interrupted by it, and one that always finds something where it gives its turn.
            with anyio.CancelScope(deadline=admitted.deadline):
                return await self._next(admitted.mailbox)
            admitted.table.end(admitted.mailbox)
            return await self._next(admitted.mailbox)
        finally:
            self._reading = False

    async def _next(self, mailbox: Mailbox) -> SubscriptionMessage:
        # A reader of a full mailbox never waits, so it must give turns by itself; and the taking comes after every
        # await, so that a read cancelled in one has taken nothing.
        if self._streak >= _TURN:
            self._streak = 0
            await turn()
        while (found := mailbox.pop()) is None:
            if mailbox.closed:
                raise StopAsyncIteration
            self._streak = 0
            await mailbox.wait()
        self._streak += 1
        return self._message(*found)

    def _message(self, key: Key, notification: BusNotification | None) -> SubscriptionMessage:
        params: dict[str, Any]
        if isinstance(key, int):
            method = LIST_METHODS[key]
            params = {} if notification is None else cast("dict[str, Any]", notification.params or {})
        else:
            method = UPDATED
            params = {"uri": key} if notification is None else cast("dict[str, Any]", notification.params)
        # `params` is a copy of this message's own. What others put into `_meta` stays, but for the name of the stream.
        meta = params.get("_meta")
        params["_meta"] = {**cast("dict[str, Any]", meta), **self.meta} if isinstance(meta, dict) else self.meta
        return SubscriptionMessage(method, params)

    def __del__(self) -> None:
        if self._admitted is not None and not self._left:
            # The collector may run this in any thread: the table only takes note, and removes the mailbox later.
            self._admitted.table.abandon(self._admitted.mailbox)
            warnings.warn(
                "a subscription stream was dropped without being left", ResourceWarning, source=self, stacklevel=1
            )
