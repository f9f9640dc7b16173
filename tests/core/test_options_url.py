"""Options by keyword and by URL, and `open_bus`: errors name the value and the remedy, and never a secret."""

import math
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from socket import gaierror
from ssl import SSLCertVerificationError, SSLError
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_bus import BusNotification, BusOptions, BusURLError, MemoryBus, NotificationBus, OpenableBus, open_bus
from notification_bus import url as url_module
from notification_bus._broker.remedy import remedy
from notification_bus.options import OPTION_NAMES
from notification_bus.url import redact, redact_url, refuse_unknown, split_url, url_secrets, with_options

SIZES = ["outbox", "buffer"]
SECONDS = ["probe_interval", "probe_timeout", "ready_timeout", "close_timeout", "backoff_cap"]


def options_error(**options: Any) -> str:
    given: dict[str, Any] = {"channel": "board"} | options
    with pytest.raises(BusURLError) as caught:
        BusOptions(**given)
    return str(caught.value)


def url_error(read: Callable[[str], object], url: str) -> str:
    with pytest.raises(BusURLError) as caught:
        read(url)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


class TestKeywords:
    def test_the_defaults_are_those_of_the_design(self) -> None:
        assert BusOptions(channel="board") == BusOptions(
            channel="board",
            outbox=10_000,
            buffer=1024,
            probe_interval=10,
            probe_timeout=5,
            ready_timeout=10,
            close_timeout=2,
            backoff_cap=2,
            frames=False,
        )

    @pytest.mark.parametrize("name", SIZES)
    @pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, "1", None, True, [], math.inf])
    def test_a_size_is_a_whole_number_above_0(self, name: str, value: object) -> None:
        assert options_error(**{name: value}) == f"{name} is {value!r}: give a number of notifications, 1 or more"

    @pytest.mark.parametrize("name", SECONDS)
    @pytest.mark.parametrize("value", [0, 0.0, -1, "1", None, True, math.nan, math.inf, -math.inf, 10**400])
    def test_a_time_is_a_finite_number_of_seconds_above_0(self, name: str, value: object) -> None:
        assert options_error(**{name: value}) == f"{name} is {value!r}: give a number of seconds above 0"

    @pytest.mark.parametrize("value", [0, 1, "true", None])
    def test_frames_is_a_switch(self, value: object) -> None:
        assert options_error(frames=value) == f"frames is {value!r}: give True or False"

    @pytest.mark.parametrize("value", ["", None, 7, b"board"])
    def test_a_channel_is_a_name(self, value: object) -> None:
        message = options_error(channel=value)
        assert message.startswith(f"channel is {value!r}: name the channel, one for each server and environment")

    def test_a_channel_that_no_broker_can_carry_is_refused(self) -> None:
        assert "lone surrogate" in options_error(channel="a\ud800")

    def test_any_value_in_range_is_taken(self) -> None:
        options = BusOptions(channel="\0é", outbox=1, buffer=10**9, probe_interval=1e-9, probe_timeout=10**6)
        assert (options.channel, options.buffer, options.probe_timeout) == ("\0é", 10**9, 10**6)

    def test_options_cannot_be_changed_afterwards(self) -> None:
        with pytest.raises(AttributeError):
            BusOptions(channel="board").outbox = 1  # type: ignore[misc]


