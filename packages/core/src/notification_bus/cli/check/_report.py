"""The report: for people a header, a line for each check, and what is red in full; for machines JSON."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any, Final

from notification_bus.cli._terminal import Cell, Style, Terminal
from notification_bus.cli.check._run import Options, Report
from notification_bus.testing import CHECKS, Result

__all__ = ["as_json", "print_list", "print_report"]

_GAP: Final = "  "
_BESIDE: Final = 36
"""The least characters of a reason's lines beside the outcome; with less room they go below it."""

_WORDS: Final[dict[str, tuple[str, Style]]] = {
    "passed": ("passed", "good"),
    "failed": ("FAILED", "bad"),
    "not_declared": ("not declared", "dim"),
    "untestable": ("untestable", "plain"),
    "known_failure": ("known failure", "strong"),
}
"""How each outcome is shown."""

_OUTCOME: Final = max(len(word) for word, _ in _WORDS.values())
_SECONDS: Final = 8


def print_list(options: Options, terminal: Terminal) -> None:
    """Print the checks that there are."""
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
    """Print everything."""
    for line in report.header.lines():
        name, _, text = line.partition(": ")
        _print_beside(terminal, [Cell(f"{name:12}", "dim")], 12, text, "plain")
    for note in report.target.notes:
        _print_beside(terminal, [Cell("note        ", "strong")], 12, note, "plain")
    terminal.line()
    _print_table(report, terminal)
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in report.red:
        alike.setdefault((result.id, result.reason), []).append(result)
    for results in alike.values():
        _print_red(results, terminal)
    terminal.line()
    _print_verdict(report, terminal)


def _print_table(report: Report, terminal: Terminal) -> None:
    """Print a line for each check. A reason that several share and that has no room beside them goes below, once."""
    rows = list(_rows(report))
    longest = max((len(label) for label, _, _ in rows), default=0)
    taken = longest + _OUTCOME + 2 * len(_GAP) + _SECONDS
    shared = Counter(_clean(reason) for _, _, reason in rows)
    room = terminal.width - taken - len(_GAP)
    below = [reason for reason, times in shared.items() if times > 1 and len(reason) > room]
    marks = {reason: f"({number})" for number, reason in enumerate(below, 1)}
    for label, result, reason in rows:
        word, style = _WORDS[result.outcome]
        if result.id in report.options.skipped and result.outcome == "untestable":
            word = "skipped"
        elif report.is_red(result):
            style = "bad"
        seconds = f"{result.seconds:6.2f} s" if result.seconds else " " * _SECONDS
        head = [Cell(label.ljust(longest) + _GAP), Cell(word.ljust(_OUTCOME), style), Cell(_GAP + seconds, "dim")]
        beside: Style = "dim" if style == "dim" else "plain"
        if (mark := marks.get(_clean(reason))) is not None:
            terminal.cells([*head, Cell(_GAP + mark, beside)])
        else:
            _print_beside(terminal, head, taken, reason, beside)
    if marks:
        terminal.line()
    for reason, mark in marks.items():
        _print_beside(terminal, [Cell(mark, "dim")], len(mark), reason, "plain")


def _rows(report: Report) -> Iterator[tuple[str, Result, str]]:
    """Yield a label, the slowest result and the reason for each check, or for each of its outcomes if they differ."""
    found = {result.id for result in report.results}
    known = [id_ for id_ in CHECKS if id_ in found]
    # A result that is about all checks comes last.
    for id_ in [*known, *sorted(found.difference(known))]:
        groups: dict[tuple[str, str], list[Result]] = {}
        for result in report.results:
            if result.id == id_:
                reason = "" if result.outcome == "failed" else result.reason
                groups.setdefault((result.outcome, reason), []).append(result)
        for results in groups.values():
            names = list(dict.fromkeys(result.backend for result in results if result.backend))
            label = id_ if len(groups) == 1 or not names else f"{id_} ({', '.join(names)})"
            copies = "" if report.options.stress is None or len(groups) == 1 else f"{len(results)} of the runs"
            reason = ": ".join(filter(None, (copies, _summary(results[0]))))
            if id_ in report.options.skipped:
                reason = reason.removeprefix("skipped: ")
            yield label, max(results, key=lambda result: result.seconds), reason


def _summary(result: Result) -> str:
    """Return the reason in one paragraph: of a failure, what was seen."""
    first, *rest = result.reason.strip().splitlines() or [""]
    if result.outcome == "failed":
        seen = next((line.partition("seen:")[2].strip() for line in rest if line.lstrip().startswith("seen:")), "")
        return seen or first
    return first


def _print_beside(terminal: Terminal, head: Sequence[Cell], taken: int, text: str, style: Style) -> None:
    """Print the head, and the text beside it, or below if there is no room."""
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
    """Print all that is known of the runs of one check that failed alike."""
    result = results[0]
    terminal.line()
    try:
        check = CHECKS[result.id]
    except KeyError:  # about all checks
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
        # An error that no check expects: an author needs to know where it comes from.
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


def as_json(report: Report) -> dict[str, Any]:
    """Return everything for machines. A check has a result for each library, and in a stress run for each copy."""
    counts = report.counts
    return {
        "target": report.target.shown,
        "header": asdict(report.header),
        "notes": report.target.notes,
        "backends": report.backends,
        "strict": report.options.strict,
        "stress": report.options.stress,
        "results": [
            {
                "id": result.id,
                "backend": result.backend,
                "outcome": result.outcome,
                "red": report.is_red(result),
                "reason": result.reason,
                "seconds": round(result.seconds, 3),
            }
            for result in report.results
        ],
        "counts": {name: counts[name] for name in _WORDS},
        "red": list(dict.fromkeys(result.id for result in report.red)),
        "seconds": round(report.seconds, 3),
    }


def _clean(text: str) -> str:
    """Escape what must not be sent to a terminal: a text from a channel could move the cursor."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.expandtabs(4))
    encoding = sys.stdout.encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)
