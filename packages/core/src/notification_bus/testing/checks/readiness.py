"""Readiness: what is published after the entering arrives, and an entering that was given up leaves nothing."""

from contextlib import AsyncExitStack
from typing import Final

from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.traffic import ECHO, expect_arrival, publish_paced

_ROUNDS: Final = 4

_DELAY: Final = 0.015
"""Seconds each way: much longer than a broker takes, and short for the dozen round trips that a connection can need."""


@check("ready.first_publish_after_enter", "MUST", "ready", needs={"delay", "two"}, brokerless=True)
async def ready_first_publish_after_enter(kit: Context) -> None:
    """The very first notification published after a subscription was entered arrives, also on a slow link."""
    promised = "everything published after a subscription was entered arrives, the very first included"
    for round_ in range(_ROUNDS):
        channel = f"{kit.channel}-{round_}"
        async with AsyncExitStack() as stack:
            link = None
            if kit.capabilities.has_broker:
                link = await stack.enter_async_context(kit.link())
                await link.delay(_DELAY)
            publisher = await stack.enter_async_context(kit.instance(channel))
            # The publisher is up and running, so that its notification overtakes a subscription still on its way.
            witness = await stack.enter_async_context(kit.subscribed(publisher, "the publisher's own subscription"))
            await publish_paced(kit, publisher, 1, [witness], ECHO)
            subscriber = await stack.enter_async_context(kit.instance(channel, link))
            pump = await stack.enter_async_context(kit.subscribed(subscriber, "the subscription on the slow link"))
            first = await kit.publish_numbered(publisher)
            second = await kit.publish_numbered(publisher)
            # Both: a bus may lose the first, and one that delivers the second has had its time for it.
            await expect_arrival(kit, [first, second], [pump], f"{promised} (round {round_ + 1})")


@check("ready.cancelled_enter_leaves_nothing", "MUST", "ready", needs={"cut", "two"})
async def ready_cancelled_enter_leaves_nothing(kit: Context) -> None:
    """An entering that was cancelled while the broker was away leaves no subscription behind."""
    promised = "an entering that was cancelled leaves no subscription behind"
    async with kit.link() as link, kit.instance() as peer:
        await link.refuse()
        async with kit.instance(link=link) as bus:
            ghosts = [kit.pump(bus, f"cancelled subscription {n}") for n in (1, 2)]
            await kit.until(
                lambda: link.attempts > 0,
                "an instance whose broker is away tries to reach it",
                "it never tried to connect",
            )
            # Both are in the middle of it: nothing can have confirmed them.
            entered = [ghost.name for ghost in ghosts if ghost.entered.is_set() and ghost.error is None]
            kit.expect(
                not entered,
                "entering a subscription waits for the broker's confirmation",
                f"{entered} ready, with no broker",
            )
            for ghost in ghosts:
                ghost.cancel()
            await kit.until(
                lambda: all(ghost.done.is_set() for ghost in ghosts),
                "a cancelled entering ends",
                "it goes on",
                within=kit.timing.wait,
            )
            await link.restore()
            async with kit.subscribed(bus, "the remaining subscription") as pump:
                before = len(kit.drops)
                count = kit.capabilities.buffer + 8
                numbers = await publish_paced(kit, peer, count, [pump], "the remaining subscription is whole")
                kit.expect(pump.has(numbers), "the remaining subscription is whole", pump)
                await kit.linger()
                ghostly = [record.getMessage() for record in kit.drops[before:]]
                kit.expect(
                    not ghostly or not kit.alone,
                    promised,
                    f"of {count} notifications each was read, yet the bus warned: {ghostly}",
                )
