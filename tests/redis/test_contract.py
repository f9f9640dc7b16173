"""RedisBus keeps the whole contract, on every server that is here."""

from collections.abc import Iterator

import pytest

from notification_bus.testing import Harness, url_harness
from notification_bus.testing.contract import BusContract
from tests.brokers import Provider, Server, available_flavours
from tests.brokers.wires import RedisWire


@pytest.fixture(scope="module", params=[*available_flavours("redis")] or [""])
def each_server(brokers: Provider, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each kind of server in turn; the session's own where it is given by a URL or a container."""
    first = next(iter(available_flavours("redis")), "")
    if not request.param or brokers.source("redis") != "local":
        if request.param != first:
            pytest.skip("the servers of this run are given by a URL or are containers")
        yield brokers.get("redis")
        return
    with brokers.dedicated("redis", request.param) as server:
        yield server


class TestRedisBusKeepsTheContract(BusContract):
    strict = True

    @pytest.fixture
    def harness(self, each_server: Server) -> Harness:
        return url_harness(
            each_server.url,
            wire=RedisWire(each_server.url),
            broker=f"{each_server.flavour} {each_server.version}",
            max_body=1_048_576,
        )
