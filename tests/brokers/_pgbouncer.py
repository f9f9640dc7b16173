"""pgbouncer in front of a server: a pooler swallows LISTEN in its transaction mode."""

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.brokers._base import BrokerUnavailableError, Server
from tests.brokers._probe import answers
from tests.brokers._process import Process, free_port, unprivileged, workspace
from tests.brokers._programs import in_system

__all__ = ["PoolMode", "has_pgbouncer", "pgbouncer"]

PoolMode = Literal["session", "transaction", "statement"]


def _program() -> Path | None:
    return in_system("pgbouncer", "PgBouncer")


def has_pgbouncer() -> bool:
    return _program() is not None


@contextmanager
def pgbouncer(server: Server, mode: PoolMode = "transaction") -> Generator[str]:
    """Run pgbouncer before a PostgreSQL server, and yield the DSN that goes through it. It demands no password.

    Raises:
        BrokerUnavailableError: There is no pgbouncer here.
    """
    program = _program()
    if program is None:
        raise BrokerUnavailableError("no pgbouncer on this machine: apt install pgbouncer")
    port = free_port()
    folder = workspace().folder("pgbouncer")
    password = "" if server.password is None else f" password={_quoted(server.password)}"
    (folder / "users.txt").write_text('"postgres" ""\n', "utf-8")
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
* = host={server.host} port={server.port} user=postgres{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder / "users.txt"}
pool_mode = {mode}
max_client_conn = 200
default_pool_size = 20
ignore_startup_parameters = extra_float_digits,application_name,search_path
""",
        "utf-8",
    )
    process = Process([str(program), str(folder / "pgbouncer.ini")], folder / "log", user=unprivileged())
    with contextlib.ExitStack() as closing:
        closing.callback(process.kill)
        process.await_start(lambda: answers("postgres", "127.0.0.1", port))
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
