"""Every form of authentication against a server that demands it: issue 3, item 1."""

import base64
import logging
import ssl
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import RawCredentials

from notification_bus import BusNotReadyError, open_bus
from notification_bus_nats import NatsBus
from tests.brokers import Provider, Server, Tls, certificates, is_process, outage_warnings
from tests.brokers._listener import listening, note
from tests.nats.helpers import bus_on, settled
from tests.nats.identities import Operator, new_key

SECRET = "s3cr3t/@:,#?%"  # every character that a URL would take for its own
ESCAPED = "s3cr3t%2F%40%3A%2C%23%3F%25"

needs_nkeys = pytest.mark.skipif(find_spec("nkeys") is None, reason="pip install 'notification-bus-nats[nkeys]'")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return certificates(tmp_path_factory.mktemp("pem"))


async def carries(bus: NatsBus) -> None:
    async with bus, listening(bus) as ear:
        await bus.publish(note(1))
        await ear.wait_for(note(1))


async def refusal(bus: NatsBus) -> str:
    """What a subscriber is told where the server refuses."""
    async with bus:
        with pytest.raises(BusNotReadyError) as caught:
            await bus.wait_ready(1)
    await settled()
    return str(caught.value)


PASSWORD = f'authorization {{ user: bus, password: "{SECRET}" }}'
TOKEN = f'authorization {{ token: "{SECRET}" }}'


FORMS: dict[str, tuple[str, str, dict[str, str]]] = {
    "password in the URL": (PASSWORD, f"bus:{ESCAPED}@", {}),
    "password as keyword": (PASSWORD, "", {"user": "bus", "password": SECRET}),
    "the URL goes first": (PASSWORD, f"bus:{ESCAPED}@", {"user": "other", "password": "other"}),
    "token in the URL": (TOKEN, f"{ESCAPED}@", {}),
    "token as keyword": (TOKEN, "", {"token": SECRET}),
}


@pytest.mark.parametrize("form", FORMS)
async def test_password_and_token_are_accepted(brokers: Provider, flavour: str, channel: str, form: str) -> None:
    config, user, given = FORMS[form]
    with brokers.dedicated("nats", flavour, text=config) as server:
        await carries(bus_on(f"nats://{user}{server.host}:{server.port}", channel, **given))


