"""The public API as a user's code would use it. Only type checkers read this file; nothing runs it."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Unpack, assert_type

from notification_bus import (
    GAP,
    BrokerBus,
    BrokerConnection,
    BusClosedError,
    BusNotification,
    BusNotReadyError,
    BusOptions,
    BusStats,
    BusURLError,
    DropReason,
    InvalidNotificationError,
    JsonObject,
    JsonValue,
    MalformedBodyError,
    MemoryBus,
    NotificationBus,
    NotificationBusError,
    NotificationTooLargeError,
    NotPrimaryError,
    OpenableBus,
    SendRefusedError,
    open_bus,
)
from notification_bus.notification import decode_bodies, encode_frame
from notification_bus.options import OptionValues
from notification_bus.url import redact_url, refuse_unknown, split_url


def values() -> None:
    BusNotification("x")
    BusNotification("x", None)
    BusNotification("x", {})
    BusNotification("x", {"a": [1, 2.0, True, None, "b", {"c": ()}]})
    params: dict[str, str] = {"uri": "board://1"}
    BusNotification("x", params)
    lists: Mapping[str, list[int]] = {"a": [1]}
    BusNotification(method="x", params=lists)
    BusNotification("x", {"a": object()})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    BusNotification("x", {1: 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    BusNotification("x", [1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    BusNotification(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    one = BusNotification.resource_updated("board://1")
    assert_type(one, BusNotification)
    assert_type(BusNotification.tools_list_changed(), BusNotification)
    assert_type(BusNotification.prompts_list_changed(), BusNotification)
    assert_type(BusNotification.resources_list_changed(), BusNotification)
    assert_type(GAP, BusNotification)
    assert_type(one.method, str)
    assert_type(one.params, JsonObject | None)
    if one.params is not None:
        value: JsonValue = one.params["uri"]
        del value
    assert_type(one.encode(), bytes)
    assert_type(BusNotification.decode(b"{}"), BusNotification)
    assert_type(BusNotification.decode("{}"), BusNotification)
    assert_type(hash(one), int)
    one.method = "y"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert_type(decode_bodies(b"[]"), tuple[list[BusNotification], list[MalformedBodyError]])
    assert_type(encode_frame([one.encode()]), bytes)

    match one:
        case BusNotification("x", params=None):
            pass
        case BusNotification(method, {"uri": str() as uri}):
            assert_type(method, str)
            assert_type(uri, str)
        case _:
            pass


async def publish_and_read(bus: NotificationBus) -> None:
    assert_type(await bus.publish(BusNotification("x")), None)
    assert_type(bus.subscribe(), AbstractAsyncContextManager[AsyncIterator[BusNotification]])
    async with bus.subscribe() as stream:
        assert_type(await anext(stream), BusNotification)
        async for notification in stream:
            assert_type(notification, BusNotification)
    await bus.publish("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def open_and_close() -> None:
    bus = open_bus("memory://?channel=board")
    assert_type(bus, OpenableBus)
    async with bus as entered:
        assert_type(entered, OpenableBus)
        await publish_and_read(entered)
        await bus.wait_ready()
        await bus.wait_ready(timeout=1.5)
        stats = bus.stats()
        assert_type(stats, BusStats)
        assert_type(stats.dropped, Mapping[DropReason, int])
        assert_type(stats.since, float | None)
        assert_type(stats.last_error, str | None)
        stats.published = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    await bus.aclose()

    async with MemoryBus("board", buffer=10, frames=False, max_body=100) as memory:
        assert_type(memory, MemoryBus)
        assert_type(memory.channel, str | None)
        assert_type(memory.options, BusOptions)
        protocol: NotificationBus = memory
        openable: OpenableBus = memory
        del protocol, openable
    MemoryBus("board", bufer=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    MemoryBus("board", outbox="10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(MemoryBus.from_url("memory://"), MemoryBus)


async def errors(bus: OpenableBus) -> None:
    try:
        await bus.publish(BusNotification("x"))
    except NotificationTooLargeError as exc:
        assert_type(exc.size, int)
        assert_type(exc.limit, int)
    except (BusClosedError, BusNotReadyError, InvalidNotificationError, BusURLError) as exc:
        caught: NotificationBusError = exc
        del caught
    except TimeoutError:
        pass


class MyConnection(BrokerConnection):
    """What the author of an adapter writes."""

    max_body = 8_000

    async def send(self, bodies: Sequence[bytes]) -> None:
        if not bodies:
            raise SendRefusedError("no permission", len(bodies))

    async def receive(self) -> AsyncIterator[Sequence[bytes | str]]:
        yield [b"{}", "{}"]

    async def check(self) -> None:
        raise NotPrimaryError

    async def aclose(self) -> None:
        pass


class MyBus(BrokerBus):
    broker: ClassVar[str] = "mine"

    def __init__(self, url: str, *, channel: str, **options: Unpack[OptionValues]) -> None:
        super().__init__(redact_url(url), channel=channel, secrets=["pw"], **options)

    @classmethod
    def from_url(cls, url: str) -> "MyBus":
        base, ours, theirs = split_url(url)
        assert_type(base, str)
        assert_type(ours, dict[str, str | int | float | bool])
        assert_type(theirs, list[tuple[str, str]])
        refuse_unknown(theirs, "those of mine")
        return cls(base, channel=str(ours.get("channel", "")))

    async def connect(self) -> BrokerConnection:
        return MyConnection()

    def remedy(self, exc: BaseException) -> str | None:
        return "check the address" if isinstance(exc, OSError) else None


class Halfway(BrokerBus):
    """Without `connect`."""


def adapters() -> None:
    bus = MyBus("mine://host", channel="board", outbox=5, probe_interval=1.0)
    openable: OpenableBus = bus
    assert_type(bus.channel, str)
    assert_type(bus.address, str)
    assert_type(bus.max_body, int)
    assert_type(bus.describe(OSError("x")), str)
    Halfway("host", channel="board")  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]
    MyBus("mine://host")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    logging.getLogger("notification_bus.mine").info("%s", openable)


class Minimal:
    """A bus of one's own that keeps only the protocol."""

    async def publish(self, notification: BusNotification) -> None: ...

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[BusNotification]]:
        raise NotImplementedError


class Wrong:
    async def publish(self, notification: str) -> None: ...

    def subscribe(self) -> Any: ...


minimal: NotificationBus = Minimal()
not_openable: OpenableBus = Minimal()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
wrong: NotificationBus = Wrong()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
