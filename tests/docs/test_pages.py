"""Every code block of the README and the docs is run."""

import ast
import asyncio
import inspect
import re
import shlex
from collections.abc import Coroutine
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.brokers import KINDS, Provider

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")])
SCHEMES = {"redis": "redis", "nats": "nats", "postgres": "postgresql"}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    found: list[Block] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^( *)```([\w-]*)[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(page, line, match[2], inspect.cleandoc("\n" + match[3]))
            if block.language in languages:
                found.append(block)
    return found


def with_real_servers(text: str, brokers: Provider) -> str:
    """The block with the test's servers in place of those on localhost."""
    for kind in KINDS:
        pattern = rf"{SCHEMES[kind]}://[\w.:@-]*(localhost|host|db)[\w:-]*(/\w+)?"
        if re.search(pattern, text):
            text = re.sub(pattern, brokers.get(kind).url, text)
    return text


def test_every_block_is_of_a_kind_that_is_run_here() -> None:
    kinds = {match for page in PAGES for match in re.findall(r"^ *```([\w-]+)", page.read_text(), re.MULTILINE)}
    assert kinds <= {"python", "console", "toml", "sql", "text"}, "teach this test to run it"


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_in_the_docs_runs(block: Block, brokers: Provider, capsys: pytest.CaptureFixture[str]) -> None:
    """A block is run as a module; an async function without parameters that it defines is run then."""
    source = with_real_servers(block.text, brokers)
    code: CodeType = compile(source, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    namespace: dict[str, Any] = {"__name__": "page"}

    async def run() -> None:
        result: Coroutine[Any, Any, None] | None = eval(code, namespace)
        if result is not None:
            await result
        for value in list(namespace.values()):
            own = inspect.iscoroutinefunction(value) and value.__module__ == "page"
            if own and not inspect.signature(value).parameters:
                await value()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_commands_in_the_docs_exist(block: Block) -> None:
    """What is installed is one of ours, with an extra that it has; what is run is a command of ours."""
    for command in block.text.splitlines():
        for part in command.split("&&"):
            words = shlex.split(part)
            if "install" in words and words[0].endswith("pip"):
                for requirement in [word for word in words[words.index("install") + 1 :] if not word.startswith("-")]:
                    name, _, extra = requirement.rstrip("]").partition("[")
                    if name in {"uv", "pytest"}:
                        continue
                    assert not extra or extra in (metadata(name).get_all("Provides-Extra") or []), requirement
            elif words[0] == "notification-bus":
                from notification_bus.cli import main

                with pytest.raises(SystemExit) as done:
                    main([words[1], "--help"])
                assert done.value.code in {0, None}, part
            else:
                assert words[0] in {"python3", ".uv/bin/uv", "uv", "pytest", "rm"}, f"nothing runs {part!r}"
