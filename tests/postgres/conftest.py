from secrets import token_hex

import pytest

from tests.brokers import Server
from tests.brokers.plugin import SUPPORTED, parametrize_flavours

FLAVOURS = SUPPORTED["postgres"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_flavours(metafunc, "postgres")


@pytest.fixture
def anyio_backend() -> str:
    """The one that asyncpg runs on."""
    return "asyncio"


@pytest.fixture
def channel() -> str:
    """A channel of the test's own, and the name of its sessions."""
    return f"test-{token_hex(6)}"


@pytest.fixture(scope="session")
def server(each_server: Server) -> Server:
    """A server of each supported version; not to be harmed."""
    return each_server