class TestSplitting:
    def test_every_option_is_read_from_the_query(self) -> None:
        base, ours, theirs = split_url(
            "redis://u:p@host:6379/0?channel=b%C3%A9&outbox=1&buffer=2&probe_interval=3&probe_timeout=4.5&ready_timeout=5e-1"
            "&close_timeout=6&backoff_cap=7&frames=true&socket_timeout=8&ssl_ca_certs=%2Fa&empty="
        )
        assert base == "redis://u:p@host:6379/0"
        assert ours == {
            "channel": "bé",
            "outbox": 1,
            "buffer": 2,
            "probe_interval": 3.0,
            "probe_timeout": 4.5,
            "ready_timeout": 0.5,
            "close_timeout": 6.0,
            "backoff_cap": 7.0,
            "frames": True,
        }
        assert set(ours) == set(OPTION_NAMES)
        assert [type(ours[name]) for name in SIZES] == [int, int]
        assert [type(ours[name]) for name in SECONDS] == [float] * 5
        assert theirs == [("socket_timeout", "8"), ("ssl_ca_certs", "/a"), ("empty", "")]

    @pytest.mark.parametrize(
        ("text", "value"),
        [("true", True), ("True", True), ("1", True), ("yes", True), ("false", False), ("0", False), ("NO", False)],
    )
    def test_a_switch_is_read_in_its_usual_spellings(self, text: str, value: bool) -> None:
        assert split_url(f"redis://h?frames={text}")[1] == {"frames": value}

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("outbox=many", "the option outbox='many' is not a number"),
            ("outbox=1.5", "the option outbox='1.5' is not a number"),
            ("buffer=", "the option buffer='' is not a number"),
            (f"buffer={'9' * 5000}", "is not a number"),
            ("probe_interval=soon", "the option probe_interval='soon' is not a number"),
            ("frames=maybe", "the option frames='maybe' is not true or false"),
            ("frames=", "the option frames='' is not true or false"),
            ("channel=a&outbox=1&channel=b", "the option channel stands twice in the URL: keep one"),
            ("outbox=1&outbox=1", "the option outbox stands twice in the URL: keep one"),
        ],
        ids=lambda part: part[:30],
    )
    def test_an_option_that_cannot_be_read_is_named_with_its_value(self, query: str, message: str) -> None:
        assert message in url_error(split_url, f"redis://h?{query}")

    @pytest.mark.parametrize(
        "url",
        [
            "unix:///tmp/redis.sock",
            "unix://u:p@/tmp/redis.sock",
            "redis:///0",
            "memory://",
            "nats://a:1,b:2",
            "nats://u:p@a:4222,nats://b:4222",
            "nats://u:p@a:4222,tls://v:q@b:4222,wss://c/nats,d:1/x",
            "nats://u:p@a,v:q@b,c",
            "postgresql://u:p,w@a:1,[::1]:2,b/db",
            "x://[::1]:7/",
            "x://[::1]:7,[::2]:8",
        ],
    )
    def test_the_rest_of_the_url_stays_as_it_is(self, url: str) -> None:
        assert split_url(url)[0] == url
        assert split_url(f"{url}?channel=board")[0] == url

    def test_a_url_cut_off_at_a_number_sign_is_refused_since_channels_would_fall_together(self) -> None:
        """`channel=board#staging` and `channel=board#production` would both be `board`."""
        for url in ("redis://h?channel=board#staging", "redis://h/0#x?channel=board", "redis://h?channel=a#"):
            assert "%23 for #" in url_error(split_url, url)
        assert split_url("redis://h?channel=board%23staging")[1] == {"channel": "board#staging"}

    @pytest.mark.parametrize(
        "url",
        [
            "redis://u:p/w@host",
            "redis://u:p?w@host",
            "redis://u:p#w@host",
            "redis://u:12/3@host",
            "redis://a:1,b:x",
            "nats://a,nats://u:p/w@b",
            "nats://u:p/w@a,nats://b",
            "nats://a,nats://b:x",
        ],
    )
    def test_a_password_that_cuts_the_url_is_told_to_be_encoded(self, url: str) -> None:
        assert "percent-encode the special characters of the user, the password" in url_error(split_url, url)

    @pytest.mark.parametrize("url", ["", "?channel=board", "localhost:6379?channel=board", "//host", "a,nats://b"])
    def test_a_url_without_a_scheme_is_told_how_one_begins(self, url: str) -> None:
        assert "starts with a scheme" in url_error(split_url, url)

    @pytest.mark.parametrize("url", ["redis://h", "redis://h?db=1", "nats://u:p@a,nats://b?name=x", "unix:///a?"])
    @pytest.mark.parametrize("channel", ["board", "a b&c=d#?/ü"])
    def test_options_that_are_added_are_read_back(self, url: str, channel: str) -> None:
        base, ours, theirs = split_url(with_options(url, channel=channel, outbox=7, frames=True))
        assert ours == {"channel": channel, "outbox": 7, "frames": True}
        assert (base, theirs) == (split_url(url)[0], split_url(url)[2])

    def test_a_name_that_is_no_utf_8_is_refused_since_channels_would_fall_together(self) -> None:
        for url in ("redis://h?channel=%ff", "redis://h?channel=%fe", "redis://h?%ff=1"):
            assert "UTF-8" in url_error(split_url, url)

    def test_unknown_options_are_named_beside_all_of_ours_and_the_clients(self) -> None:
        with pytest.raises(BusURLError) as caught:
            refuse_unknown([("chanel", "secret"), ("out-box", "2")], "those of the client")
        message = str(caught.value)
        assert message.startswith(
            "unknown option 'chanel', 'out-box' in the URL; the options of a bus are channel, outbox"
        )
        assert all(name in message for name in OPTION_NAMES)
        assert message.endswith(", and those of the client")
        assert "secret" not in message

    def test_no_unknown_option_is_no_error(self) -> None:
        refuse_unknown([])
        refuse_unknown({})


