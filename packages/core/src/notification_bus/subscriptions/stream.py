"""`SubscriptionStream`: what the handler of a listen request reads from."""

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
"""Messages that a reader takes from a full mailbox before it yields to the event loop."""

SubscriptionId: TypeAlias = int | str
"""The id of the request that opened a stream, as its client wrote it: `1` and `"1"` are two ids."""


class SubscriptionMessage(NamedTuple):
    """A JSON-RPC notification, ready to be sent. `params` belongs to this message alone."""

    method: str
    params: dict[str, Any]

    @property
    def uri(self) -> str | None:
        """The updated resource; `None` in a message of another kind."""
        return self.params["uri"] if self.method == UPDATED else None

    @property
    def is_acknowledgment(self) -> bool:
        """True for the first message of a stream, which is not a change."""
        return self.method == ACKNOWLEDGED

    def to_wire(self) -> dict[str, Any]:
        """`{"method": …, "params": …}`: what a transport adds `"jsonrpc"` to."""
        return {"method": self.method, "params": self.params}


class Admitted(NamedTuple):
    """The result of admitting a stream."""

    mailbox: Mailbox
    accepted: SubscriptionFilter
    table: StreamTable
    admits: Callable[[int, str], bool]
    """Returns whether one more URI, after that many, can be pushed. Raises if a limit is reached."""

    deadline: float | None


@final
class SubscriptionStream(AsyncIterator[SubscriptionMessage]):
    """The messages of one client: the context manager that `listen` returns, and the iterator that it yields.

    * The first message is the acknowledgment, always; it holds the accepted filter.
    * Each message carries the stream's id in `params._meta["io.modelcontextprotocol/subscriptionId"]`.
    * A change that is still unread is not queued again. A slow reader, or one that stops, loses nothing and costs
      others nothing.
    * The iteration ends when the registry drains, after `end`, or after the registry's `max_lifetime`: send the client
      its final result then. A client that disconnects cancels the task that serves it, or makes the transport raise.
      So a loop that runs to its end is a graceful end.
    * A cancelled read loses nothing.

    Leaving the context, from any task and any number of times, ends the iteration at once. A draining registry then
    counts the final result as sent, unless `defer_result` was called before.
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
        """The accepted filter: what was asked for and can be pushed."""
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
        """The `_meta` with the id of this stream, for the final result. A new object at each call."""
        return {SUBSCRIPTION_ID: self.subscription_id}

    def watch(self, uri: str) -> bool:
        """Also carry the updates of a resource that are published from now on.

        For clients that name resources one by one: over a websocket, or by `resources/subscribe` of MCP's earlier
        revisions. Does not wait: the bus has been ready since the stream was opened.

        Returns:
            False if the server cannot push updates or the stream has ended.

        Raises:
            SubscriptionLimitError: The stream would name too many URIs, or this one is too long.
            InvalidFilterError: `uri` is not a string, or cannot be encoded as UTF-8.
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
        """Stop carrying the updates of a resource; an unread one is dropped. May be called any number of times."""
        admitted = self._entered()
        mailbox = admitted.mailbox
        if isinstance(uri, str) and uri in mailbox.keys and not (self._left or mailbox.closed):
            admitted.table.unwatch(mailbox, uri)
            self._changed = True

    def look_again(self) -> None:
        """Report everything in the filter as changed, as after a gap: for a client that has missed something."""
        self._entered().mailbox.mark_all()

    def end(self) -> None:
        """End gracefully: unread messages can still be read, then the iteration ends."""
        admitted = self._entered()
        admitted.table.end(admitted.mailbox)

    def defer_result(self) -> Callable[[], None]:
        """Keep a draining registry waiting, after this stream has been left, until the returned function is called.

        For a handler whose final result is written by its caller, after it has returned. Call it before leaving the
        context. The returned function may be called any number of times.
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
            # Always first: what has happened since entering, an end included, waits in the mailbox.
            self._acknowledged = True
            return SubscriptionMessage(ACKNOWLEDGED, {"notifications": self.accepted.to_wire(), "_meta": self.meta})
        if self._reading:
            raise anyio.BusyResourceError("reading from")
        self._reading = True
        try:
            if admitted.deadline is None:
                return await self._next(admitted.mailbox)
            # Interrupts a waiting reader; a busy one is interrupted where it yields to the loop.
            with anyio.CancelScope(deadline=admitted.deadline):
                return await self._next(admitted.mailbox)
            admitted.table.end(admitted.mailbox)
            return await self._next(admitted.mailbox)
        finally:
            self._reading = False

    async def _next(self, mailbox: Mailbox) -> SubscriptionMessage:
        # A reader of a full mailbox never waits, so it must yield to the loop explicitly. Take only after the last
        # await: a read that is cancelled must not have taken anything.
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
        # `params` is a copy. Foreign members of `_meta` stay, except the id of the stream.
        meta = params.get("_meta")
        params["_meta"] = {**cast("dict[str, Any]", meta), **self.meta} if isinstance(meta, dict) else self.meta
        return SubscriptionMessage(method, params)

    def __del__(self) -> None:
        if self._admitted is not None and not self._left:
            # The garbage collector may run this in any thread: the table removes the mailbox later.
            self._admitted.table.abandon(self._admitted.mailbox)
            warnings.warn(
                "a subscription stream was dropped without being left", ResourceWarning, source=self, stacklevel=1
            )
