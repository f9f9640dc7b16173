"""Every broken bus against every check: who catches whom."""

import multiprocessing
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from notification_bus.testing.checks import CHECKS
from notification_bus.testing.outcome import Result
from notification_bus.testing.runner import run_check
from notification_bus.testing.timing import Timing
from tests.kit.gallery.mutant import MUTANTS, Mutant, find_bus
from tests.kit.gallery.reference import ReferenceBus
from tests.kit.harness import HubHarness

__all__ = [
    "Cell",
    "caught",
    "designated_cells",
    "differences",
    "every_cell",
    "read_matrix",
    "render_matrix",
    "run_cells",
]

_QUICK: Final = Timing(wait=1.0, outage=1.0, deadline=30.0)
"""The patience for buses that are known to be broken: what a hub brings comes in milliseconds."""

_PATIENT: Final = Timing(outage=1.0)
"""The patience for a bus that keeps its promises, and where another process has to be started."""

_SIGNS: Final = {"passed": ".", "failed": "x", "untestable": "?", "not_declared": "-", "known_failure": "k"}
_CAUGHT: Final = "D"
_MISSED: Final = "!"


@dataclass(frozen=True, slots=True)
class Cell:
    """One bus of the gallery, by name, and one check, by id, on one async library."""

    bus: str
    check: str
    backend: str = "asyncio"


def designated_cells(backend: str = "asyncio") -> list[Cell]:
    """Each broken bus with the check that must catch it."""
    return [Cell(m.id, m.check, backend) for m in MUTANTS.values() if backend in m.backends]


def every_cell(backend: str = "asyncio") -> list[Cell]:
    """The reference bus and each broken one, with every check."""
    return [Cell(bus, check.id, backend) for bus in (ReferenceBus.__name__, *MUTANTS) for check in CHECKS.values()]


def caught(mutant: Mutant, result: Result) -> bool:
    """Whether this is the failure by which that bus is to be caught."""
    return result.outcome == "failed" and mutant.fragment in result.reason


def run_cells(cells: Iterable[Cell], *, jobs: int = 8) -> Iterator[tuple[Cell, Result]]:
    """Run checks on buses, in so many processes, and yield each result as it comes.

    Most of the time is spent waiting for what a broken bus never does, so there may be more processes than processors.
    """
    # Not forked: a process that has threads and event loops has no use for half of them.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = {pool.submit(_run, cell): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()


def _run(cell: Cell) -> Result:
    timing = _QUICK
    if cell.bus == ReferenceBus.__name__ or "process" in CHECKS[cell.check].needs:
        timing = _PATIENT
    return run_check(cell.check, HubHarness(find_bus(cell.bus)), backend=cell.backend, timing=timing)


def render_matrix(results: Mapping[Cell, Result]) -> str:
    """The matrix as text, a line for each bus and a column for each check."""
    checks = list(CHECKS)
    rows = sorted({cell.bus for cell in results}, key=_place)
    width = max(len(bus) for bus in rows)
    lines = [
        "The gallery of broken buses against the contract kit.",
        "",
        f"{_CAUGHT}  caught by the check that is designated to catch it",
        "x  caught by another check as well",
        ".  not caught by this check",
        f"{_MISSED}  NOT caught by its designated check, or not with the words that it should",
        "",
        *(f"{number:3}  {check}" for number, check in enumerate(checks, 1)),
        "",
        " " * width + "  " + "".join(str(number // 10 or " ") for number in range(1, len(checks) + 1)),
        " " * width + "  " + "".join(str(number % 10) for number in range(1, len(checks) + 1)),
    ]
    found = {(cell.bus, cell.check): result for cell, result in results.items()}
    for bus in rows:
        signs = "".join(_sign(bus, check, found.get((bus, check))) for check in checks)
        lines.append(f"{bus:{width}}  {signs}")
    return "\n".join(lines) + "\n"


def _place(bus: str) -> tuple[int, int]:
    """Ordered by the check that is to catch them, the reference bus first."""
    if bus not in MUTANTS:
        return -1, -1
    return list(CHECKS).index(MUTANTS[bus].check), list(MUTANTS).index(bus)


def _sign(bus: str, check: str, result: Result | None) -> str:
    if result is None:
        return " "
    mutant = MUTANTS.get(bus)
    if mutant is not None and mutant.check == check:
        return _CAUGHT if caught(mutant, result) else _MISSED
    return _SIGNS[result.outcome]


def read_matrix(text: str) -> dict[str, dict[str, str]]:
    """A matrix that was rendered: for each bus, the sign under each check."""
    lines = text.splitlines()
    checks = [line.split()[1] for line in lines if line[:3].strip().isdigit() and line[3:5] == "  "]
    start = next(number for number, line in enumerate(lines) if line.startswith(ReferenceBus.__name__))
    width = len(lines[start]) - len(checks)
    return {line[:width].strip(): dict(zip(checks, line[width:], strict=True)) for line in lines[start:]}


def differences(before: str, after: str) -> dict[Cell, str]:
    """What is not the same in two rendered matrices, and how it changed."""
    old, new = read_matrix(before), read_matrix(after)
    buses = dict.fromkeys([*new, *old])
    checks = dict.fromkeys(check for signs in [*new.values(), *old.values()] for check in signs)
    found: dict[Cell, str] = {}
    for bus in buses:
        for check in checks:
            was, now = old.get(bus, {}).get(check, " "), new.get(bus, {}).get(check, " ")
            if was != now:
                found[Cell(bus, check)] = f"{bus} / {check}: was {was!r}, is {now!r}"
    return found