SECRET = "s3cr3t"  # what must not be seen
ODD_URLS = [
    f"redis://user:{SECRET}@host:6379/0?channel=board",
    f"redis://:{SECRET}@host?channel=board",
    f"redis://{SECRET}@host?channel=board",
    f"redis://user:a@{SECRET}@host?channel=board",
    f"redis://user:{SECRET}:{SECRET}@host?channel=board",
    f"redis://user:{SECRET}/x@host?channel=board",
    f"redis://user:x/{SECRET}@host?channel=board",
    f"redis://user:{SECRET}?x@host?channel=board",
    f"redis://user:x?{SECRET}@host?channel=board",
    f"redis://user:12?{SECRET}@host?channel=board",
    f"redis://user:12/{SECRET}@host?channel=board",
    f"redis://user:x@/{SECRET}@host?channel=board",
    f"redis://user:x@{SECRET}/x@host?channel=board",
    f"redis://user:x@{SECRET}?x@host?channel=board",
    f"redis://user:{SECRET}#x@host?channel=board",
    f"redis://user:x#{SECRET}@host?channel=board",
    f"redis://user:{SECRET}[x@host?channel=board",
    f"redis://user:{SECRET}]x@host?channel=board",
    f"redis://user:{SECRET}\u2100@host?channel=board",
    f"redis://user:%{SECRET}@host?channel=board",
    f"redis://user@host?password={SECRET}&channel=board",
    f"redis://user@host?{SECRET}",
    f"redis://user@host?{SECRET}@&channel=board",
    f"redis://host/0?channel=board#{SECRET}",
    f"redis://user:{SECRET}@[::1]:6379/0",
    f"redis://user:{SECRET}@a:1,b:2/0",
    f"redis://user:{SECRET}@host:port/0",
    f"unix://user:{SECRET}@/tmp/redis.sock?channel=board",
    f"redis://user:{SECRET}@host/0?outbox=x",
    f"nats://user:{SECRET}@a,nats://user:{SECRET}@b?channel=board",
    f"nats://user:{SECRET}@a,v:{SECRET}@b,c?channel=board",
    f"nats://a,tls://{SECRET}@b:1,c?channel=board",
    f"nats://user:{SECRET}/@a,nats://b?channel=board",
    f"nats://a,nats://user:{SECRET}/x@b?channel=board",
    f"nats://user:x,{SECRET}@a,nats://b?channel=board",
    f"nats://a,nats://user:x?{SECRET}@b",
]