@pytest.mark.parametrize(
    ("config", "given"),
    [(PASSWORD, {}), (PASSWORD, {"user": "bus", "password": "Wr0ng"}), (TOKEN, {"token": "Wr0ng"}), (TOKEN, {})],
)
async def test_wrong_credentials_are_one_line_with_cause_and_remedy_and_without_secret(
    brokers: Provider, caplog: pytest.LogCaptureFixture, channel: str, config: str, given: dict[str, str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with brokers.dedicated("nats", text=config) as server:
        told = await refusal(bus_on(server, channel, **given))
    assert "authorization violation" in told.lower()
    assert "check user and password, token" in told
    assert "\n" not in told
    assert any("authorization violation" in line.lower() for line in outage_warnings(caplog))
    assert "Wr0ng" not in caplog.text + told


async def test_password_that_is_set_right_later_is_used_without_a_restart(
    brokers: Provider, channel: str, tmp_path: Path
) -> None:
    """Wrong credentials are retried like everything else (here the server's are mended)."""
    with brokers.dedicated("nats", "nats-2.15", text='authorization { user: bus, password: "other" }') as server:
        bus = bus_on(server, channel, user="bus", password=SECRET)
        async with bus:
            with pytest.raises(BusNotReadyError):
                await bus.wait_ready(0.5)
            assert is_process(server)
            (server.log.parent / "nats.conf").write_text(PASSWORD, "utf-8")
            server.restart()
            async with listening(bus) as ear:
                await bus.publish(note(1))
                await ear.wait_for(note(1))


@needs_nkeys
class TestNkeys:
    @pytest.mark.parametrize("form", ["file", "string"])
    async def test_seed_is_accepted(
        self, brokers: Provider, flavour: str, channel: str, tmp_path: Path, form: str
    ) -> None:
        key = new_key("user")
        (tmp_path / "seed").write_text(f"{key.seed}\n", "utf-8")
        given: dict[str, str] = {"nkeys_seed": f"{tmp_path}/seed"} if form == "file" else {"nkeys_seed_str": key.seed}
        with brokers.dedicated(
            "nats", flavour, text=f"authorization {{ users: [ {{ nkey: {key.public} }} ] }}"
        ) as server:
            await carries(bus_on(server, channel, **given))

    async def test_other_seed_is_refused_without_being_shown(
        self, brokers: Provider, caplog: pytest.LogCaptureFixture, channel: str
    ) -> None:
        caplog.set_level(logging.DEBUG)
        right, wrong = new_key("user"), new_key("user")
        config = f"authorization {{ users: [ {{ nkey: {right.public} }} ] }}"
        with brokers.dedicated("nats", text=config) as server:
            told = await refusal(bus_on(server, channel, nkeys_seed_str=wrong.seed))
        assert "check user and password, token, NKey" in told
        assert wrong.seed not in told + caplog.text

    @pytest.mark.parametrize("seed", ["SUNONSENSE", "nonsense", ""])
    async def test_nonsense_for_a_seed_is_reported(
        self, nats_server: Server, channel: str, tmp_path: Path, seed: str
    ) -> None:
        (tmp_path / "seed").write_text(seed, "utf-8")
        told = await refusal(bus_on(nats_server, channel, nkeys_seed=str(tmp_path / "seed")))
        assert "seed" in told.lower()

    @pytest.mark.parametrize(
        "form",
        [
            "path",
            "pathlib",
            "content",
            "in the URL",
            "without a last newline",
            "CRLF",
            "a file for each part",
            "functions",
        ],
    )
    async def test_credentials_are_accepted(
        self, brokers: Provider, flavour: str, channel: str, tmp_path: Path, form: str
    ) -> None:
        operator = Operator()
        text = operator.credentials()
        jwt, seed = text.splitlines()[1], text.splitlines()[-2]
        file = tmp_path / "bus.creds"
        file.write_bytes(
            {"CRLF": text.replace("\n", "\r\n"), "without a last newline": text.strip()}.get(form, text).encode()
        )
        with brokers.dedicated("nats", flavour, text=operator.config) as server:
            bus: Any
            match form:
                case "in the URL":
                    bus = open_bus(f"{server.url}?channel={channel}&user_credentials={file}")
                case "content":
                    bus = bus_on(server, channel, user_credentials=RawCredentials(text))
                case "a file for each part":
                    (tmp_path / "jwt").write_text(jwt, "utf-8")
                    (tmp_path / "seed").write_text(seed, "utf-8")
                    bus = bus_on(server, channel, user_credentials=(f"{tmp_path}/jwt", f"{tmp_path}/seed"))
                case "functions":
                    key: Any = import_module("nkeys").from_seed(bytearray(seed.encode()))

                    def sign(nonce: str) -> bytes:
                        return base64.b64encode(key.sign(nonce.encode()))

                    bus = bus_on(server, channel, user_jwt_cb=jwt.encode, signature_cb=sign)
                case "pathlib":
                    bus = bus_on(server, channel, user_credentials=file)
                case _:
                    bus = bus_on(server, channel, user_credentials=str(file))
            await carries(bus)

    @pytest.mark.parametrize(
        ("content", "says"),
        [(None, "No such file"), ("", "USER NKEY SEED"), ("-----BEGIN NATS USER JWT-----\nabc\n", "USER NKEY SEED")],
    )
    async def test_unusable_credentials_file_is_reported_and_stops_nothing(
        self, nats_server: Server, channel: str, tmp_path: Path, content: str | None, says: str
    ) -> None:
        """nats-py itself never returns from reading a file without a JWT."""
        file = tmp_path / "bus.creds"
        if content is not None:
            file.write_text(content, "utf-8")
        told = await refusal(bus_on(nats_server, channel, user_credentials=file))
        assert says in told
        assert str(file) in told

    async def test_credentials_file_is_read_again_for_each_connection(
        self, brokers: Provider, channel: str, tmp_path: Path
    ) -> None:
        operator, stranger = Operator(), Operator()
        file = tmp_path / "bus.creds"
        file.write_text(stranger.credentials(), "utf-8")
        with brokers.dedicated("nats", text=operator.config) as server:
            bus = bus_on(server, channel, user_credentials=file)
            async with bus:
                with pytest.raises(BusNotReadyError, match="uthorization"):
                    await bus.wait_ready(0.5)
                file.write_text(operator.credentials(), "utf-8")
                await bus.wait_ready()


class TestTls:
    @pytest.mark.parametrize("form", ["context", "function", "files", "files in the URL", "nats:// with a context"])
    async def test_server_with_tls_is_reached(
        self, brokers: Provider, flavour: str, channel: str, pem: Tls, form: str
    ) -> None:
        with brokers.dedicated("nats", flavour, tls=pem) as server:
            plain = server.url.replace("tls://", "nats://")
            match form:
                case "context":
                    bus: Any = bus_on(server, channel, tls=ssl.create_default_context(cafile=pem.ca))
                case "function":
                    bus = bus_on(server, channel, tls=lambda: ssl.create_default_context(cafile=pem.ca))
                case "files":
                    bus = bus_on(plain, channel, tls_ca_file=str(pem.ca))
                case "files in the URL":
                    bus = open_bus(f"{server.url}?channel={channel}&tls_ca_file={pem.ca}")
                case _:
                    bus = bus_on(plain, channel, tls=ssl.create_default_context(cafile=pem.ca))
            await carries(bus)

    async def test_clients_certificate_is_presented(
        self, brokers: Provider, flavour: str, channel: str, pem: Tls
    ) -> None:
        verify = ["--tlsverify", "--tlscacert", str(pem.ca), "--tlscert", str(pem.cert), "--tlskey", str(pem.key)]
        with brokers.dedicated("nats", flavour, tls=pem, args=verify) as server:
            url = f"tls://{server.host}:{server.port}?channel={channel}&probe_timeout=1&tls_ca_file={pem.ca}"
            await carries_any(f"{url}&tls_cert_file={pem.cert}&tls_key_file={pem.key}")
            bus = open_bus(url)
            assert isinstance(bus, NatsBus)
            assert "certificate" in await refusal(bus)

    async def test_untrusted_certificate_is_named_with_the_remedy(
        self, brokers: Provider, channel: str, pem: Tls
    ) -> None:
        with brokers.dedicated("nats", tls=pem) as server:
            told = await refusal(bus_on(server, channel))
        assert "CERTIFICATE_VERIFY_FAILED" in told
        assert "tls_ca_file" in told

    async def test_name_in_the_certificate_can_be_given(self, brokers: Provider, channel: str, tmp_path: Path) -> None:
        pem = certificates(tmp_path, "nats.example")
        context = ssl.create_default_context(cafile=pem.ca)
        with brokers.dedicated("nats", tls=pem) as server:
            assert "tls_hostname" in await refusal(bus_on(server, channel, tls=context))
            await carries(bus_on(server, channel, tls=context, tls_hostname="nats.example"))

    @pytest.mark.parametrize("asked", ["by the scheme", "by a context"])
    async def test_password_is_not_sent_to_a_server_without_tls(
        self, brokers: Provider, flavour: str, channel: str, asked: str
    ) -> None:
        """nats-py itself sends it, whatever the URL says."""
        config = f"{PASSWORD}\ntrace: true\ntrace_verbose: true\n"
        with brokers.dedicated("nats", flavour, text=config) as server:
            url = f"{'tls' if asked == 'by the scheme' else 'nats'}://bus:{ESCAPED}@{server.host}:{server.port}"
            context = None if asked == "by the scheme" else ssl.create_default_context()
            told = await refusal(bus_on(url, channel, tls=context))
            assert is_process(server)
            said = server.log.read_text("utf-8")
        assert "offers no TLS" in told
        assert "use nats://" in told
        # The witness of the provider's own probe is there; ours would bring a name.
        assert "notification-bus" not in said

    async def test_tls_is_used_where_the_server_only_offers_it(
        self, brokers: Provider, flavour: str, channel: str, pem: Tls
    ) -> None:
        with brokers.dedicated("nats", flavour, tls=pem, text="allow_non_tls: true") as server:
            await carries(bus_on(server, channel, tls=ssl.create_default_context(cafile=pem.ca)))
            with pytest.raises(AssertionError):  # what fails without the authority is encrypted
                await carries_soon(bus_on(server, channel))

    async def test_server_that_begins_with_tls_is_reached_with_the_option(
        self, brokers: Provider, channel: str, pem: Tls
    ) -> None:
        with brokers.dedicated("nats", "nats-2.15", tls=pem) as server:
            assert is_process(server)
            conf = server.log.parent / "nats.conf"
            # The server waits a moment for the client to begin, then gives in, which the provider's probe needs.
            conf.write_text(conf.read_text("utf-8").replace("tls {", "tls { handshake_first: 200ms,"), "utf-8")
            server.restart()
            here = f"tls://{server.host}:{server.port}?channel={channel}&tls_ca_file={pem.ca}"
            await carries_any(f"{here}&tls_handshake_first=true")


async def carries_any(url: str) -> None:
    bus = open_bus(url)
    assert isinstance(bus, NatsBus)
    await carries(bus)


async def carries_soon(bus: NatsBus) -> None:
    async with bus:
        try:
            await bus.wait_ready(1)
        except BusNotReadyError:
            raise AssertionError from None
