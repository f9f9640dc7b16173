"""Broken in what stands on the wire and what is read from it."""

import json
from contextlib import suppress
from typing import Any

from notification_bus import JsonObject
from notification_bus.connection import BrokerConnection
from notification_bus.errors import MalformedBodyError, SendRefusedError
from notification_bus.notification import BusNotification
from tests.kit.gallery.mutant import broken
from tests.kit.gallery.reference import ReferenceBus


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@broken("blurs absent, null and empty", check="wire.body_is_exact", fragment='{"params":null,')
class WritesNullParams(ReferenceBus):
    """Writes absent params as null."""

    def encode(self, notification: object) -> bytes:
        body: dict[str, Any] = json.loads(super().encode(notification))
        return dump({"params": None, **body})


@broken("blurs absent, null and empty", check="wire.body_is_exact", fragment="for params {}")
class DropsEmptyParams(ReferenceBus):
    """Takes empty params for absent ones."""

    def encode(self, notification: object) -> bytes:
        body: dict[str, Any] = json.loads(super().encode(notification))
        return dump({name: value for name, value in body.items() if value})


@broken("private wire format", check="wire.body_is_exact", fragment="what travels is exactly the notification's body")
class WrapsInAnEnvelope(ReferenceBus):
    """Wraps the body in an envelope that only its own kind can open."""

    def encode(self, notification: object) -> bytes:
        return dump({"sender": self.instance, "body": json.loads(super().encode(notification))})

    def decode(self, body: bytes) -> BusNotification:
        try:
            return super().decode(dump(json.loads(body)["body"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            return super().decode(body)


@broken("private wire format", check="wire.reads_foreign_peer", fragment="bodies of another implementation are read")
class RejectsUnknownMembers(ReferenceBus):
    """Skips a body with a member that it does not know."""

    def decode(self, body: bytes) -> BusNotification:
        notification = super().decode(body)
        if set(json.loads(body)) - {"method", "params"}:
            raise MalformedBodyError("it has an unknown member")
        return notification


@broken("damages values", check="codec.values_round_trip", fragment="is '??' of type str")
class LossyCharset(ReferenceBus):
    """Writes text in a charset that has a question mark for most of the world's letters."""

    def encode(self, notification: object) -> bytes:
        return super().encode(notification).decode().encode("latin-1", "replace").decode("latin-1").encode()


@broken("damages values", check="codec.size_limit_is_in_bytes", fragment="a body of 8192 bytes arrives whole")
class CutsLongBodies(ReferenceBus):
    """Cuts what it sends at 4 kB."""

    def encode(self, notification: object) -> bytes:
        return super().encode(notification)[:4096]


@broken("damages values", check="codec.values_round_trip", fragment="of type float, not 0 of type int")
class IntegersBecomeFloats(ReferenceBus):
    """Reads integers as floats, as a parser of another language does."""

    def encode(self, notification: object) -> bytes:
        return dump(json.loads(super().encode(notification), parse_int=float))


@broken(
    "counts characters",
    check="codec.size_limit_is_in_bytes",
    fragment="of 2-byte characters: it raised None, and 0 drops were warned of",
)
class CountsCharacters(ReferenceBus):
    """Holds the limit of bytes against the number of characters, and does not hear that the broker refused."""

    def size_of(self, body: bytes) -> int:
        return len(body.decode())

    async def send(self, connection: BrokerConnection, bodies: list[bytes]) -> None:
        for body in bodies:
            with suppress(SendRefusedError):
                await connection.send([body])


@broken(
    "one bad frame is fatal",
    check="wire.skips_garbage_and_lives",
    fragment="a good one after an empty body did not arrive",
)
class GarbageKillsTheReader(ReferenceBus):
    """Ends its reader with the first body that it cannot read."""

    def receive(self, body: bytes) -> None:
        self.decode(body)
        super().receive(body)


@broken("one bad frame is fatal", check="wire.skips_garbage_and_lives", fragment="open brackets did not arrive")
class DeepNestingKillsTheReader(ReferenceBus):
    """Catches the errors of a parser, except the one that deep nesting raises."""

    def decode(self, body: bytes) -> BusNotification:
        try:
            json.loads(body)
        except ValueError as exc:
            raise MalformedBodyError(str(exc)) from None
        return super().decode(body)


class _Shared(BusNotification):  # type: ignore[misc]  # final for users; what it guards against is the fault here
    @property
    def params(self) -> JsonObject | None:
        return self._params


@broken(
    "shares or mistypes deliveries",
    check="codec.deliveries_are_independent",
    fragment="what one subscriber does to a notification is not seen by another",
)
class SharesOneObject(ReferenceBus):
    """Gives every subscription the same object, which a reader can change."""

    def deliver(self, notification: BusNotification) -> None:
        super().deliver(_Shared(notification.method, notification.params))
