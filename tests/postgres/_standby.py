"""Hot standbys of a server of the tests."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager

from tests.brokers import Provider, Server
from tests.brokers._postgres import PostgresServer, _run
from tests.postgres._tools import admin

__all__ = ["allow_replication", "local", "make_standby_of", "standby_of"]


def local(server: Server) -> PostgresServer:
    """The same server, known to be a process of this machine: its programs and its data folder are within reach."""
    assert isinstance(server, PostgresServer)
    return server


@contextmanager
def standby_of(brokers: Provider, primary: PostgresServer) -> Generator[PostgresServer]:
    """A hot standby that streams from the primary; `allow_replication` must have been called."""
    with brokers.dedicated("postgres", primary.flavour) as server:
        standby = local(server)
        make_standby_of(standby, primary)
        yield standby


def make_standby_of(standby: PostgresServer, primary: PostgresServer) -> None:
    """Replace what this server was by a standby of the primary."""
    standby.kill()
    shutil.rmtree(standby._data)
    address = ["-h", primary.host, "-p", str(primary.port), "-U", "postgres"]
    program = str(standby._program.parent / "pg_basebackup")
    _run([program, *address, "-D", str(standby._data), "-R", "-X", "stream", "-c", "fast", "--no-sync"])
    standby.restart()


async def allow_replication(primary: PostgresServer) -> None:
    """Let standbys in."""
    with (primary._data / "pg_hba.conf").open("a", encoding="ascii") as rules:
        rules.write("host replication all all trust\n")
    async with admin(primary.url) as connection:
        await connection.execute("SELECT pg_reload_conf()")
