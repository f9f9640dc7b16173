"""URLs and options: what can be written, what is refused, and that nothing shows a password."""

import ssl
from inspect import signature
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse

import pytest
from nats.aio.client import Client

from notification_bus import BusURLError, NotificationBusError, open_bus
from notification_bus_nats import NatsBus, NatsOptions
from notification_bus_nats._servers import Pool, Server
from notification_bus_nats._settings import _REFUSED
from tests.brokers import Server as Broker
from tests.brokers import Tls, certificates
from tests.brokers._listener import listening, note
from tests.nats.helpers import bus_on

SECRET = "s3cr3t"  # the word that must show up nowhere


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return certificates(tmp_path_factory.mktemp("pem"))


def found_nothing(_name: str) -> None:
    """What looking for a library comes to that is not installed."""


def found_something(name: str) -> str:
    """The same for one that is."""
    return name


def servers_of(*urls: str) -> list[Server]:
    return list(Pool(urls).named)


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("nats://a", ["nats://a:4222"]),
        ("nats://a:1,b:2,c", ["nats://a:1", "nats://b:2", "nats://c:4222"]),
        ("nats://a:1,nats://b:2", ["nats://a:1", "nats://b:2"]),
        ("tls://a,b", ["tls://a:4222", "tls://b:4222"]),
        ("tls://a,nats://b", ["tls://a:4222", "nats://b:4222"]),
        ("ws://a", ["ws://a:80"]),
        ("wss://a/nats, b:1/x", ["wss://a:443/nats", "wss://b:1/x"]),
        ("nats://[::1]:4222,[::1]:4223", ["nats://[::1]:4222", "nats://[::1]:4223"]),
        ("NATS://Host/", ["nats://host:4222"]),
        ("host:4000", ["nats://host:4000"]),
    ],
)
def test_list_of_servers_is_read(url: str, urls: list[str]) -> None:
    assert [server.url for server in servers_of(url)] == urls


def test_servers_can_be_a_list() -> None:
    bus = NatsBus(["nats://a", "tls://b:1,c:2"], channel="x")
    assert bus.address == "nats://a:4222,tls://b:1,tls://c:2"


@pytest.mark.parametrize(
    ("url", "credentials"),
    [
        ("nats://u:p@a,b", [("u", "p"), ("u", "p")]),
        ("nats://u:p@a,v:q@b,c", [("u", "p"), ("v", "q"), ("u", "p")]),
        ("nats://token@a", [("token", None)]),
        ("nats://us%40er:p%2Fa%3As%2Cs@a", [("us@er", "p/a:s,s")]),
        ("nats://a", [(None, None)]),
    ],
)
def test_credentials_are_decoded_and_hold_for_the_rest_of_the_list(
    url: str, credentials: list[tuple[str | None, str | None]]
) -> None:
    assert [(server.user, server.password) for server in servers_of(url)] == credentials


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nats://",
        "nats://u:p@",
        "redis://a",
        "nats://a,redis://b",
        "nats://a:port",
        "nats://a:70000",
        f"nats://u:{SECRET}/{SECRET}@a",
        f"nats://u:{SECRET}#{SECRET}@a",
        f"nats://u:{SECRET}＠x@a",  # noqa: RUF001  # its look-alike is what urlsplit complains about
        f"nats://u:{SECRET},{SECRET}@a:b",
        "nats://a/path",
        "nats://[::1",
        "nats://a,,b",
    ],
)
def test_unreadable_server_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(BusURLError) as caught:
        NatsBus(url, channel="x")
    shown = repr(caught.value) + repr(caught.value.__cause__)
    assert SECRET not in shown
    with pytest.raises(BusURLError):
        NatsBus.from_url(f"{url}?channel=x")


def test_no_server_is_refused() -> None:
    with pytest.raises(TypeError, match="list of URLs"):
        NatsBus([], channel="x")
    with pytest.raises(BusURLError, match="no server"):
        Pool([])


