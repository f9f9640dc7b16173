"""What PostgresBus takes and refuses when it is built: nothing here needs a server."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import asyncpg
import pytest

from notification_bus import BusURLError, open_bus
from notification_bus_postgres import PostgresBus

SECRET = "hunter2"

NEEDS_SERVICES = pytest.mark.skipif(
    "service" not in inspect.signature(asyncpg.connect).parameters, reason="asyncpg before 0.31 reads no service file"
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://localhost/app?channel=board", "postgresql://localhost/app"),
        ("postgres://app:hunter2@db.example:6543/app?channel=board", "postgresql://db.example:6543/app"),
        ("postgresql://app@a:5432,b:5433/app?channel=board&target_session_attrs=any", "postgresql://a:5432,b:5433/app"),
        ("postgresql://[::1]:5432/app?channel=board&sslmode=verify-full", "postgresql://[::1]:5432/app"),
        ("postgresql:///app?host=/run/postgresql&port=5433&channel=board", "postgresql:///run/postgresql:5433/app"),
        ("postgresql://%2Frun%2Fpostgresql/app?channel=board", "postgresql:///run/postgresql/app"),
        ("postgresql:///app?host=a,b&port=1,2&password=hunter2&channel=board", "postgresql://a:1,b:2/app"),
        pytest.param("postgresql://?service=app&channel=board", "postgresql://", marks=NEEDS_SERVICES),
        (
            "postgresql://h/app?channel=board&application_name=x&connect_timeout=3&options=-c%20geqo=off",
            "postgresql://h/app",
        ),
    ],
)
def test_a_url_of_libpqs_forms_is_read_and_shown_without_secrets(url: str, address: str) -> None:
    """Issue 3, item 2."""
    bus = open_bus(url)
    assert isinstance(bus, PostgresBus)
    assert bus.address == address
    assert bus.channel == "board"
    assert SECRET not in repr(bus)


def test_options_of_the_bus_are_read_from_the_url() -> None:
    bus = PostgresBus.from_url(
        "postgresql://localhost/app?channel=board&outbox=5&probe_interval=1.5&frames=true"
        "&listen_dsn=postgresql%3A%2F%2Fu%3Ahunter2%40direct%3A5432%2Fapp%3Fsslmode%3Drequire"
    )
    assert (bus.options.outbox, bus.options.probe_interval, bus.options.frames) == (5, 1.5, True)
    assert bus._listening.address == "postgresql://direct:5432/app"
    assert SECRET not in bus.describe(RuntimeError("hunter2"))


BAD_URLS = {
    "an option that nobody knows": "postgresql://u:hunter2@h/app?channel=c&pgbouncer=true",
    "a setting of the server by accident": "postgresql://u:hunter2@h/app?channel=c&prob_interval=5",
    "an option of libpq that asyncpg lacks": "postgresql://u:hunter2@h/app?channel=c&channel_binding=require",
    "no channel": "postgresql://u:hunter2@h/app",
    "no channel's name": "postgresql://u:hunter2@h/app?channel=",
    "a standby": "postgresql://u:hunter2@h/app?channel=c&target_session_attrs=prefer-standby",
    "an SSL mode that does not exist": "postgresql://u:hunter2@h/app?channel=c&sslmode=always",
    "a port that is no number": "postgresql://u:hunter2@h:port/app?channel=c",
    "a time-out that is no number": "postgresql://u:hunter2@h/app?channel=c&connect_timeout=soon",
    "a host without a name": "postgresql://u:hunter2@a,,b/app?channel=c",
    "two hosts and three ports": "postgresql:///app?host=a,b&port=1,2,3&password=hunter2&channel=c",
    "an @ in the password": "postgresql://u:hunter2@hunter2@h/app?channel=c",
    "a / in the password": "postgresql://u:hunter2/hunter2@h/app?channel=c",
    "a # in the password": "postgresql://u:hunter2#hunter2@h/app?channel=c",
    "a ? in the password": "postgresql://u:hunter2?hunter2@h/app?channel=c",
    "a [ in the password": "postgresql://u:hunter2[@h/app?channel=c",
    "a password that Unicode rewrites": "postgresql://u:hunter2\u2100@h/app?channel=c",
    "a listen_dsn that cannot be read": "postgresql://h/app?channel=c&listen_dsn=hunter2",
}


@pytest.mark.parametrize("url", BAD_URLS.values(), ids=BAD_URLS)
def test_a_wrong_url_is_refused_and_no_part_of_it_that_may_be_secret_is_shown(url: str) -> None:
    """Issue 3: bad input. The error and whatever is chained to it may be logged."""
    with pytest.raises(BusURLError) as caught:
        PostgresBus.from_url(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_an_unknown_option_is_refused_with_the_list_of_the_known() -> None:
    """Issue 3, item 6."""
    with pytest.raises(BusURLError, match=r"'pgbouncer'.*channel.*probe_interval.*listen_dsn.*sslmode"):
        PostgresBus.from_url(BAD_URLS["an option that nobody knows"])


@pytest.mark.parametrize("dsn", ["postgresql+asyncpg://h/app", "host=h dbname=app", "redis://h", "h:5432", ""])
def test_what_is_no_dsn_is_refused_with_an_example(dsn: str) -> None:
    with pytest.raises(BusURLError, match="postgresql://user"):
        PostgresBus(dsn, channel="c")


def test_options_of_the_bus_in_a_plain_dsn_are_pointed_to_their_place() -> None:
    with pytest.raises(BusURLError, match="from_url"):
        PostgresBus("postgresql://h/app?channel=c", channel="c")


@pytest.mark.parametrize(
    "channel",
    ["x" * 64, "ü" * 32, "x" * 62 + "ü", "nul\0", "", "\ud800"],
    ids=["64 bytes", "64 bytes in 32 characters", "half a character too long", "NUL", "empty", "surrogate"],
)
def test_a_channel_that_cannot_be_listened_to_is_refused(channel: str) -> None:
    """P07: LISTEN would cut it at 63 bytes, and two long names would be one."""
    with pytest.raises(BusURLError):
        PostgresBus("postgresql://h/app", channel=channel)


async def _pool() -> object:
    return asyncpg.create_pool("postgresql://h/app")


async def _acquire() -> object:
    return cast("Any", await _pool()).acquire


async def _partial() -> object:
    return functools.partial(cast("Any", await _acquire()))


@pytest.mark.parametrize("make", [_pool, _acquire, _partial])
async def test_a_pool_is_refused_when_the_bus_is_built(make: Callable[[], Any]) -> None:
    """P02: a pool forgets the LISTEN of what is given back to it."""
    with pytest.raises(TypeError, match="pool"):
        PostgresBus(await make(), channel="c")
    with pytest.raises(TypeError, match="pool"):
        PostgresBus("postgresql://h/app", channel="c", listen_dsn=await make())


@pytest.mark.parametrize("server", [None, 5, object()])
def test_what_makes_no_connection_is_refused(server: Any) -> None:
    with pytest.raises(TypeError, match="give a DSN"):
        PostgresBus(server, channel="c")


def test_the_bus_states_the_limit_before_it_is_connected() -> None:
    """P04."""
    assert PostgresBus("postgresql://h/app", channel="c").max_body == 7999
