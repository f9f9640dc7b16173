"""What the commands print: with colour and boxes where `rich` and a terminal are there, else as plain text."""

# ruff: noqa: T201  # printing is what this module is for

import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Cell", "Style", "Terminal", "open_terminal"]

Style: TypeAlias = Literal["plain", "good", "bad", "strong", "dim"]

_COLOURS: Final[dict[Style, str]] = {
    "plain": "",
    "good": "bold green",
    "bad": "bold red",
    "strong": "bold",
    "dim": "dim",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a meaning that may be shown as a colour. The text alone must say it all."""

    text: str
    style: Style = "plain"


class Terminal(Protocol):
    """Results go to the standard output, progress to the standard error."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table."""
        ...

    def line(self, text: str = "", style: Style = "plain") -> None:
        """Print a paragraph."""
        ...

    def cells(self, cells: Sequence[Cell]) -> None:
        """Print one line made of these, however long it is."""
        ...

    @property
    def width(self) -> int:
        """Characters of a line."""
        ...

    def working(self) -> AbstractContextManager[Callable[[str], None]]:
        """A context in which the function that it yields tells what is being done."""
        ...


def open_terminal() -> Terminal:
    """The best that is there."""
    try:
        from rich.console import Console  # noqa: PLC0415  # an extra
    except ModuleNotFoundError:
        return _PlainTerminal()
    # Without colours there is no bold either: a log that asks for none wants plain text. https://no-color.org
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return _RichTerminal(
        Console(highlight=False, color_system=colours), Console(stderr=True, highlight=False, color_system=colours)
    )


class _PlainTerminal:
    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        lines = [list(columns), *([cell.text for cell in row] for row in rows)]
        widths = [max(len(line[position]) for line in lines) for position in range(len(columns))]
        lines.insert(1, ["-" * width for width in widths])
        for line in lines:
            print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())

    def line(self, text: str = "", style: Style = "plain") -> None:
        print(text)

    def cells(self, cells: Sequence[Cell]) -> None:
        print("".join(cell.text for cell in cells).rstrip())

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((80, 24)).columns

    @contextmanager
    def working(self) -> Generator[Callable[[str], None]]:
        def tell(text: str) -> None:
            print(f"{text} ...", file=sys.stderr, flush=True)

        yield tell


class _RichTerminal:
    def __init__(self, out: "Console", err: "Console") -> None:
        self._out = out
        self._err = err

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        from rich.table import Table  # noqa: PLC0415  # as above
        from rich.text import Text  # noqa: PLC0415

        table = Table()
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(Text(cell.text, _COLOURS[cell.style]) for cell in row))
        self._out.print(table)

    def line(self, text: str = "", style: Style = "plain") -> None:
        from rich.text import Text  # noqa: PLC0415  # not a str, in which brackets would be markup

        self._out.print(Text(text, _COLOURS[style]), soft_wrap=not self._out.is_terminal)

    def cells(self, cells: Sequence[Cell]) -> None:
        from rich.text import Text  # noqa: PLC0415  # as above

        text = Text()
        for cell in cells:
            text.append(cell.text, _COLOURS[cell.style])
        text.rstrip()
        self._out.print(text, soft_wrap=True)

    @property
    def width(self) -> int:
        return self._out.width

    @contextmanager
    def working(self) -> Generator[Callable[[str], None]]:
        if not self._err.is_terminal:
            with _PlainTerminal().working() as tell:
                yield tell
            return
        with self._err.status("starting ...") as status:
            yield lambda text: status.update(f"{text} ...")
