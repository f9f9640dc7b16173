"""The fixtures and the option of the servers, for pytest."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, cast

import pytest

from tests.brokers._base import KINDS, Kind, NotInContainersError, Server
from tests.brokers._broker import Broker
from tests.brokers._docker import DockerServer
from tests.brokers._local import LocalServer
from tests.brokers._provider import MODES, Mode, Provider

__all__ = ["Tally", "parametrize_flavours", "unmet"]

_PROVIDER = pytest.StashKey[Provider]()

SUPPORTED: Final[Mapping[Kind, tuple[str, ...]]] = {
    "redis": ("valkey", "redis"),
    "nats": ("nats-2.15", "nats-2.9"),
    "postgres": ("postgres-18", "postgres-15"),
}
"""The servers that the tests run against where they are programs of this machine, the default first."""


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
    tallies: dict[str, Tally] = {}
    config.stash[_TALLIES] = tallies
    config.pluginmanager.register(_Count(tallies))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _PROVIDER in config.stash:
        config.stash[_PROVIDER].close()


# -- a source of servers that was named must be used: what it has no server for is left out, and would look green


@dataclass
class Tally:
    """What became of the tests that need a server of one kind."""

    ran: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])


_TALLIES = pytest.StashKey[dict[str, Tally]]()
_SUBJECT: Final = "broker"


def _subjects(item: pytest.Item) -> list[str]:
    """What a test counts for: its broker as a whole and, where it is the contract, that."""
    if "brokers" not in cast("list[str]", getattr(item, "fixturenames", [])):
        return []
    parts = PurePosixPath(item.nodeid.partition("::")[0]).parts
    parameters = item.nodeid.rpartition("[")[2].rstrip("]").split("-")
    contract = parts[-1] == "test_contract.py"
    names = [kind for kind in KINDS if kind in parts or kind in parameters]
    return [*names, *(f"the contract of {kind}" for kind in names if contract)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Reports carry these from the processes of pytest-xdist to the one that decides about the exit status.
        item.user_properties.extend((_SUBJECT, subject) for subject in _subjects(item))


class _Count:
    """Counts the reports: a hook for reports is not told the configuration."""

    def __init__(self, tallies: dict[str, Tally]) -> None:
        self._tallies = tallies

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, subject in report.user_properties:
            if name != _SUBJECT:
                continue
            tally = self._tallies.setdefault(str(subject), Tally())
            if report.skipped:
                tally.left_out[report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"] += 1
            elif report.when == "call" or report.failed:
                tally.ran += 1


def unmet(mode: Mode, tallies: Mapping[str, Tally]) -> list[str]:
    """What a source of servers that was named has not been used for: a line for each broker, with the reasons."""
    if mode == "auto":
        return []
    return [
        f"--brokers={mode}: nothing of {subject} ran, {tally.left_out.total()} left out: "
        + "; ".join(reason.removeprefix("Skipped: ") for reason, _ in tally.left_out.most_common(3))
        for subject, tally in tallies.items()
        if tally.left_out and not tally.ran
    ]


def _unmet(config: pytest.Config) -> list[str]:
    tallies = config.stash[_TALLIES]
    return unmet(config.stash[_PROVIDER].mode, tallies)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _unmet(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := _unmet(config):
        terminalreporter.section("brokers", red=True)
        for line in lines:
            terminalreporter.line(f"ERROR {line}", red=True)


# -- the servers


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Leave out what needs a program of this machine where servers are containers."""
    try:
        return (yield)
    except NotInContainersError as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """As above."""
    try:
        return (yield)
    except NotInContainersError as error:
        pytest.skip(str(error))


def parametrize_flavours(metafunc: pytest.Metafunc, *kinds: Kind) -> None:
    """For `pytest_generate_tests`: run what uses `flavour` once on each server of these brokers."""
    if "_flavour" not in metafunc.fixturenames:
        return
    provider = metafunc.config.stash[_PROVIDER]
    pairs = [(kind, name) for kind in kinds for name in _flavours(provider, kind)]
    ids = [name for _, name in pairs]
    metafunc.parametrize("_flavour", pairs, ids=ids, indirect=True, scope="session")


def _flavours(provider: Provider, kind: Kind) -> tuple[str, ...]:
    """All that is supported, also where it is not here: that is said by a test that is left out."""
    here = tuple(provider.flavours(kind))
    return SUPPORTED[kind] if not here or set(here) & set(SUPPORTED[kind]) else here


@pytest.fixture(scope="session")
def _flavour(request: pytest.FixtureRequest, brokers: Provider) -> tuple[Kind, str]:
    """Which broker, and which of its servers: see `parametrize_flavours`."""
    kind, name = cast("tuple[Kind, str]", request.param)
    if name not in brokers.flavours(kind):
        pytest.skip(f"{name} is not on this machine")
    return kind, name


@pytest.fixture(scope="session")
def flavour(_flavour: tuple[Kind, str]) -> str:
    """Each server that the tests of this folder run against, for `brokers.dedicated`."""
    return _flavour[1]


@pytest.fixture(scope="session")
def each_server(brokers: Provider, _flavour: tuple[Kind, str]) -> Iterator[Server]:
    """A server of each flavour; not to be harmed."""
    kind, name = _flavour
    if name == brokers.flavours(kind)[0]:
        yield brokers.get(kind)
    else:
        with brokers.dedicated(kind, name) as server:
            yield server


@pytest.fixture
def own_server(brokers: Provider, _flavour: tuple[Kind, str]) -> Iterator[LocalServer | DockerServer]:
    """A server of the test's own, of each flavour: to be killed and frozen."""
    kind, name = _flavour
    with brokers.dedicated(kind, name) as server:
        yield server


@pytest.fixture(scope="session")
def broker(each_server: Server) -> Broker:
    """Each broker in turn, on a server that is not to be harmed."""
    return Broker(each_server)


@pytest.fixture
def own_broker(own_server: LocalServer | DockerServer) -> Broker:
    """Each broker in turn, on a server of the test's own."""
    return Broker(own_server)


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