class TestSecrets:
    @pytest.mark.parametrize("url", ODD_URLS, ids=[str(n) for n in range(len(ODD_URLS))])
    def test_no_part_of_a_url_that_can_hold_a_secret_is_shown(self, url: str) -> None:
        try:
            shown = redact_url(url)
        except BusURLError as exc:
            shown = str(exc)
            assert "percent-encode" in shown
        assert SECRET not in shown

    @pytest.mark.parametrize("url", ODD_URLS, ids=[str(n) for n in range(len(ODD_URLS))])
    def test_no_error_of_a_url_shows_a_secret(self, url: str) -> None:
        told = None
        try:
            refuse_unknown(split_url(url)[2])
        except BusURLError as exc:
            told = exc
        if told is not None:
            # Where it stands like the name of an option it is told as one that is not known.
            assert SECRET not in str(told) or url.endswith(f"?{SECRET}")
            assert told.__suppress_context__ or told.__context__ is None, "a traceback would show what lies behind"

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("redis://user:password@host:6379/0?channel=board", "redis://host:6379/0"),
            ("redis://host", "redis://host"),
            ("REDIS://:pw@Host:1", "redis://Host:1"),
            ("unix://user:password@/tmp/redis.sock", "unix:///tmp/redis.sock"),
            ("unix:///tmp/a@b.sock", "unix:///tmp/a@b.sock"),
            ("postgresql://u:p@a:1,b:2/db?sslmode=require", "postgresql://a:1,b:2/db"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("nats://u:p@a:1,tls://t@b:2,c?channel=board", "nats://a:1,tls://b:2,c"),
        ],
    )
    def test_the_address_is_shown(self, url: str, shown: str) -> None:
        assert redact_url(url) == shown

    @settings(max_examples=100, deadline=None)
    @given(st.text(st.characters(codec="utf-8"), max_size=8), st.text(st.sampled_from("@:/?#[]%&= \t\n\\"), max_size=3))
    def test_whatever_the_password_nothing_of_it_is_shown(self, one: str, odd: str) -> None:
        url = f"redis://user:{one}{SECRET}{odd}{SECRET}{one}@host:1/0?channel=board"
        for read in (redact_url, split_url):
            try:
                shown = str(read(url)) if read is redact_url else ""
                read(url)
            except BusURLError as exc:
                shown = str(exc)
            assert SECRET not in shown


PASSWORDS = st.text(st.characters(codec="utf-8", exclude_characters="*\0"), min_size=4, max_size=12)


class TestRedacting:
    @pytest.mark.parametrize(
        ("url", "secrets"),
        [
            ("redis://user:word@host?channel=board", ["word"]),
            ("redis://:word@host", ["word"]),
            ("redis://host/0?channel=token", []),
            ("postgresql://app@host/db", []),
            ("redis://user:p%40ss!@host", ["p%40ss!", "p@ss!"]),
            ("redis://user:p@ss@host", ["p@ss"]),
            ("redis://u:one,two@host", ["one,two"]),
            ("unix://user:word@/tmp/redis.sock", ["word"]),
            ("nats://u:one@a:4222,nats://b:4222?channel=x", ["one"]),
            ("nats://u:one@a,tls://v:two@b:1?channel=x", ["one", "two"]),
            ("nats://u:one@a,v:two@b,c", ["one@a,v:two", "one", "two"]),
            ("redis://host?password=one+1&ssl_password=two&PASSWD=three", ["one+1", "one 1", "two", "three"]),
            ("postgresql://h?sslpassword=a&user=b&passfile=/c&sslkey=/d", ["a"]),
            ("nats://h?nkeys_seed=/file&tls_key_file=/key&user_credentials=/creds&nkeys_seed_str=SU", ["SU"]),
            ("x://h?auth_token=a&client_secret=b&api_key=c&p%61ssword=d", ["a", "b", "c", "d"]),
        ],
    )
    def test_passwords_and_secret_options_are_found_and_names_and_files_are_not(
        self, url: str, secrets: list[str]
    ) -> None:
        assert url_secrets(url) == secrets

    def test_a_user_alone_is_a_token_where_the_broker_reads_it_so(self) -> None:
        url = "nats://t0ken%2F@a,nats://u:word@b,c"
        assert url_secrets(url) == ["word"]
        assert url_secrets(url, tokens=True) == ["t0ken%2F", "t0ken/", "word"]

    @given(PASSWORDS, st.sampled_from(["redis://u:{}@h", "nats://a,nats://u:{}@b,c", "x://h?a=b&ssl_password={}"]))
    def test_whatever_the_password_no_form_of_it_is_left(self, password: str, form: str) -> None:
        secrets = url_secrets(form.format(quote(password, safe="")))
        assert password in secrets
        for shown in (password, quote(password), quote(password, safe=""), quote_plus(password), repr(password)[1:-1]):
            assert redact(f"\0{shown}\0\0{shown}\0", secrets) == "\0***\0\0***\0"

    def test_it_is_found_in_any_case_of_letters(self) -> None:
        """nats-py turns what a server says into lower case."""
        assert redact("said s3cr3t and s%2fw0rd", ["S3cr3T", "S/W0rd"]) == "said *** and ***"

    def test_a_secret_that_begins_with_another_is_replaced_whole(self) -> None:
        assert redact("word wordless", ["word", "wordless"]) == "*** ***"

    @pytest.mark.parametrize("secret", ["a", "on", "nec"])
    def test_a_secret_of_a_few_letters_leaves_other_words_readable(self, secret: str) -> None:
        text = "cannot connect to a.example: connection refused"
        assert redact(f"{text} for '{secret}'", [secret]).endswith("for '***'")
        assert "connect" in redact(text, [secret])
        assert "connection refused" in redact(text, [secret])

    def test_no_secret_changes_nothing(self) -> None:
        assert redact("as it is", []) == redact("as it is", ["", ""]) == "as it is"


