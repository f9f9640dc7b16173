"""Gaps: what may have been lost is not lost silently."""

import json
from contextlib import AsyncExitStack
from typing import Any, Final, cast

from notification_bus.notification import GAP, decode_bodies
from notification_bus.testing.check import check
from notification_bus.testing.checks.reconnect import liveness
from notification_bus.testing.context import Context
from notification_bus.testing.harness import DeafLink, Observed
from notification_bus.testing.traffic import ECHO, HEALTHY, drive_until_heard, publish_paced, settle, window

_KNOWN: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Methods that mean something to every peer."""


@check("gap.after_reconnect", "CAPABILITY", "gaps", needs={"cut", "two"}, claim="gaps")
async def gap_after_reconnect(kit: Context) -> None:
    """After an outage every subscription yields a gap before its next notification, not one for each try."""
    promised = "after an outage every subscription yields a gap before its next notification"
    async with (
        kit.link() as link,
        kit.instance(link=link) as here,
        kit.instance() as there,
        kit.subscribed(here, "the first subscription") as first,
        kit.subscribed(here, "the second subscription") as second,
        kit.subscribed(there, "the peer's subscription") as peer,
    ):
        pumps = [first, second]
        await publish_paced(kit, there, 2, [*pumps, peer], HEALTHY)
        gaps = {pump.name: pump.gaps for pump in pumps}
        starts = {pump.name: len(pump.items) for pump in pumps}
        tried = link.attempts
        await link.refuse()
        await kit.until(
            lambda: link.attempts >= tried + 3, "an instance whose broker is away tries to reach it", "it does not"
        )
        await publish_paced(kit, there, window(kit), [peer], HEALTHY)
        await link.restore()
        await drive_until_heard(kit, there, pumps, "after an outage the stream goes on")
        for pump in pumps:
            later = pump.items[starts[pump.name] :]
            next_one = next((at for at, item in enumerate(later) if kit.number_of(item) is not None), 0)
            kit.expect(GAP in later[:next_one], promised, f"{pump}; after the outage came {later[: next_one + 1]!r}")
            several = pump.gaps - gaps[pump.name]
            # One, and one more where a first new connection did not last.
            kit.expect(several <= 2, "one outage is announced by one gap", f"{pump}: {several} gaps after one outage")


@check("gap.on_overflow", "CAPABILITY", "gaps", claim="gaps")
async def gap_on_overflow(kit: Context) -> None:
    """The subscription that overflowed yields a gap before what survived, and its siblings yield none."""
    promised = "the subscription that overflowed yields a gap before what survived"
    async with (
        kit.instance() as bus,
        kit.subscribed(bus, "the reading sibling") as sibling,
        kit.subscribed(bus, "the slow subscription", reading=False) as slow,
    ):
        await publish_paced(kit, bus, 2 * kit.capabilities.buffer, [sibling], HEALTHY)
        slow.resume()
        await drive_until_heard(kit, bus, [slow], "after an overflow the stream goes on")
        kit.expect(slow.items[0] == GAP, promised, f"{slow}; its first is {slow.items[0]!r}")
        kit.expect(sibling.gaps == 0, "a sibling that lost nothing yields no gap", sibling)


@check("gap.on_the_wire", "CAPABILITY", "gaps", needs={"cut", "two"}, claim="outbox_gaps")
async def gap_on_the_wire(kit: Context) -> None:
    """An instance that dropped what it was to send tells the subscriptions of the other instances."""
    promised = "an instance that dropped what it was to send tells the others with a gap"
    outbox = kit.capabilities.outbox or 0
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(kit.link())
        here = await stack.enter_async_context(kit.instance(link=link))
        there = await stack.enter_async_context(kit.instance())
        own = await stack.enter_async_context(kit.subscribed(here, "the publisher's own subscription"))
        peer = await stack.enter_async_context(kit.subscribed(there, "the peer's subscription"))
        await publish_paced(kit, here, 2, [own, peer], HEALTHY)
        before = peer.gaps
        tried, drops = link.attempts, len(kit.drops)
        await link.refuse()
        await kit.until(
            lambda: link.attempts > tried, "an instance whose broker is away tries to reach it", "it does not"
        )
        numbers = [await kit.publish_numbered(here) for _ in range(2 * outbox + 10)]
        await kit.until(lambda: len(kit.drops) > drops, "drops from an outbox that is full are warned of", "no warning")
        observed = None
        if kit.hooks.wire is not None:
            observed = await stack.enter_async_context(kit.wire.observe(kit.channel))
        await link.restore()
        await kit.until(lambda: peer.gaps > before, promised, peer)
        await drive_until_heard(kit, here, [peer], "after an outage publishing works again")
        # The peer has a connection all the time. Only of its own buffer can it have lost some, in the burst of what
        # had been kept, and then the gap that it yielded says nothing.
        if observed is not None:
            await kit.until(
                lambda: _gaps_on(observed),
                promised,
                "the peer's gap is of its own buffer's making, and there is none on the wire",
            )
        elif not peer.has(numbers[-outbox:]):
            kit.untestable("the peer lost some of the burst, so the gap may be its own; a `wire` would show it")


def _gaps_on(observed: Observed) -> int:
    return sum(item.method == GAP.method for body in observed.bodies for item in decode_bodies(body)[0])


@check("gap.unknown_to_peers", "CAPABILITY", "gaps", needs={"wire"}, claim="gaps")
async def gap_unknown_to_peers(kit: Context) -> None:
    """What travels for gaps and liveness is a valid body of an unknown method, and no probe is ever yielded."""
    promised = "what travels for gaps and liveness is a notification body of a method unknown to peers"
    async with (
        kit.wire.observe(kit.channel) as observed,
        kit.instance() as bus,
        kit.subscribed(bus) as pump,
        kit.instance() as peer,
        kit.subscribed(peer, "the peer's subscription") as other,
    ):
        await publish_paced(kit, bus, 2, [pump, other], ECHO)

        def own() -> list[bytes]:
            """What is not the check's."""
            return [body for body in observed.bodies if kit.channel.encode() not in body]

        if kit.capabilities.probes:
            await kit.until(
                own,
                "a bus that declares `probes` sends liveness probes on the channel",
                "nothing but what was published is on the wire",
                within=kit.timing.wait + (kit.capabilities.liveness or 0.0),
            )
        for body in own():
            try:
                data = json.loads(body)
            except ValueError:
                kit.fail(promised, f"{body!r} is no JSON")
            shaped = isinstance(data, dict) and set(cast("dict[str, Any]", data)) <= {"method", "params"}
            method = cast("dict[str, Any]", data).get("method") if shaped else None
            kit.expect(isinstance(method, str) and method not in _KNOWN, promised, f"{body!r} is on the wire")
        # As peers that run the same code send them.
        await kit.wire.inject(
            kit.channel, b'{"method":"notifications/bus/probe","params":{"instance":"kit","number":1,"interval":1}}'
        )
        before = pump.gaps
        await kit.wire.inject(kit.channel, GAP.encode())
        await kit.until(lambda: pump.gaps > before, "a gap that a peer announces is yielded as `GAP`", pump)
        await settle(kit, [bus], [pump, other], HEALTHY)
        for one in (pump, other):
            strange = [i for i in one.items if i != GAP and kit.number_of(i) is None]
            shown = strange[0] if strange else None
            kit.expect(not strange, "no subscription yields a liveness probe", f"{one.name} yielded {shown!r}")


@check("live.subscribed_in_name_only", "CAPABILITY", "reconnect", needs={"deaf"}, claim="end_to_end")
async def live_subscribed_in_name_only(kit: Context) -> None:
    """A subscription that the broker confirmed and does not serve is warned of and made anew."""
    promised = f"a subscription that delivers nothing is noticed within `liveness` = {kit.capabilities.liveness} s"
    async with kit.link() as link:
        if not isinstance(link, DeafLink):
            kit.untestable("the harness's links have no `deaf`")
        async with kit.instance(link=link) as bus, kit.subscribed(bus) as pump, kit.instance() as peer:
            await publish_paced(kit, bus, 1, [pump], ECHO)
            tried, warned = link.attempts, len(kit.warnings)
            await link.deaf()
            await kit.until(
                lambda: link.attempts > tried, promised, "no new connection was tried", within=liveness(kit)
            )
            await kit.until(lambda: len(kit.warnings) > warned, f"{promised}, and warned of", "there was no warning")
            await link.restore()
            await drive_until_heard(kit, peer, [pump], "once the broker delivers again, the stream goes on")
