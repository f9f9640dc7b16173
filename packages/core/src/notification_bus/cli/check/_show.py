"""The results, for people: a header, a line for each check, and all there is to say about what is red."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from notification_bus.cli._terminal import Cell, Style, Terminal
from notification_bus.cli.check._options import Options
from notification_bus.cli.check._suite import Report
from notification_bus.testing import CHECKS, Result

__all__ = ["print_list", "print_report"]

_GAP: Final = "  "
_BESIDE: Final = 36
"""Characters for which the reason stands beside the outcome; with less it goes on a line of its own."""

_WORDS: Final[dict[str, tuple[str, Style]]] = {
    "passed": ("passed", "good"),
    "failed": ("FAILED", "bad"),
    "not_declared": ("not declared", "dim"),
    "untestable": ("untestable", "plain"),
    "known_failure": ("known failure", "strong"),
}
"""How each outcome is shown. The words alone say it; colours only help."""

_OUTCOME: Final = max(len(word) for word, _ in _WORDS.values())
_SECONDS: Final = 8


def print_list(options: Options, terminal: Terminal) -> None:
    """What checks there are."""
    longest = max(len(check.id) for check in options.checks)
    for check in options.checks:
        level = f"{check.level:10}"
        # Every harness can build two instances.
        listed = ", ".join(sorted(check.needs - {"two"}))
        needs = f" Needs {listed}." if listed else ""
        claim = f" Of buses that claim `{check.claim}`." if check.claim else ""
        head = [Cell(check.id.ljust(longest)), Cell(_GAP + level, "dim")]
        _print_beside(terminal, head, longest + len(_GAP) + len(level), f"{check.behaviour}{needs}{claim}", "plain")


def print_report(report: Report, terminal: Terminal) -> None:
    """Everything."""
    for line in report.header.lines():
        name, _, text = line.partition(": ")
        _print_beside(terminal, [Cell(f"{name:12}", "dim")], 12, text, "plain")
    for note in report.notes:
        _print_beside(terminal, [Cell("note        ", "strong")], 12, note, "plain")
    terminal.line()
    _Table(report, terminal).print()
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in report.red:
        alike.setdefault((result.id, result.reason), []).append(result)
    for results in alike.values():
        _print_red(results, terminal)
    terminal.line()
    _print_verdict(report, terminal)


class _Table:
    """A line for each check. A reason that several share and that has no room beside them stands below, once."""

    def __init__(self, report: Report, terminal: Terminal) -> None:
        self._report = report
        self._terminal = terminal
        self._rows = list(_rows(report))
        self._longest = max((len(label) for label, _, _ in self._rows), default=0)
        self._taken = self._longest + _OUTCOME + 2 * len(_GAP) + _SECONDS
        shared = Counter(_clean(reason) for _, _, reason in self._rows)
        room = terminal.width - self._taken - len(_GAP)
        below = [reason for reason, times in shared.items() if times > 1 and len(reason) > room]
        self._below = {reason: f"({number})" for number, reason in enumerate(below, 1)}

    def print(self) -> None:
        for label, result, reason in self._rows:
            self._print_row(label.ljust(self._longest), result, reason)
        if self._below:
            self._terminal.line()
        for reason, mark in self._below.items():
            _print_beside(self._terminal, [Cell(mark, "dim")], len(mark), reason, "plain")

    def _print_row(self, label: str, result: Result, reason: str) -> None:
        word, style = _WORDS[result.outcome]
        skipped = result.outcome == "untestable" and result.id in self._report.options.skipped
        if skipped:
            word = "skipped"
        elif self._report.is_red(result):
            style = "bad"
        seconds = f"{result.seconds:6.2f} s" if result.seconds else " " * _SECONDS
        head = [Cell(label + _GAP), Cell(word.ljust(_OUTCOME), style), Cell(_GAP + seconds, "dim")]
        quiet: Style = "dim" if style == "dim" else "plain"
        mark = self._below.get(_clean(reason))
        if mark is not None:
            self._terminal.cells([*head, Cell(_GAP + mark, quiet)])
        else:
            _print_beside(self._terminal, head, self._taken, reason, quiet)


def _rows(report: Report) -> Iterator[tuple[str, Result, str]]:
    """A line for each check; for each library and outcome where they differ."""
    found = {result.id for result in report.results}
    known = [check.id for check in CHECKS.values() if check.id in found]
    # What is about all of them comes last.
    ids = [*known, *sorted(found.difference(known))]
    for id_ in ids:
        groups: dict[tuple[str, str], list[Result]] = {}
        for result in report.results:
            if result.id == id_:
                groups.setdefault((result.outcome, result.reason if result.outcome != "failed" else ""), []).append(
                    result
                )
        for results in groups.values():
            names = list(dict.fromkeys(result.backend for result in results if result.backend))
            everywhere = len(groups) == 1 or not names
            label = id_ if everywhere else f"{id_} ({', '.join(names)})"
            copies = "" if report.options.stress is None or len(groups) == 1 else f"{len(results)} of the runs"
            slowest = max(results, key=lambda result: result.seconds)
            reason = ": ".join(filter(None, (copies, _summary(results[0]))))
            yield label, slowest, reason.removeprefix("skipped: ") if id_ in report.options.skipped else reason


def _summary(result: Result) -> str:
    """The reason in one paragraph: of a failure, what was seen."""
    first, *rest = result.reason.strip().splitlines() or [""]
    if result.outcome == "failed":
        seen = next((line.partition("seen:")[2].strip() for line in rest if line.lstrip().startswith("seen:")), "")
        return seen or first
    return first


def _print_beside(terminal: Terminal, head: Sequence[Cell], taken: int, text: str, style: Style) -> None:
    """A line that begins with the head, and the text beside it, or below where there is no room."""
    room = terminal.width - taken - len(_GAP)
    beside = room >= _BESIDE
    indent = " " * (taken + len(_GAP)) if beside else "    "
    lines = wrap(_clean(text), room if beside else max(20, terminal.width - len(indent)), break_on_hyphens=False)
    if beside and lines:
        terminal.cells([*head, Cell(_GAP + lines.pop(0), style)])
    else:
        terminal.cells(head)
    for line in lines:
        terminal.cells([Cell(indent + line, style)])


def _print_red(results: Sequence[Result], terminal: Terminal) -> None:
    """All there is to say about runs of one check that failed alike."""
    result = results[0]
    terminal.line()
    try:
        check = CHECKS[result.id]
    except KeyError:  # what is about all of them
        where, behaviour = "", ""
    else:
        where, behaviour = f" ({check.level}, rule {check.rule!r})", check.behaviour
    backends = list(dict.fromkeys(each.backend for each in results))
    times = f", in {len(results)} runs" if len(results) > len(backends) else ""
    where = f" on {' and '.join(backends)}{times}{where}"
    word = _WORDS[result.outcome][0]
    terminal.cells([Cell(f"{word}  ", "bad"), Cell(result.id, "strong"), Cell(where)])
    if behaviour:
        _print_wrapped(terminal, behaviour, "dim")
    for line in result.reason.splitlines():
        _print_wrapped(terminal, line, "plain")
    if result.detail and not result.reason.startswith("promised:"):
        # An error that no check expects: where it comes from is what an author needs.
        for line in result.detail.rstrip().splitlines():
            terminal.cells([Cell(f"    {_clean(line)}", "dim")])


def _print_wrapped(terminal: Terminal, text: str, style: Style) -> None:
    indent = "    " + " " * (len(text) - len(text.lstrip()))
    for line in wrap(_clean(text.strip()), max(20, terminal.width - len(indent)), break_on_hyphens=False):
        terminal.cells([Cell(indent + line, style)])


def _print_verdict(report: Report, terminal: Terminal) -> None:
    counts = report.counts
    skipped = sum(result.id in report.options.skipped for result in report.results)
    counts["untestable"] -= skipped
    told = [f"{counts[outcome]} {outcome.replace('_', ' ')}" for outcome in _WORDS if counts[outcome]]
    if skipped:
        told.append(f"{skipped} skipped")
    checks = len({result.id for result in report.results})
    on = " and ".join(report.backends)
    times = "" if report.options.stress is None else f", {report.options.stress} times at once,"
    plural = "check" if checks == 1 else "checks"
    terminal.line(f"{checks} {plural}{times} on {on}: {', '.join(told)} ({report.seconds:.1f} s).")
    red = len(report.red)
    if red:
        terminal.line(f"{red} {'is' if red == 1 else 'are'} red.", "bad")
    elif counts["passed"] + counts["known_failure"] == 0:
        terminal.line("Nothing is red, and nothing was proven: no check was run.", "bad")
    else:
        terminal.line("Nothing is red.", "good")


def _clean(text: str) -> str:
    """As a terminal may be sent it: what a stranger put on a channel must not move the cursor."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.expandtabs(4))
    encoding = sys.stdout.encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)
