"""Output for people: with colours and boxes where `rich` and a terminal are available, otherwise plain text."""

# ruff: noqa: PLC0415  # rich is an extra, and takes its time to import

import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Cell", "Style", "Terminal"]

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
    """A text and its style. The text alone must say it all."""

    text: str
    style: Style = "plain"


class Terminal:
    """Prints results to the standard output and progress to the standard error."""

    def __init__(self) -> None:
        self._out: Console | None = None
        self._err: Console | None = None
        try:
            from rich import console
        except ModuleNotFoundError:
            return
        # A log that asks for no colours gets no bold either. https://no-color.org
        colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
        self._out = console.Console(highlight=False, color_system=colours)
        self._err = console.Console(stderr=True, highlight=False, color_system=colours)

    @property
    def width(self) -> int:
        """The characters of a line."""
        return shutil.get_terminal_size((80, 24)).columns if self._out is None else self._out.width

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table."""
        if self._out is None:
            lines = [list(columns), *([cell.text for cell in row] for row in rows)]
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            lines.insert(1, ["-" * width for width in widths])
            for line in lines:
                self.line("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns)
        for row in rows:
            table.add_row(*(Text(cell.text, _COLOURS[cell.style]) for cell in row))
        self._out.print(table)

    def line(self, text: str = "", style: Style = "plain") -> None:
        """Print a paragraph, wrapped at the width of a terminal."""
        self._print([Cell(text, style)], wrapped=True)

    def cells(self, cells: Sequence[Cell]) -> None:
        """Print one line made of the cells, however long it is."""
        self._print(cells, wrapped=False)

    def _print(self, cells: Sequence[Cell], *, wrapped: bool) -> None:
        if self._out is None:
            print("".join(cell.text for cell in cells).rstrip())  # noqa: T201  # this is what the module is for
            return
        from rich.text import Text

        # Text and not a str, in which brackets would be markup.
        text = Text.assemble(*((cell.text, _COLOURS[cell.style]) for cell in cells))
        text.rstrip()
        self._out.print(text, soft_wrap=not (wrapped and self._out.is_terminal))

    @contextmanager
    def working(self) -> Generator[Callable[[str], None]]:
        """Yield a function that shows what is being done."""
        if self._err is None or not self._err.is_terminal:
            yield lambda text: print(f"{text} ...", file=sys.stderr, flush=True)  # noqa: T201
            return
        with self._err.status("starting ...") as status:
            yield lambda text: status.update(f"{text} ...")
