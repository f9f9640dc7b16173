from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.brokers import Provider, Server

FLAVOURS = ("postgres-18", "postgres-15")


@pytest.fixture
def anyio_backend() -> str:
    """The one that asyncpg runs on."""
    return "asyncio"


@pytest.fixture
def channel() -> str:
    """A channel of the test's own, and the name of its sessions."""
    return f"test-{token_hex(6)}"


@pytest.fixture(scope="session", params=FLAVOURS)
def server(request: pytest.FixtureRequest, brokers: Provider) -> Iterator[Server]:
    """A server of each supported version; not to be harmed."""
    flavour: str = request.param
    if flavour == FLAVOURS[0]:
        yield brokers.get("postgres")
    elif flavour in brokers.flavours("postgres"):
        with brokers.dedicated("postgres", flavour) as older:
            yield older
    else:
        pytest.skip(f"no {flavour} here: there is {', '.join(brokers.flavours('postgres'))}")