class TestRemedies:
    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (SSLCertVerificationError("bad"), "authority"),
            (SSLError("bad"), "TLS"),
            (gaierror("unknown"), "host's name"),
            (ConnectionRefusedError(), "nothing listens there"),
            (FileNotFoundError("redis.sock"), "nothing listens there"),
            (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1)"), "nothing listens there"),
            (PermissionError(), "permissions"),
            (TimeoutError(), "does not answer"),
        ],
        ids=repr,
    )
    def test_an_error_of_the_operating_system_has_one_also_below_a_clients(self, error: Exception, says: str) -> None:
        assert says in (remedy(error) or "")
        for suppress in (False, True):
            wrapped = ValueError("a client's own")
            wrapped.__cause__, wrapped.__context__ = (error, None) if suppress else (None, error)
            timeout = TimeoutError()
            timeout.__context__ = wrapped
            assert says in (remedy(timeout) or "")

    def test_what_may_be_an_error_of_tls_names_the_brokers_own_options(self) -> None:
        for error in (SSLError("bad"), SSLCertVerificationError("bad"), TimeoutError()):
            assert (remedy(error, "rediss:// is with TLS") or "").endswith("; rediss:// is with TLS")
        assert "rediss" not in (remedy(ConnectionRefusedError(), "rediss:// is with TLS") or "")

    def test_anything_else_has_none_and_a_chain_in_a_circle_ends(self) -> None:
        one, two = ValueError(), ConnectionResetError()
        one.__context__ = two
        two.__context__ = one
        assert remedy(one) is None
        assert remedy(OSError("something else")) is None


class Plain:
    """A third party's bus that keeps only the protocol's two methods."""

    async def publish(self, notification: BusNotification) -> None: ...

    def subscribe(self) -> Any: ...

    @classmethod
    def from_url(cls, _url: str, /) -> "Plain":
        return cls()


class Third(MemoryBus):
    @classmethod
    def from_url(cls, url: str) -> "Third":
        return cls(url)


