"""Everything that can happen to the streams of a node, against a model that is too simple to be wrong.

The model keeps a list for each stream and compares every notification with every filter. What a stream yields must be,
message for message, what its list holds: exactly what the filter admits, nothing before the acknowledgment, once for
what changed several times, and never an older notification than the newest that was published.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from notification_bus.notification import GAP, BusNotification
from notification_bus.subscriptions import (
    Capabilities,
    SubscriptionFilter,
    SubscriptionLimitError,
    SubscriptionRegistry,
    SubscriptionsClosedError,
    SubscriptionStream,
)
from tests.core.subscriptions._support import ACKNOWLEDGED, ID, PROMPTS, RESOURCES, TOOLS, UPDATED

MAX_STREAMS, MAX_URIS = 4, 5
URIS = ("b://s", "b://s/", "b://s/1", "b://s/1/x", "b://s?q", "b://t", "b://", TOOLS)
LISTS = {TOOLS: "tools_list_changed", PROMPTS: "prompts_list_changed", RESOURCES: "resources_list_changed"}
FILTERS = st.builds(
    SubscriptionFilter,
    tools_list_changed=st.booleans(),
    prompts_list_changed=st.booleans(),
    resources_list_changed=st.booleans(),
    resource_subscriptions=st.lists(st.sampled_from(URIS), max_size=MAX_URIS + 1, unique=True),
    extra=st.dictionaries(st.just("taskIds"), st.just([1]), max_size=1),
)
PLACES = st.integers(0, MAX_STREAMS - 1)
IDS = st.sampled_from([0, 1, "1", ""])
ABOVE = {
    "b://s/1/x": ("b://s/1", "b://s/", "b://s", "b://"),
    "b://s/1": ("b://s/", "b://s", "b://"),
    "b://s/": ("b://s", "b://"),
    "b://s?q": ("b://s", "b://"),
    "b://s": ("b://",),
    "b://t": ("b://",),
}
"""The resources above each, nearest first: written out, since to compute it is what is tested."""

_ended = object()


@dataclass(eq=False)
class Modelled:
    """One stream as it ought to be."""

    real: SubscriptionStream
    id: int | str
    accepted: SubscriptionFilter
    acknowledged: bool = False
    ending: bool = False
    waiting: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    """What waits: the method, what the filter calls it, and the params."""

    def admits(self, method: str, uri: str, *, sub_resources: bool) -> str | None:
        """What of the filter admits a notification, if anything does."""
        if method in LISTS:
            return method if getattr(self.accepted, LISTS[method]) else None
        candidates = (uri, *(ABOVE.get(uri, ()) if sub_resources else ()))
        return next((known for known in candidates if known in self.accepted.resource_subscriptions), None)

    def change(self, method: str, name: str, params: dict[str, Any]) -> None:
        if self.ending:
            return
        for position, (waiting_method, waiting_name, waiting_params) in enumerate(self.waiting):
            if (waiting_method, waiting_name) == (method, name):
                below = method == UPDATED and params["uri"] != name
                same = waiting_params.get("uri") == params.get("uri")
                self.waiting[position] = (method, name, {"uri": name} if below and not same else params)
                return
        self.waiting.append((method, name, params))

    def gap(self) -> None:
        if self.ending:
            return
        for method, attribute in LISTS.items():
            if getattr(self.accepted, attribute):
                self._mark(method, method, {})
        for uri in self.accepted.resource_subscriptions:
            self._mark(UPDATED, uri, {"uri": uri})

    def _mark(self, method: str, name: str, params: dict[str, Any]) -> None:
        for position, waiting in enumerate(self.waiting):
            if waiting[:2] == (method, name):
                self.waiting[position] = (method, name, params)
                return
        self.waiting.append((method, name, params))

    def next(self) -> dict[str, Any] | object | None:
        """The message that is owed, `_ended`, or `None` where a reader waits."""
        meta = {"_meta": {ID: self.id}}
        if not self.acknowledged:
            self.acknowledged = True
            return {"method": ACKNOWLEDGED, "params": {"notifications": self.accepted.to_wire(), **meta}}
        if self.waiting:
            method, _, params = self.waiting.pop(0)
            return {"method": method, "params": {**params, **meta}}
        return _ended if self.ending else None


class Machine(RuleBasedStateMachine):
    """The rules; a subclass says on which async library, and with which options."""

    backend: ClassVar = "asyncio"
    sub_resources: ClassVar = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal: BlockingPortal = self.stack.enter_context(start_blocking_portal(self.backend))
        self.registry = SubscriptionRegistry(
            max_streams=MAX_STREAMS, max_uris=MAX_URIS, sub_resources=self.sub_resources, drain=0
        )
        self.running: AbstractContextManager[Any] = self.portal.wrap_async_context_manager(self.registry)
        self.running.__enter__()
        self.open: list[Modelled] = []
        self.capabilities = Capabilities()
        self.draining = False
        self.serial = 0

    def teardown(self) -> None:
        with self.stack:
            for stream in self.open:
                while (expected := stream.next()) is not None and expected is not _ended:
                    assert self._call(read_now, stream.real) == expected
                self._call(stream.real.__aexit__, None, None, None)
            self.running.__exit__(None, None, None)

    def _call(self, function: Callable[..., Awaitable[Any]], *args: object) -> Any:
        return self.portal.call(function, *args)

    @rule(tools=st.booleans(), prompts=st.booleans(), subscribe=st.booleans(), extended=st.booleans())
    def advertise(self, tools: bool, prompts: bool, subscribe: bool, extended: bool) -> None:
        self.capabilities = self.registry.capabilities = Capabilities(
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_subscribe=subscribe,
            extensions=frozenset({"taskIds"} if extended else ()),
        )

    @initialize(asked=FILTERS)
    def listen_once(self, asked: SubscriptionFilter) -> None:
        self.listen(1, asked)

    @rule(subscription_id=IDS, asked=FILTERS)
    def listen(self, subscription_id: int | str, asked: SubscriptionFilter) -> None:
        can = self.capabilities
        accepted = SubscriptionFilter(
            tools_list_changed=asked.tools_list_changed and can.tools_list_changed,
            prompts_list_changed=asked.prompts_list_changed and can.prompts_list_changed,
            resources_list_changed=asked.resources_list_changed,
            resource_subscriptions=asked.resource_subscriptions if can.resources_subscribe else (),
            extra=asked.extra if can.extensions else {},
        )
        stream = self.registry.listen(subscription_id, asked)
        if self.draining:
            with pytest.raises(SubscriptionsClosedError):
                self._call(stream.__aenter__)
        elif len(accepted.resource_subscriptions) > MAX_URIS or len(self.open) >= MAX_STREAMS:
            with pytest.raises(SubscriptionLimitError):
                self._call(stream.__aenter__)
        else:
            self._call(stream.__aenter__)
            self.open.append(Modelled(stream, subscription_id, accepted))

    @rule(method=st.sampled_from([*LISTS]), with_params=st.booleans())
    def change_list(self, method: str, with_params: bool) -> None:
        self.serial += 1
        params = {"serial": self.serial} if with_params else None
        self._call(self.registry.publish, BusNotification(method, params))
        for stream in self.open:
            if (name := stream.admits(method, "", sub_resources=self.sub_resources)) is not None:
                stream.change(method, name, params or {})

    @rule(uri=st.sampled_from(URIS))
    def update(self, uri: str) -> None:
        self.serial += 1
        params: dict[str, Any] = {"uri": uri, "serial": self.serial}
        self._call(self.registry.publish, BusNotification(UPDATED, params))
        for stream in self.open:
            if (name := stream.admits(UPDATED, uri, sub_resources=self.sub_resources)) is not None:
                stream.change(UPDATED, name, params)

    @rule()
    def gap(self) -> None:
        self._call(self.registry.publish, GAP)
        for stream in self.open:
            stream.gap()

    @rule(
        notification=st.sampled_from(
            [
                BusNotification("notifications/progress", {"uri": "b://s"}),
                BusNotification("notifications/tasks", {"taskId": 1}),
                BusNotification(ACKNOWLEDGED, {"notifications": {}}),
                BusNotification(UPDATED, {"uri": 1}),
                BusNotification(UPDATED),
            ]
        )
    )
    def publish_what_nobody_can_hear(self, notification: BusNotification) -> None:
        self._call(self.registry.publish, notification)

    @precondition(lambda self: bool(self.open))
    @rule(place=PLACES, count=st.integers(1, 5))
    def read(self, place: int, count: int) -> None:
        stream = self.open[place % len(self.open)]
        for _ in range(count):
            assert self._call(read_now, stream.real) == stream.next()

    @precondition(lambda self: bool(self.open))
    @rule(place=PLACES, uri=st.sampled_from(URIS))
    def watch(self, place: int, uri: str) -> None:
        stream = self.open[place % len(self.open)]
        before = stream.accepted.resource_subscriptions
        if (
            not stream.ending
            and uri not in before
            and self.capabilities.resources_subscribe
            and len(before) >= MAX_URIS
        ):
            with pytest.raises(SubscriptionLimitError):
                self.portal.call(stream.real.watch, uri)
            return
        carried = not stream.ending and (uri in before or self.capabilities.resources_subscribe)
        assert self.portal.call(stream.real.watch, uri) == carried
        if carried and uri not in before:
            stream.accepted = replace(stream.accepted, resource_subscriptions=(*before, uri))
        assert stream.real.accepted == stream.accepted

    @precondition(lambda self: bool(self.open))
    @rule(place=PLACES, uri=st.sampled_from(URIS))
    def unwatch(self, place: int, uri: str) -> None:
        stream = self.open[place % len(self.open)]
        self.portal.call(stream.real.unwatch, uri)
        if not stream.ending:
            rest = tuple(known for known in stream.accepted.resource_subscriptions if known != uri)
            stream.accepted = replace(stream.accepted, resource_subscriptions=rest)
            stream.waiting = [waiting for waiting in stream.waiting if waiting[:2] != (UPDATED, uri)]
        assert stream.real.accepted == stream.accepted

    @precondition(lambda self: bool(self.open))
    @rule(place=PLACES)
    def end(self, place: int) -> None:
        stream = self.open[place % len(self.open)]
        self.portal.call(stream.real.end)
        stream.ending = True

    @precondition(lambda self: bool(self.open))
    @rule(place=PLACES)
    def leave(self, place: int) -> None:
        stream = self.open.pop(place % len(self.open))
        self._call(stream.real.__aexit__, None, None, None)
        assert self._call(read_now, stream.real) is _ended

    @precondition(lambda self: len(self.open) > 1 and not self.draining)
    @rule()
    def drain(self) -> None:
        self.portal.call(self.registry.begin_drain)
        self.draining = True
        for stream in self.open:
            stream.ending = True

    @precondition(lambda self: self.draining)
    @rule()
    def restart(self) -> None:
        self.running.__exit__(None, None, None)
        for stream in self.open:
            # What was never acknowledged is, and then ends.
            stream.waiting.clear()
            found = [self._call(read_now, stream.real) for _ in range(2)]
            assert found == ([_ended] * 2 if stream.acknowledged else [stream.next(), _ended])
            self._call(stream.real.__aexit__, None, None, None)
        self.open.clear()
        self.draining = False
        self.running = self.portal.wrap_async_context_manager(self.registry)
        self.running.__enter__()

    @invariant()
    def the_node_knows_what_it_watches(self) -> None:
        for uri in URIS:
            watched = any(
                not stream.ending and stream.admits(UPDATED, uri, sub_resources=self.sub_resources)
                for stream in self.open
            )
            assert self.registry.is_subscribed(uri) == watched
        stats = self.registry.stats()
        assert (stats.streams, stats.arriving, stats.draining) == (len(self.open), 0, self.draining)


async def read_now(stream: SubscriptionStream) -> dict[str, Any] | object | None:
    """A message, the end, or `None` where there is nothing to read: then the read was cancelled while it waited."""
    with anyio.move_on_after(0):
        try:
            return (await anext(stream)).to_wire()
        except StopAsyncIteration:
            return _ended
    return None


class TrioMachine(Machine):
    backend = "trio"


class SubResourceMachine(Machine):
    sub_resources = True


class TrioSubResourceMachine(Machine):
    backend = "trio"
    sub_resources = True


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
for _machine in (TrioMachine, SubResourceMachine, TrioSubResourceMachine):
    _machine.TestCase.settings = Machine.TestCase.settings

TestOnAsyncio = Machine.TestCase
TestOnTrio = TrioMachine.TestCase
TestSubResourcesOnAsyncio = SubResourceMachine.TestCase
TestSubResourcesOnTrio = TrioSubResourceMachine.TestCase
