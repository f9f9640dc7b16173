"""The fixtures of the outcomes that every broker's bus must have, whatever fails."""

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest

from notification_bus.testing import FaultProxy
from tests.brokers import KINDS, Broker, Kind, settled
from tests.brokers.plugin import parametrize_flavours


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    brokers: tuple[Kind, ...] = vars(metafunc.module).get("BROKERS", KINDS)
    parametrize_flavours(metafunc, *brokers)


@pytest.fixture
def anyio_backend() -> str:
    """The brokers' client libraries run on asyncio only."""
    return "asyncio"


@pytest.fixture
def channel() -> str:
    """A channel of the test's own, and the name of its sessions."""
    return f"test-{token_hex(6)}"


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """After the test there are no more sockets and tasks than before."""
    async with settled():
        yield


@pytest.fixture
async def proxy(broker: Broker, nothing_left: None) -> AsyncIterator[FaultProxy]:
    """A proxy before the server. Nothing is left when both are gone."""
    async with FaultProxy(broker.server.host, broker.server.port) as proxy:
        yield proxy