@pytest.mark.parametrize("servers", [None, 4222, object(), b"nats://a", [b"nats://a"], ["nats://a", None]])
def test_something_else_than_servers_is_refused(servers: object) -> None:
    with pytest.raises(TypeError, match=r"give a URL, or a list of URLs$"):
        NatsBus(servers, channel="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_url_sets_every_option(tmp_path: Path, pem: Tls) -> None:
    bus = open_bus(
        f"tls://u:{SECRET}@a:1,b:2?channel=x&name=mine&outbox=7&probe_interval=3&connect_timeout=1.5"
        f"&dont_randomize=true&tls_hostname=h&tls_handshake_first=1&tls_ca_file={pem.ca}"
        f"&tls_cert_file={pem.cert}&tls_key_file={pem.key}"
    )
    assert isinstance(bus, NatsBus)
    assert (bus.options.channel, bus.options.outbox, bus.options.probe_interval) == ("x", 7, 3)
    assert bus.address == "tls://a:1,tls://b:2"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "channel"),
        ("channel=", "channel"),
        ("channel=x&colour=red", "user_credentials"),
        ("channel=x&colour=red", "probe_interval"),
        ("channel=x&name=", "name is empty"),
        ("channel=x&name=a&name=b", "twice"),
        ("channel=x&connect_timeout=soon", "number of seconds"),
        ("channel=x&connect_timeout=0", "above 0"),
        ("channel=x&connect_timeout=nan", "above 0"),
        ("channel=x&dont_randomize=perhaps", "true or false"),
        ("channel=x&tls_ca_file=/no/such/file", "/no/such/file"),
        ("channel=x&tls_key_file=/no/such/file", "tls_cert_file"),
        (f"channel=x&tls_ca_file={__file__}", "not PEM"),
        ("channel=x&frames=maybe", "frames"),
    ],
)
def test_option_that_cannot_be_used_is_refused_with_the_remedy(query: str, says: str) -> None:
    with pytest.raises(BusURLError, match=says):
        open_bus(f"nats://u:{SECRET}@a?{query}")


def test_plain_websocket_with_options_for_tls_is_refused() -> None:
    with pytest.raises(BusURLError, match="wss://"):
        NatsBus("ws://a", channel="x", tls=ssl.create_default_context())


def test_connected_client_is_refused_with_what_to_give_instead() -> None:
    """It reconnects by itself, which the contract forbids."""
    client: Any = Client()
    with pytest.raises(TypeError, match="its settings as keywords: a client reconnects by itself"):
        NatsBus(client, channel="x")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"allow_reconnect": True}, "backoff_cap"),
        ({"max_reconnect_attempts": -1}, "the bus reconnects by itself"),
        ({"reconnect_time_wait": 1}, "backoff_cap"),
        ({"no_echo": True}, "receives what it publishes"),
        ({"error_cb": print}, r"log and stats\(\)"),
        ({"disconnected_cb": None}, r"log and stats\(\)"),
        ({"pending_size": 1}, "outbox"),
        ({"ping_interval": 1}, "probe_interval"),
        ({"colour": "red"}, "its options are backoff_cap, buffer"),
    ],
    ids=str,
)
def test_setting_of_the_client_that_a_bus_decides_is_refused_with_the_remedy(
    setting: dict[str, object], says: str
) -> None:
    with pytest.raises(TypeError, match=f"takes no {next(iter(setting))}: .*{says}"):
        NatsBus("nats://a", channel="x", **cast("Any", setting))


def test_every_setting_of_the_client_is_taken_or_refused_with_a_reason() -> None:
    """What a new nats-py can be told is looked at: would it break the contract?"""
    left = {"servers", "self", "pedantic", "verbose", "inbox_prefix", "skip_subject_validation"}
    known = set(signature(Client.connect).parameters) - left
    assert known <= NatsOptions.__optional_keys__ | _REFUSED.keys()


def test_option_of_every_bus_in_a_url_beside_keywords_is_refused() -> None:
    with pytest.raises(BusURLError, match="outbox in the URL is for open_bus"):
        NatsBus("nats://a?outbox=7&name=mine", channel="x")
    assert NatsBus("nats://a?name=mine", channel="x").channel == "x"


def test_context_for_tls_beside_files_is_refused(pem: Tls) -> None:
    with pytest.raises(BusURLError, match="not both"):
        NatsBus(f"tls://a?tls_ca_file={pem.ca}", channel="x", tls=ssl.create_default_context())


