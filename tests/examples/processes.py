"""Examples as processes, started as a reader would start them, and what they say."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
from mcp import Client

from tests.mcp.replicas import LIMIT, ROOT

__all__ = ["EXAMPLES", "Running", "answers", "responds", "running"]

EXAMPLES = ROOT / "examples"


class Running:
    """A process, and the lines that it has written to its standard output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._heard = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.rstrip("\n"))

    async def said(self, *expected: str) -> list[str]:
        """Wait until these lines have come, in any order and others between them; all that came since the last time."""
        start = self._heard
        missing = set(expected)
        with anyio.move_on_after(LIMIT):
            while missing:
                ended = not self._reader.is_alive()  # before the look at the lines: there are no more after it
                while missing and self._heard < len(self._lines):
                    missing.discard(self._lines[self._heard])
                    self._heard += 1
                if missing and ended:
                    break
                if missing:
                    await anyio.sleep(0.02)
        assert not missing, f"waited for {missing}; these came: {self._lines[start:]}"
        return self._lines[start : self._heard]

    async def ended(self) -> int:
        """Wait until the process has ended; its exit code."""
        with anyio.fail_after(LIMIT):
            while self.process.poll() is None:
                await anyio.sleep(0.02)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


@contextmanager
def running(*command: str | Path, **environment: str) -> Generator[Running]:
    """Run Python with these arguments in the checkout. The process is killed at the end, if it is there still."""
    arguments: Sequence[str] = [sys.executable, *map(str, command)]
    with subprocess.Popen(
        arguments, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        example = Running(process)
        try:
            yield example
        finally:
            example.kill()


async def answers(url: str) -> None:
    """Wait until an MCP server answers."""
    with anyio.fail_after(LIMIT):
        while True:
            try:
                async with Client(url):
                    return
            except* Exception:
                await anyio.sleep(0.1)


async def responds(url: str) -> None:
    """Wait until an HTTP server answers."""
    with anyio.fail_after(LIMIT):
        async with httpx.AsyncClient() as client:
            while True:
                try:
                    await client.get(url)
                except httpx.TransportError:
                    await anyio.sleep(0.05)
                else:
                    return
