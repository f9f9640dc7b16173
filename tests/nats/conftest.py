"""What the tests of NATS have in common, for pytest."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.brokers import LocalServer, Provider, Server

_NAMES = count()


@pytest.fixture
def anyio_backend() -> str:
    """nats-py runs on asyncio only."""
    return "asyncio"


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """A name of the test's own: the server is shared."""
    return f"{request.node.name.partition('[')[0]}.{next(_NAMES)}"


@pytest.fixture(scope="session", params=["nats-2.15", "nats-2.9"])
def flavour(request: pytest.FixtureRequest, brokers: Provider) -> str:
    """Each server version that is to be supported."""
    name = str(request.param)
    if name not in brokers.flavours("nats"):
        pytest.skip(f"{name} is not on this machine")
    return name


@pytest.fixture(scope="session")
def each_server(brokers: Provider, flavour: str) -> Iterator[Server]:
    """A server of each version; not to be harmed."""
    with brokers.dedicated("nats", flavour) as server:
        yield server


@pytest.fixture
def server(brokers: Provider, flavour: str) -> Iterator[Server]:
    """A server of the test's own, to be killed and frozen, of each version."""
    with brokers.dedicated("nats", flavour) as server:
        yield server


@pytest.fixture
def newest(brokers: Provider) -> Iterator[LocalServer]:
    """A server process of the test's own, of the newest version."""
    with brokers.dedicated("nats", "nats-2.15") as server:
        assert isinstance(server, LocalServer)
        yield server