@pytest.mark.parametrize("missing", ["user_credentials", "nkeys_seed", "nkeys_seed_str"])
def test_nkeys_without_their_library_are_refused_with_the_command_to_run(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr("notification_bus_nats._settings.find_spec", found_nothing)
    with pytest.raises(BusURLError, match=r"pip install 'notification-bus-nats\[nkeys\]'"):
        NatsBus("nats://a", channel="x", **cast("Any", {missing: "f"}))


def test_websockets_without_their_library_are_refused_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_bus_nats._bus.find_spec", found_nothing)
    with pytest.raises(BusURLError, match=r"pip install 'notification-bus-nats\[aiohttp\]'"):
        NatsBus("nats://a,wss://b", channel="x")


def test_nothing_shows_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_bus_nats._settings.find_spec", found_something)
    bus = NatsBus(
        [f"nats://u:{SECRET}1@a", f"nats://{SECRET}2@b"],
        channel="x",
        password=f"{SECRET}/3",
        token=f"{SECRET}4",
        nkeys_seed_str=f"{SECRET}5",
    )
    error = NotificationBusError(f"said {SECRET}1 {SECRET}2 {SECRET}/3 {SECRET}%2F3 {SECRET}4 {SECRET}5")
    assert SECRET not in repr(bus) + str(bus.stats()) + bus.describe(error)


def test_bus_is_built_without_an_event_loop_and_opens_nothing() -> None:
    assert NatsBus("nats://127.0.0.1:1", channel="x").stats().last_error is None


def test_servers_are_tried_in_an_order_that_suits_each_case() -> None:
    """Named before discovered, a failed one last, the one just lost last of its kind."""

    def order() -> list[str]:
        return [server.address for server in pool._order]

    pool = Pool(["nats://a,b"], randomize=False)
    a, b = pool.named
    assert pool.next() is a
    pool.connected(a, [urlparse("nats://10.0.0.1:4222"), urlparse("nats://b:4222"), urlparse("nats://bad")])
    c = pool._order[-1]
    assert (c.address, c.tls_name) == ("10.0.0.1:4222", "a")
    assert order() == ["b:4222", "a:4222", "10.0.0.1:4222"]
    assert pool.next() is b  # and fails
    assert order() == ["a:4222", "10.0.0.1:4222", "b:4222"]
    assert [pool.next(), pool.next()] == [a, c]  # the second is connected, and does not know b or itself
    pool.connected(c, [urlparse("nats://d:1")])
    assert order() == ["b:4222", "a:4222", "10.0.0.1:4222", "d:1"]
    assert [pool.next(), pool.next()] == [b, a]
    pool.connected(a, [])
    assert order() == ["b:4222", "a:4222"], "what another server has told is forgotten"
    assert [pool.next() for _ in range(4)] == [b, a, b, a]


def test_order_is_random_unless_told_otherwise() -> None:
    hosts = ",".join("abcdefgh")
    assert len({Pool([f"nats://{hosts}"]).next().host for _ in range(100)}) > 1
    assert {Pool([f"nats://{hosts}"], randomize=False).next().host for _ in range(100)} == {"a"}


async def test_options_reach_the_client(monkeypatch: pytest.MonkeyPatch, channel: str) -> None:
    seen: list[dict[str, Any]] = []

    async def connect(_self: object, url: str, **options: Any) -> None:
        seen.append({"url": url, **options})
        raise ConnectionRefusedError

    monkeypatch.setattr("notification_bus_nats._client.OneConnection.connect", connect)
    context = ssl.create_default_context()
    bus = NatsBus(
        f"tls://u:{SECRET}@a",
        channel=channel,
        name="mine",
        connect_timeout=7.5,
        tls=context,
        tls_hostname="b",
        ws_connection_headers={"X": ["1"]},
        token=None,
    )
    with pytest.raises(ConnectionRefusedError):
        await bus.connect()
    wanted = {
        "url": "tls://a:4222",
        "name": "mine",
        "connect_timeout": 7.5,
        "tls": context,
        "tls_hostname": "b",
        "tls_handshake_first": False,
        "ws_connection_headers": {"X": ["1"]},
        "user": "u",
        "password": SECRET,
        "allow_reconnect": False,
    }
    assert {option: seen[0][option] for option in wanted} == wanted
    assert "token" not in seen[0]


async def test_every_url_form_reaches_the_server(nats_server: Broker, channel: str) -> None:
    here = f"{nats_server.host}:{nats_server.port}"
    forms = [f"nats://{here}", f"nats://127.0.0.1:1,{here}", f"nats://{here},nats://127.0.0.1:1", here]
    for form in forms:
        bus = bus_on(form, channel)
        async with bus, listening(bus) as ear:
            await bus.publish(note(1))
            await ear.wait_for(note(1))
