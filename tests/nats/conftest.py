"""What the tests of NATS have in common, for pytest."""

from itertools import count

import pytest

from tests.brokers.plugin import parametrize_flavours

_NAMES = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_flavours(metafunc, "nats")


@pytest.fixture
def anyio_backend() -> str:
    """nats-py runs on asyncio only."""
    return "asyncio"


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """A name of the test's own: the server is shared."""
    return f"{request.node.name.partition('[')[0]}.{next(_NAMES)}"
