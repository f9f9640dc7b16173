"""What the tests of the subscriptions share: one bound for every wait, readers, and a bus that does as it is told."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio

from notification_bus.bus import NotificationBus
from notification_bus.notification import BusNotification
from notification_bus.subscriptions import (
    SubscriptionFilter,
    SubscriptionMessage,
    SubscriptionRegistry,
    SubscriptionStream,
)

BOUND = 10.0
"""Seconds that any wait of a test may take. It is there to fail by, never to be waited for."""

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ID = "io.modelcontextprotocol/subscriptionId"

EVERYTHING = SubscriptionFilter(
    tools_list_changed=True,
    prompts_list_changed=True,
    resources_list_changed=True,
    resource_subscriptions=("board://a", "board://b"),
)


def watching(*uris: str) -> SubscriptionFilter:
    return SubscriptionFilter(resource_subscriptions=uris)


def tools() -> SubscriptionFilter:
    return SubscriptionFilter(tools_list_changed=True)


def seen(message: SubscriptionMessage) -> str:
    """A message in one word: the URI of an update, the method of anything else."""
    assert message.is_acknowledgment == (message.method == ACKNOWLEDGED)
    return message.method if message.uri is None else message.uri


async def read(stream: SubscriptionStream) -> SubscriptionMessage:
    with anyio.fail_after(BOUND):
        return await anext(stream)


async def read_seen(stream: SubscriptionStream, count: int) -> list[str]:
    return [seen(await read(stream)) for _ in range(count)]


async def rest(stream: SubscriptionStream) -> list[str]:
    """Everything up to the end of the stream."""
    with anyio.fail_after(BOUND):
        return [seen(message) async for message in stream]


async def now(stream: SubscriptionStream) -> list[str]:
    """Everything that waits at this moment, read without waiting; the silence after it is proven by the reading."""
    found: list[str] = []
    while True:
        with anyio.move_on_after(0) as scope:
            found.append(seen(await anext(stream)))
        if scope.cancelled_caught:
            return found


async def eventually(condition: Callable[[], bool]) -> None:
    """Give the other tasks turns until something has become true."""
    with anyio.fail_after(BOUND):
        while not condition():
            await anyio.wait_all_tasks_blocked()


async def serve(
    registry: SubscriptionRegistry,
    subscription_id: int | str,
    asked: SubscriptionFilter,
    send: Callable[[SubscriptionMessage], Coroutine[Any, Any, None]],
    finish: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """A handler as a server has one: what the stream yields is sent, and its end is answered with a final result."""
    async with registry.listen(subscription_id, asked) as stream:
        async for message in stream:
            await send(message)
        await finish()


class ScriptedBus(NotificationBus):
    """A bus as a user might write one, which a test opens, feeds and breaks. It is no context manager."""

    def __init__(self) -> None:
        self.open = anyio.Event()
        """Subscribing waits for it."""
        self.refuse: Exception | None = None
        """What subscribing raises."""
        self.attempts = 0
        self.published: list[BusNotification] = []
        self._feeds: list[Any] = []

    @property
    def subscriptions(self) -> int:
        return len(self._feeds)

    async def publish(self, notification: BusNotification) -> None:
        self.published.append(notification)
        self.feed(notification)
        await anyio.lowlevel.checkpoint()

    def feed(self, thing: object) -> None:
        """Let every subscription yield this; an exception is raised there."""
        for feed in self._feeds:
            feed.send_nowait(thing)

    def end(self) -> None:
        """Let every subscription end."""
        for feed in self._feeds:
            feed.close()

    @asynccontextmanager
    async def _subscription(self) -> AsyncGenerator[AsyncIterator[BusNotification]]:
        self.attempts += 1
        if self.refuse is not None:
            raise self.refuse
        await self.open.wait()
        send, receive = anyio.create_memory_object_stream[Any](1000)
        self._feeds.append(send)
        try:
            async with send, receive:
                yield _Fed(receive)
        finally:
            self._feeds.remove(send)

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[BusNotification]]:
        return self._subscription()


class _Fed(AsyncIterator[BusNotification]):
    def __init__(self, receive: Any) -> None:
        self._receive = receive

    async def __anext__(self) -> BusNotification:
        thing = await anext(self._receive)
        if isinstance(thing, Exception):
            raise thing
        return thing  # type: ignore[no-any-return]  # on purpose whatever the test says


class OpenableScriptedBus(ScriptedBus):
    """The same, entered before use."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = 0
        self.refuse_entering: Exception | None = None
        self.refuse_leaving: Exception | None = None

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        if self.refuse_entering is not None:
            raise self.refuse_entering
        self.entered += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await anyio.lowlevel.checkpoint()
        self.entered -= 1
        if self.refuse_leaving is not None:
            raise self.refuse_leaving
