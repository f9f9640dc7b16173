"""How a RedisBus is told which server, and with which of redis-py's settings."""

from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import redis.client
from redis.asyncio.cluster import ClusterNode, RedisCluster

from notification_bus import BusNotification, BusNotReadyError, BusURLError, open_bus
from notification_bus_redis import RedisBus
from tests.brokers import Provider, Server, certificates, outage_warnings, witness
from tests.redis.support import channel, marker_arrives, next_of, quick_bus


@pytest.mark.parametrize("protocol", ["", "protocol=2", "protocol=3"])
@pytest.mark.parametrize("decode", ["", "decode_responses=true"])
@pytest.mark.parametrize("timeout", ["", "socket_timeout=1"])
async def test_every_setting_of_the_client_behaves_the_same(
    redis_server: Server, protocol: str, decode: str, timeout: str
) -> None:
    """R06."""
    name = channel()
    query = "&".join(filter(None, (f"channel={name}", protocol, decode, timeout)))
    bus = open_bus(f"{redis_server.url}?{query}")
    async with bus, bus.subscribe() as subscription, witness("redis", redis_server.url, name) as raw:
        own, foreign = BusNotification("own", {"text": "ü\u2028"}), BusNotification("foreign")
        await bus.publish(own)
        assert await next_of(subscription) == own
        await raw.publish(foreign.encode())
        assert await next_of(subscription) == foreign


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"decode_responses": True},
        {"protocol": 3},
        {"protocol": 2, "socket_timeout": 1, "health_check_interval": 1},
        {"max_connections": 1},
        {"max_connections": 2, "single_connection_client": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["client", "pool"])
async def test_a_callers_client_is_used_for_its_settings_and_never_closed(
    redis_server: Server, settings: dict[str, Any], kind: str
) -> None:
    """R13: a pool of one connection neither starves nor dead-locks."""
    client = redis.asyncio.Redis(host=redis_server.host, port=redis_server.port, **settings)
    async with client:
        await client.ping()
        async with quick_bus(client if kind == "client" else client.connection_pool) as bus, bus.subscribe() as got:
            await marker_arrives(bus, got)
            assert await client.ping()
        assert await client.ping()


async def test_other_schemes_and_a_unix_socket_reach_the_same_server(brokers: Provider, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with brokers.dedicated("redis", args=["--unixsocket", str(path)]) as server:
        name = channel()
        async with witness("redis", server.url, name) as raw:
            for url in (
                f"valkey://{server.host}:{server.port}?channel={name}",
                f"redis://{server.host}:{server.port}/3?channel={name}",
                f"unix://{path}?channel={name}&db=2",
            ):
                bus = open_bus(url)
                async with bus, bus.subscribe() as subscription:
                    await raw.publish(b'{"method":"a"}')
                    assert await next_of(subscription) == BusNotification("a"), url


async def test_tls_is_used_and_a_mismatch_is_said(brokers: Provider, tmp_path: Path) -> None:
    if "redis" not in brokers.flavours("redis"):
        pytest.skip("the valkey-server of PyPI is built without TLS, and there is no redis-server")
    tls = certificates(tmp_path)
    with brokers.dedicated("redis", "redis", tls=tls) as server:
        address = f"{server.host}:{server.port}"
        async with quick_bus(f"rediss://{address}?ssl_ca_certs={tls.ca}") as bus, bus.subscribe() as subscription:
            await marker_arrives(bus, subscription)
        for url, remedy in ((f"rediss://{address}", "ssl_ca_certs"), (f"redis://{address}", "rediss://")):
            async with quick_bus(url) as bus:
                with pytest.raises(BusNotReadyError, match=remedy):
                    await bus.wait_ready(2)


async def test_a_password_is_used_and_never_shown(brokers: Provider, caplog: pytest.LogCaptureFixture) -> None:
    with brokers.dedicated("redis", password="p@ss/w:rd") as server:
        bus = RedisBus.from_url(f"{server.url}?channel={channel()}")
        async with bus, bus.subscribe() as subscription:
            await marker_arrives(bus, subscription)
        wrong = quick_bus(server.url.replace("p%40ss", "h%40sh"))
        async with wrong:
            with pytest.raises(BusNotReadyError, match="check the user and the password") as caught:
                await wrong.wait_ready(2)
        shown = f"{bus!r} {wrong!r} {wrong.stats()} {caught.value} {caplog.text}"
    for secret in ("p@ss", "p%40ss", "h@sh", "h%40sh", "w:rd", "w%3Ard"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("redis://127.0.0.1:1", "nothing listens there"),
        ("unix:///nowhere/redis.sock", "nothing listens there"),
        ("redis://no-such-host.invalid", "check the host's name"),
    ],
)
async def test_an_unreachable_server_is_one_clear_line(url: str, remedy: str, caplog: pytest.LogCaptureFixture) -> None:
    async with quick_bus(url) as bus:
        with pytest.raises(BusNotReadyError, match=remedy):
            await bus.wait_ready(1.5)
    lines = outage_warnings(caplog)
    assert len([line for line in lines if remedy in line]) == 1
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize("other", ["postgres", "nats"])
async def test_a_server_of_another_protocol_is_said(other: str, brokers: Provider) -> None:
    server = brokers.get("postgres" if other == "postgres" else "nats")
    async with quick_bus(f"redis://{server.host}:{server.port}") as bus:
        with pytest.raises(BusNotReadyError, match="cannot connect") as caught:
            await bus.wait_ready(2)
    assert "(" in str(caught.value), f"no remedy in {caught.value}"


