"""Real brokers for tests and benchmarks: servers to use, to kill and to freeze, and witnesses beside the bus."""

from tests.brokers._base import (
    KINDS,
    BrokerStartError,
    BrokerUnavailableError,
    FaultError,
    Kind,
    NotInContainersError,
    Server,
    ServerConfig,
    Source,
    Tls,
)
from tests.brokers._broker import Broker
from tests.brokers._docker import IMAGES, DockerServer
from tests.brokers._listener import (
    LIMIT,
    QUICK,
    Listener,
    eventually,
    leftovers,
    links_to,
    listening,
    note,
    outage_warnings,
    proven,
    settled,
)
from tests.brokers._local import LocalServer, is_process
from tests.brokers._pgbouncer import PoolMode, has_pgbouncer, pgbouncer
from tests.brokers._postgres import PostgresServer
from tests.brokers._process import free_port, until
from tests.brokers._programs import available_flavours
from tests.brokers._provider import MODES, VARIABLES, Mode, Provider, UrlServer
from tests.brokers._redis_nats import NatsServer, RedisServer
from tests.brokers._tls import certificates
from tests.brokers._witness import NatsWitness, PostgresWitness, RedisWitness, Witness, witness

__all__ = [
    "IMAGES",
    "KINDS",
    "LIMIT",
    "MODES",
    "QUICK",
    "VARIABLES",
    "Broker",
    "BrokerStartError",
    "BrokerUnavailableError",
    "DockerServer",
    "FaultError",
    "Kind",
    "Listener",
    "LocalServer",
    "Mode",
    "NatsServer",
    "NatsWitness",
    "NotInContainersError",
    "PoolMode",
    "PostgresServer",
    "PostgresWitness",
    "Provider",
    "RedisServer",
    "RedisWitness",
    "Server",
    "ServerConfig",
    "Source",
    "Tls",
    "UrlServer",
    "Witness",
    "available_flavours",
    "certificates",
    "eventually",
    "free_port",
    "has_pgbouncer",
    "is_process",
    "leftovers",
    "links_to",
    "listening",
    "note",
    "outage_warnings",
    "pgbouncer",
    "proven",
    "settled",
    "until",
    "witness",
]
