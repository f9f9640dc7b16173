"""`python -m tests.kit.gallery`: run the kit on the broken buses, and print who catches whom."""

import argparse
import sys
import time
from pathlib import Path

from notification_bus.testing.outcome import Result
from notification_bus.testing.runner import select_checks
from tests.kit.gallery import MUTANTS, ReferenceBus
from tests.kit.gallery.matrix import (
    Cell,
    caught,
    designated_cells,
    differences,
    every_cell,
    render_matrix,
    run_cells,
)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.gallery", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only say what each bus does wrong")
    parser.add_argument("--designated", action="store_true", help="only the check that is to catch it, for each bus")
    parser.add_argument("--only", nargs="*", metavar="BUS", help="only these buses")
    parser.add_argument("--checks", nargs="*", metavar="CHECK", help="only these checks")
    parser.add_argument("--soak", type=int, metavar="TIMES", help="run every check on the reference bus so many times")
    parser.add_argument("--backend", default="asyncio", choices=("asyncio", "trio"))
    parser.add_argument("--jobs", type=int, default=8, help="processes at the same time (default: 8)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the matrix there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="tell differences to the matrix there")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run; 1 where a broken bus was not caught by its check, or the matrix is not the one to compare with."""
    options = _parse(arguments)
    if options.list:
        for mutant in MUTANTS.values():
            sys.stdout.write(f"{mutant.id} ({mutant.row}; {mutant.check})\n    {mutant.prose}\n")
        return 0
    if options.soak:
        return _soak(options.soak, options.checks, options.backend, options.jobs)
    cells = designated_cells(options.backend) if options.designated else every_cell(options.backend)
    if options.only:
        cells = [cell for cell in cells if cell.bus in options.only]
    if options.checks:
        cells = [cell for cell in cells if cell.check in options.checks]
    results: dict[Cell, Result] = {}
    for number, (cell, result) in enumerate(run_cells(cells, jobs=options.jobs), 1):
        results[cell] = result
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{number}/{len(cells)} {cell.bus} {cell.check}\r")
    text = render_matrix(results)
    changed: list[str] = []
    if options.compare:
        before = options.compare.read_text(encoding="utf-8")
        # What differs is run again, alone: on a busy machine a check that measures time can be mistaken once.
        again = [Cell(cell.bus, cell.check, options.backend) for cell in differences(before, text)]
        results.update(run_cells([cell for cell in again if cell in results], jobs=1))
        text = render_matrix(results)
        changed += differences(before, text).values()
    sys.stdout.write(text)
    missed = _missed(results)
    sys.stdout.write(f"\n{len(results)} runs; {len(missed)} broken buses not caught by their designated check\n")
    sys.stdout.writelines(f"  {line}\n" for line in missed)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    sys.stdout.writelines(f"  {line}\n" for line in changed)
    return 1 if missed or changed else 0


def _soak(times: int, checks: list[str] | None, backend: str, jobs: int) -> int:
    """A check that fails where nothing is broken would teach its users to run it again."""
    began = time.monotonic()
    cells = [Cell(ReferenceBus.__name__, check.id, backend) for _ in range(times) for check in select_checks(checks)]
    failures = 0
    for cell, result in run_cells(cells, jobs=jobs):
        if result.outcome != "passed":
            failures += 1
            sys.stdout.write(f"{cell.check} {result.outcome}: {result.reason}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(f"{len(cells)} runs on {backend}, {times} of each check, {failures} failed; {seconds:.0f} s\n")
    return 1 if failures else 0


def _missed(results: dict[Cell, Result]) -> list[str]:
    return [
        f"{cell.bus}: {cell.check} {result.outcome}, expected {MUTANTS[cell.bus].fragment!r} in {result.reason!r}"
        for cell, result in results.items()
        if cell.bus in MUTANTS and MUTANTS[cell.bus].check == cell.check and not caught(MUTANTS[cell.bus], result)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
