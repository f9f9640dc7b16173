"""The fixtures and the option of the servers, for pytest."""

from collections.abc import Iterator
from typing import cast

import pytest

from tests.brokers import MODES, Mode, Provider, Server

__all__: list[str] = []

_PROVIDER = pytest.StashKey[Provider]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brokers",
        choices=MODES,
        default="auto",
        help="where servers come from: a URL in the environment, a container engine, this machine's binaries, "
        "or the first of these that is there (the default)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PROVIDER] = Provider(cast("Mode", config.getoption("--brokers")))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _PROVIDER in config.stash:
        config.stash[_PROVIDER].close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return config.stash[_PROVIDER].describe()


@pytest.fixture(scope="session")
def brokers(pytestconfig: pytest.Config) -> Iterator[Provider]:
    """Where servers come from."""
    provider = pytestconfig.stash[_PROVIDER]
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def redis_server(brokers: Provider) -> Server:
    """The session's Redis; not to be harmed."""
    return brokers.get("redis")


@pytest.fixture(scope="session")
def nats_server(brokers: Provider) -> Server:
    """The session's NATS; not to be harmed."""
    return brokers.get("nats")


@pytest.fixture(scope="session")
def postgres_server(brokers: Provider) -> Server:
    """The session's PostgreSQL; not to be harmed."""
    return brokers.get("postgres")
