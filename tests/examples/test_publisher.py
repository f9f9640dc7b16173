"""The import of examples/publisher: all of it has been handed over when the process ends, or its exit code says no."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import anyio
import pytest

from examples.updates.store import INDEX, Notes
from notification_bus import BusNotification, open_bus
from tests.brokers import Provider, Server, free_port, until
from tests.examples.processes import answers, running
from tests.mcp.replicas import LIMIT, ROOT


@pytest.fixture
def anyio_backend() -> str:
    """The servers are processes."""
    return "asyncio"


def start(bus: str, notes: Path, *files: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.publisher.import_notes", *files, "--bus", bus, "--notes", notes],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what was said last. Kills a process that does not come to an end."""
    with process:
        try:
            output, errors = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    return process.returncode, (output + errors).splitlines()[-1]


async def test_what_it_imports_is_read_by_the_clients_of_a_server(redis_server: Server, tmp_path: Path) -> None:
    """A client of examples/updates prints the new text."""
    bus, notes, port = f"{redis_server.url}?channel=test-example-import", tmp_path / "notes.sqlite", free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    file = tmp_path / "shopping.txt"
    with running("-m", "examples.updates.server", "--port", str(port), "--bus", bus, "--notes", notes):
        await answers(url)
        with running("-m", "examples.updates.watch", url) as client:
            await client.said("notes://index = ''")
            for text in ("milk", "bread"):
                file.write_text(text)
                done = await anyio.to_thread.run_sync(finish, start(bus, notes, file))
                assert done == (0, "imported 1, and told of it in 3 notifications")
                await client.said(f"note://shopping = '{text}'", f"notes://index = 'shopping: {text}'")


async def test_hundreds_have_been_handed_over_when_it_ends(redis_server: Server, tmp_path: Path) -> None:
    """Each arrives, in order: the process does not end with a full outbox, though it waits for nothing by itself."""
    files = [tmp_path / f"note-{number}.txt" for number in range(300)]
    for file in files:
        file.write_text(file.stem)
    expected = [BusNotification.resource_updated(f"note://{file.stem}") for file in files]
    expected += [BusNotification.resource_updated(INDEX), BusNotification.resources_list_changed()]
    bus = f"{redis_server.url}?channel=test-example-import-many"
    async with open_bus(bus) as listening, listening.subscribe() as notifications:
        done = await anyio.to_thread.run_sync(finish, start(bus, tmp_path / "notes.sqlite", *files))
        assert done == (0, "imported 300, and told of it in 302 notifications")
        with anyio.fail_after(LIMIT):
            assert [await anext(notifications) for _ in expected] == expected


def test_without_a_broker_it_imports_nothing_and_says_why(tmp_path: Path) -> None:
    """Exit code 1, and where it looked."""
    file, port = tmp_path / "shopping.txt", free_port()
    file.write_text("milk")
    code, said = finish(start(f"redis://127.0.0.1:{port}?channel=test", tmp_path / "notes.sqlite", file))
    assert code == 1
    assert said.startswith("nothing imported: ")
    assert f"127.0.0.1:{port}" in said
    assert "nothing listens there" in said
    assert Notes(tmp_path / "notes.sqlite").read_all() == {}


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_broker_that_goes_away_in_the_middle_is_an_exit_code(
    brokers: Provider, tmp_path: Path, fault: Literal["kill", "freeze"]
) -> None:
    """The file is a pipe: who reads it has found the broker well. The next run tells of the same file again."""
    file, notes = tmp_path / "shopping.txt", tmp_path / "notes.sqlite"
    os.mkfifo(file)
    with brokers.dedicated("redis") as server:
        bus = f"{server.url}?channel=test"
        process = start(bus, notes, file)
        pipe = -1

        def reads() -> bool:
            nonlocal pipe
            try:
                pipe = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                assert process.poll() is None
                return False
            return True

        try:
            until(reads, LIMIT, "the import to read the file")
            getattr(server, fault)()
            os.write(pipe, b"milk")
        finally:
            os.close(pipe)
            done = finish(process)
        assert done == (1, "imported, but 3 of 3 notifications may not have arrived: run it again")
        assert Notes(notes).read_all() == {"shopping": "milk"}
        server.restart()
        file.unlink()
        file.write_text("milk")
        assert finish(start(bus, notes, file)) == (0, "imported 1, and told of it in 3 notifications")