class Nothing:
    @staticmethod
    def from_url(url: str) -> object:
        return url


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace what is installed: names of schemes, and what this module has for them."""

    def install(**classes: str) -> None:
        points = EntryPoints(
            EntryPoint(name, f"{__name__}:{value}", url_module.GROUP) for name, value in classes.items()
        )

        def find(*, group: str) -> EntryPoints:
            return points.select(group=group)

        monkeypatch.setattr(url_module, "entry_points", find)

    return install


class TestOpening:
    def test_the_built_in_scheme_opens_the_memory_bus(self) -> None:
        bus = open_bus("memory://?channel=board&buffer=7&frames=yes")
        assert isinstance(bus, MemoryBus)
        assert (bus.channel, bus.options.buffer, bus.options.frames) == ("board", 7, True)
        assert isinstance(bus, NotificationBus)

    def test_the_scheme_is_read_in_any_case(self) -> None:
        assert isinstance(open_bus("Memory://?channel=board"), MemoryBus)

    @pytest.mark.parametrize(
        ("scheme", "distribution"),
        [
            ("redis", "notification-bus-redis"),
            ("rediss", "notification-bus-redis"),
            ("valkey", "notification-bus-redis"),
            ("unix", "notification-bus-redis"),
            ("nats", "notification-bus-nats"),
            ("tls", "notification-bus-nats"),
            ("postgresql", "notification-bus-postgres"),
            ("postgres", "notification-bus-postgres"),
        ],
    )
    def test_a_missing_distribution_is_named_by_the_command_that_installs_it(
        self, installed: Callable[..., None], scheme: str, distribution: str
    ) -> None:
        installed(memory="Third")
        message = url_error(open_bus, f"{scheme}://user:{SECRET}@host?channel=board")
        assert message == f"{scheme}:// needs a distribution that is not installed: pip install {distribution}"

    def test_an_unknown_scheme_lists_what_is_there_and_what_could_be(self, installed: Callable[..., None]) -> None:
        installed(memory="Third", zmq="Third")
        message = url_error(open_bus, f"kafka://user:{SECRET}@host?channel=board")
        assert message.startswith("no bus is known for kafka://; known here: memory://, zmq://; others to install: ")
        assert "notification-bus-nats, notification-bus-postgres, notification-bus-redis" in message
        assert SECRET not in message

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:6379",
            f":{SECRET}@host",
            "//host",
            "redis:",
            "redis:/x",
            " redis://h",
            "1redis://h",
            None,
            7,
            b"memory://",
        ],
    )
    def test_what_has_no_scheme_is_told_how_a_url_begins_and_not_shown(self, url: Any) -> None:
        message = url_error(open_bus, url)
        assert message == "a bus URL starts with a scheme, as in 'redis://localhost:6379?channel=board'"

    def test_a_third_partys_bus_is_found_by_its_entry_point(self, installed: Callable[..., None]) -> None:
        installed(zmq="Third")
        bus = open_bus("zmq://host?channel=board")
        assert isinstance(bus, Third)
        assert bus.channel == "zmq://host?channel=board"

    def test_what_is_no_bus_is_refused_by_the_name_of_its_entry_point(self, installed: Callable[..., None]) -> None:
        installed(odd="Nothing", plain="Plain")
        assert f"entry point '{__name__}:Nothing' built for odd:// is no OpenableBus" in url_error(open_bus, "odd://x")
        message = url_error(open_bus, "plain://x")
        assert "is no OpenableBus" in message
        assert "__aenter__" in message

    def test_the_installed_entry_point_is_the_memory_bus(self) -> None:
        (point,) = entry_points(group=url_module.GROUP, name="memory")
        assert point.load() is MemoryBus
        assert isinstance(MemoryBus(), OpenableBus)


class TestMemoryUrls:
    def test_every_option_is_taken(self) -> None:
        bus = MemoryBus.from_url("memory://?channel=board&outbox=3&probe_interval=1&ready_timeout=2")
        assert (bus.options.outbox, bus.options.probe_interval, bus.options.ready_timeout) == (3, 1.0, 2.0)

    def test_without_a_channel_it_is_a_bus_of_its_own(self) -> None:
        assert MemoryBus.from_url("memory://").channel is None

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("memory://?channel=", "channel is '': name the channel"),
            ("memory://?chanel=board", "unknown option 'chanel' in the URL; the options of a bus are channel, "),
            ("memory://?channel=a&sslmode=x", "unknown option 'sslmode'"),
            ("memory://?channel=a&outbox=0", "outbox is 0: give a number of notifications"),
            ("memory://?channel=a&probe_interval=nan", "probe_interval is nan: give a number of seconds above 0"),
            ("memory://?channel=a&probe_interval=1e999", "probe_interval is inf"),
            ("memory://board", "as in 'memory://?channel=board'"),
            ("memory:///board", "as in 'memory://?channel=board'"),
            (f"memory://user:{SECRET}@?channel=a", "as in 'memory://?channel=board'"),
        ],
    )
    def test_a_mistake_is_told_and_does_not_end_in_a_bus_of_ones_own(self, url: str, message: str) -> None:
        told = url_error(open_bus, url)
        assert message in told
        assert SECRET not in told
