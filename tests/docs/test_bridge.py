"""The bridge of the docs forwards both ways, once, between two real brokers."""

import re
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
import pytest

from notification_bus import GAP, BusNotification, NotificationBus, open_bus
from tests.brokers import Server

Bridge: TypeAlias = Callable[[NotificationBus, NotificationBus], Coroutine[Any, Any, None]]

PAGE = Path(__file__).parents[2] / "docs" / "mixed-fleets.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bridge() -> Bridge:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102  # the page's own code
    return cast("Bridge", namespace["bridge"])


async def test_what_is_published_on_one_side_arrives_once_on_both(
    bridge: Bridge, redis_server: Server, nats_server: Server
) -> None:
    numbered = [BusNotification("n", {"number": number}) for number in range(20)]
    equal = [BusNotification.tools_list_changed()] * 3
    last = [BusNotification("last", {"side": side}) for side in ("a", "b")]
    async with (
        open_bus(f"{redis_server.url}?channel=bridge-test") as bridge_a,
        open_bus(f"{nats_server.url}?channel=bridge-test") as bridge_b,
        open_bus(f"{redis_server.url}?channel=bridge-test") as a,
        open_bus(f"{nats_server.url}?channel=bridge-test") as b,
        a.subscribe() as at_a,
        b.subscribe() as at_b,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(bridge, bridge_a, bridge_b)
        with anyio.fail_after(20):
            while bridge_a.stats().subscriptions + bridge_b.stats().subscriptions < 2:
                await anyio.sleep(0.01)
            for side, bus in ((0, a), (1, b)):
                for notification in [*numbered[side::2], *equal, last[side]]:
                    await bus.publish(notification)
            owed = Counter([*numbered, *equal * 2, *last])
            for subscription in (at_a, at_b):
                seen: Counter[BusNotification] = Counter()
                while seen != owed:
                    seen[await anext(subscription)] += 1
                    assert seen <= owed, f"too often: {seen - owed}"
            await a.publish(GAP)
            assert [await anext(at_a), await anext(at_b)] == [GAP, GAP]
        # Nothing is on its way any more: a round trip on each side brings only itself.
        for bus, subscription in ((a, at_a), (b, at_b)):
            quiet = BusNotification("quiet", {"bus": repr(bus)})
            await bus.publish(quiet)
            with anyio.fail_after(20):
                while (got := await anext(subscription)) != quiet:
                    assert got.method == "quiet", f"{got!r} is still going round"
        tasks.cancel_scope.cancel()
