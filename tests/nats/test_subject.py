"""The subject of a channel: issue 3, item 1, and the rule of isolation."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_bus import BusURLError
from notification_bus_nats import NatsBus
from notification_bus_nats._bus import LONGEST_SUBJECT, subject_of
from tests.brokers import Server, witness
from tests.brokers._listener import listening, note
from tests.nats.helpers import bus_on

CHANNELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)

ODD = [
    "board.*",
    "board.>",
    "*",
    ">",
    "a b",
    "a\tb",
    "a\r\nPUB x 0",
    "a..b",
    ".a",
    "a.",
    ".",
    "..",
    "%2A",
    "$SYS.REQ.SERVER.PING",
    "ünïcode",
    "通知",
    "Board",
    "board:prod/eu=1@x+y~z-_",
    'quo"te',
]


@pytest.mark.parametrize("name", ["board", "board.prod.eu", "a-b_c", "Board:1/2=3@4+5~6"])
def test_plain_name_is_its_own_subject(name: str) -> None:
    assert subject_of(name) == name
    assert NatsBus("nats://localhost", channel=name).subject == name


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("*", "%2A"),
        ("a.>", "a.%3E"),
        ("a b", "a%20b"),
        ("a..b", "a%2E%2Eb"),
        (".a.", "%2Ea%2E"),
        ("é", "%C3%A9"),
        ("%2A", "%252A"),
        ("$SYS.a", "%24SYS.a"),
    ],
)
def test_anything_else_is_escaped(name: str, subject: str) -> None:
    assert subject_of(name) == subject


@given(CHANNELS)
def test_subject_tells_the_channel_and_is_no_wildcard(name: str) -> None:
    """What can be taken back cannot collide."""
    subject = subject_of(name)
    assert unquote(subject, errors="strict") == name
    assert all(token and token.isascii() and token.isprintable() for token in subject.split("."))
    assert not set(subject) & set(" *>$\"'")


def test_name_too_long_for_a_server_is_refused_at_construction() -> None:
    assert subject_of("x" * LONGEST_SUBJECT)
    with pytest.raises(BusURLError, match="shorter"):
        NatsBus("nats://localhost", channel="é" * (LONGEST_SUBJECT // 6 + 1))


@pytest.mark.parametrize("name", [*ODD, "x" * LONGEST_SUBJECT], ids=lambda name: ascii(name)[:30])
async def test_odd_name_is_heard_by_itself_and_by_nobody_else(each_server: Server, name: str) -> None:
    """Whatever the name looks like on the wire, a bus hears its own channel and no other bus does."""
    bus, other = bus_on(each_server, name), bus_on(each_server, "board.one")
    async with bus, other, listening(bus) as ear, listening(other) as deaf:
        await bus.publish(note(1))
        await other.publish(note(2))
        await ear.wait_for(note(1))
        await deaf.wait_for(note(2))
        assert (ear.numbers, deaf.numbers) == ([1], [2])


async def test_raw_client_on_the_subject_hears_and_is_heard(nats_server: Server) -> None:
    bus = bus_on(nats_server, "straße *")
    async with bus, listening(bus) as ear, witness("nats", nats_server.url, bus.subject) as seen:
        await seen.publish(note(1).encode())
        await bus.publish(note(2))
        await ear.wait_for(note(1), note(2))
        assert note(2).encode() in await seen.wait_for(2)