@pytest.mark.parametrize("option", ["chanel=x", "outbx=3", "ssl_ca=x", "foo="])
def test_an_unknown_option_is_refused_with_those_that_exist(option: str) -> None:
    with pytest.raises(BusURLError, match=r"unknown option .*channel, outbox, buffer"):
        open_bus(f"redis://localhost?channel=a&{option}")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "name the channel"),
        ("channel=", "name the channel"),
        ("channel=a&outbox=0", "outbox is 0"),
        ("channel=a&outbox=x", "outbox='x' is not a number"),
        ("channel=a&db=x", "'db'"),
        ("channel=a&protocol=x", "'protocol'"),
    ],
)
def test_an_unusable_url_is_refused_when_it_is_read(query: str, message: str) -> None:
    with pytest.raises(BusURLError, match=message):
        open_bus(f"redis://:secret@localhost?{query}")


@pytest.mark.parametrize("url", ["redis://:se\u2100cret@host", "redis://:pa/ss@host", "redis://[::1"])
def test_a_url_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(BusURLError, match="percent-encode") as caught:
        RedisBus(url, channel="a")
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_cluster_client_is_refused_with_what_to_give_instead() -> None:
    """R09."""
    cluster: Any = RedisCluster(startup_nodes=[ClusterNode("localhost", 6379)])
    with pytest.raises(TypeError, match=r"RedisCluster: .*URL of one of its nodes"):
        RedisBus(cluster, channel="a")


def test_a_blocking_client_is_refused_with_what_to_give_instead() -> None:
    blocking: Any = redis.client.Redis()
    with pytest.raises(TypeError, match=r"redis\.client\.Redis: give a URL, a redis\.asyncio\.Redis"):
        RedisBus(blocking, channel="a")


async def test_databases_do_not_separate_and_names_do(redis_server: Server) -> None:
    """R12."""
    name = channel()
    async with (
        quick_bus(f"{redis_server.url}/1", name) as one,
        quick_bus(f"{redis_server.url}/2", name) as two,
        quick_bus(redis_server.url, f"{name}.b") as other,
        quick_bus(redis_server.url, f"{name[:-1]}*") as pattern,
        one.subscribe() as at_one,
        other.subscribe() as at_other,
        pattern.subscribe() as at_pattern,
    ):
        await two.publish(BusNotification("from-another-database"))
        assert await next_of(at_one) == BusNotification("from-another-database")
        assert await marker_arrives(other, at_other) == []
        assert await marker_arrives(pattern, at_pattern) == []


@pytest.mark.parametrize("name", ["with space", "ünïcode", "semi;colon", "new\nline", "x" * 500, "{tag}"])
async def test_any_name_is_a_channel(redis_server: Server, name: str) -> None:
    """R12."""
    name = f"{name}{channel()}"
    async with (
        quick_bus(redis_server.url, name) as bus,
        bus.subscribe() as subscription,
        witness("redis", redis_server.url, name) as raw,
    ):
        await raw.publish(b'{"method":"a"}')
        assert await next_of(subscription) == BusNotification("a")


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_greeting_of_the_clients_own_is_said(redis_server: Server, kind: str) -> None:
    """As redis-py says it: instead of its own, on each connection."""
    greeted: list[Any] = []

    async def greet(connection: Any) -> None:
        greeted.append(connection)
        await connection.on_connect()

    def only_read(connection: Any) -> None:
        greeted.append(connection)
        connection._parser.on_connect(connection)  # a plain function can wait for no answer

    pool = redis.asyncio.ConnectionPool.from_url(
        redis_server.url, redis_connect_func=greet if kind == "coroutine" else only_read
    )
    async with quick_bus(pool) as bus, bus.subscribe() as subscription:
        await marker_arrives(bus, subscription)
    assert len(set(greeted)) == 2
