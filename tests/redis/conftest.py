"""What the tests of RedisBus have in common, for pytest."""

import pytest

from tests.brokers.plugin import parametrize_flavours


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_flavours(metafunc, "redis")


@pytest.fixture
def anyio_backend() -> str:
    """redis-py runs on asyncio only."""
    return "asyncio"
