"""What travels on the channel, written and read; and what a stranger may put on it."""

import json
from typing import Any, Final

from notification_bus.notification import BusNotification
from notification_bus.testing.check import check
from notification_bus.testing.context import Context
from notification_bus.testing.harness import Observed
from notification_bus.testing.traffic import ECHO, expect_method, publish_paced

_METHOD: Final = "notifications/contract/wire"


def _strict(body: bytes) -> Any:
    """Parse as a strict reader does: UTF-8, no NaN, no member twice."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a member stands twice")
        return found

    def no_constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(body.decode("utf-8"), object_pairs_hook=members, parse_constant=no_constant)


async def _seen_on_wire(kit: Context, observed: Observed, start: int) -> None:
    """Wait until one of this check's own numbered ones is on the wire."""
    await kit.until(
        lambda: any(kit.channel.encode() in body for body in observed.bodies[start:]),
        "`wire.observe` sees what subscriptions see",
        lambda: f"{len(observed.bodies)} bodies, of which none was published by this check",
    )


@check("wire.body_is_exact", "MUST", "wire", needs={"wire"})
async def wire_body_is_exact(kit: Context) -> None:
    """What travels is exactly the notification's JSON body, with absent, empty and given params told apart."""
    promised = "what travels is exactly the notification's body, one JSON object in UTF-8"
    cases: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [
        (
            {"uri": "kit://wire", "text": "grüße, 你好"},
            {"method": _METHOD, "params": {"uri": "kit://wire", "text": "grüße, 你好"}},
        ),
        (None, {"method": _METHOD}),
        ({}, {"method": _METHOD, "params": {}}),
    ]
    async with kit.instance() as bus, kit.subscribed(bus) as pump, kit.wire.observe(kit.channel) as observed:
        for params, wanted in cases:
            before = len(observed.bodies)
            await kit.publish(bus, BusNotification(_METHOD, params))
            # The next in order, so that by then the one before it has been on the wire, whatever it looked like.
            await publish_paced(kit, bus, 1, [pump], ECHO)
            await _seen_on_wire(kit, observed, before)
            # The bus's own traffic, probes for instance, is not this check's business.
            bodies = [body for body in observed.bodies[before:] if _METHOD.encode() in body]
            kit.expect(len(bodies) == 1, promised, f"for params {params!r} there were {len(bodies)} bodies: {bodies!r}")
            try:
                found = _strict(bodies[0])
            except ValueError as exc:
                kit.fail(promised, f"{bodies[0]!r} cannot be read by a strict reader: {exc}")
            kit.expect(found == wanted, promised, f"for params {params!r}: {bodies[0]!r}, which is not {wanted!r}")


@check("wire.reads_foreign_peer", "MUST", "wire", needs={"wire"})
async def wire_reads_foreign_peer(kit: Context) -> None:
    """Bodies written by another implementation are read, with unknown members, other order and null params."""
    promised = (
        "bodies of another implementation are read: any order and spacing, unknown members ignored, null is absent"
    )
    cases: list[tuple[bytes, dict[str, Any] | None]] = [
        (b'{"params":{"a":1},"method":"%s"}', {"a": 1}),
        (b' {\n\t"method" : "%s" , "params" : { "b" : [ 1 , 2 ] } } \r\n', {"b": [1, 2]}),
        (b'{"jsonrpc":"2.0","id":null,"method":"%s","params":{"c":true},"extra":{"method":"x"}}', {"c": True}),
        (b'{"method":"%s","params":null}', None),
        (b'{"method":"%s"}', None),
        (b'{"method":"%s","params":{}}', {}),
        (b'{"method":"%s","params":{"d":"gr\\u00fc\\u00dfe \\ud83d\\ude00 \\/"}}', {"d": "grüße 😀 /"}),
        ('{"method":"%s","params":{"e":"grüße 😀"}}'.encode(), {"e": "grüße 😀"}),
    ]
    async with kit.instance() as bus, kit.subscribed(bus) as pump:
        for position, (template, params) in enumerate(cases):
            method = f"{_METHOD}/{position}"
            body = template.replace(b"%s", method.encode())
            wanted = BusNotification(method, params)
            await kit.wire.inject(kit.channel, body)
            found = await expect_method(kit, pump, method, promised, f"{body!r}")
            kit.expect(found == [wanted], promised, f"{body!r} was read as {found!r}, not as {wanted!r}")


_GARBAGE: Final[tuple[tuple[str, bytes], ...]] = (
    ("an empty body", b""),
    ("bytes that are no UTF-8", b"\xff\xfe\x00"),
    ("no UTF-8 inside of JSON", b'{"method":"garbage","params":{"a":"\xff"}}'),
    ("text", b"hello"),
    ("JSON that is cut off", b'{"method":"garbage","params":{"a"'),
    ("an empty array", b"[]"),
    ("an array", b"[1,2]"),
    ("null", b"null"),
    ("a number", b"7"),
    ("a string", b'"garbage"'),
    ("no method", b'{"params":{}}'),
    ("a method that is a number", b'{"method":1}'),
    ("a method that is null", b'{"method":null}'),
    ("an empty method", b'{"method":""}'),
    ("two methods", b'{"method":"garbage","method":"garbage/2"}'),
    ("params that are a list", b'{"method":"garbage","params":[1]}'),
    ("params that are text", b'{"method":"garbage","params":"text"}'),
    ("params that are false", b'{"method":"garbage","params":false}'),
    ("NaN", b'{"method":"garbage","params":{"a":NaN}}'),
    ("a number of 5,000 digits", b'{"method":"garbage","params":{"a":' + b"9" * 5000 + b"}}"),
    ("5,000 open brackets", b"[" * 5_000),
    ("100,000 open brackets", b"[" * 100_000),
    ("deep nesting in params", b'{"method":"garbage","params":{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}}"),
)


@check("wire.skips_garbage_and_lives", "MUST", "untrusted", needs={"wire"})
async def wire_skips_garbage_and_lives(kit: Context) -> None:
    """Whatever is no notification is skipped with a warning, and the next good one arrives."""
    promised = "what is no notification is skipped, and the next good one arrives"
    async with kit.instance() as bus, kit.subscribed(bus) as pump:
        await publish_paced(kit, bus, 1, [pump], ECHO)
        before = len(kit.warnings)
        injected = 0
        for position, (what, body) in enumerate(_GARBAGE):
            try:
                await kit.wire.inject(kit.channel, body)
            except ValueError:
                continue  # the broker carries no such thing, so no stranger can send it
            injected += 1
            method = f"{_METHOD}/good/{position}"
            await kit.wire.inject(kit.channel, BusNotification(method).encode())
            await expect_method(kit, pump, method, promised, f"a good one after {what}")
            strange = [i for i in pump.items if not (isinstance(i, BusNotification) and _good(kit, i))]
            kit.expect(not strange, promised, f"after {what} there arrived {repr(strange[0])[:200] if strange else ''}")
        kit.expect(
            injected > len(_GARBAGE) // 2, "`wire.inject` sends whatever the broker carries", f"{injected} accepted"
        )
        kit.expect(
            len(kit.warnings) > before,
            f"what is skipped is warned of, on the logger {kit.capabilities.drop_logger!r}",
            f"no warning, after {injected} things that are no notification",
        )


def _good(kit: Context, notification: BusNotification) -> bool:
    return notification.method.startswith(f"{_METHOD}/good/") or kit.number_of(notification) is not None
