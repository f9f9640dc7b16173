"""Every broken bus is caught by the check that is designated to catch it, and by the words that it should be."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from notification_bus import BusNotification
from notification_bus.testing import CHECKS, Result
from tests.kit import child
from tests.kit.bridge import listen
from tests.kit.gallery import MUTANTS, Mutant, ReferenceBus, find_bus
from tests.kit.gallery.__main__ import main
from tests.kit.gallery.matrix import (
    Cell,
    caught,
    designated_cells,
    differences,
    read_matrix,
    render_matrix,
    run_cells,
)
from tests.kit.gallery.mutant import broken
from tests.kit.hub import Hub

ARTEFACT = Path(__file__).parent / "matrix.txt"
REGENERATE = "regenerate it: python -m tests.kit.gallery --write tests/kit/matrix.txt"

TABLE = {
    "hides its own messages": 1,
    "delivers twice": 2,
    "reconnect replays": 2,
    "reconnects halfway": 2,
    "lets the outage out": 2,
    "wrong patience": 2,
    "loses the start": 2,
    "makes the producer wait": 2,
    "unbounded": 2,
    "wrong noise": 2,
    "overflow is fatal": 2,
    "overflow hurts bystanders": 2,
    "touches the caller's params": 2,
    "shares or mistypes deliveries": 2,
    "blurs absent, null and empty": 2,
    "private wire format": 3,
    "damages values": 3,
    "one bad frame is fatal": 2,
    "eats cancellation": 2,
    "fragile reads": 2,
    "publish depends on the broker": 3,
    "leaves things behind": 2,
    "bad closing": 6,
    "wrong scope": 4,
    "wrong order or count": 3,
}
"""The rows of the kit's table of broken buses, with the number of their variants."""

DISTRIBUTIONS = {
    "delivers only at home": 1,
    "never notices a black link": 1,
    "retries a half-sent body": 1,
    "merges in a transaction": 1,
    "does not wait for the reply": 1,
    "announces no gap": 3,
}
"""What real distributions have been seen to do."""


@pytest.fixture(scope="module")
def results() -> Mapping[Cell, Result]:
    """All of them at once, in several processes: most of it is waiting for what never comes."""
    return dict(run_cells([*designated_cells("asyncio"), *designated_cells("trio")], jobs=6))


@pytest.mark.parametrize("cell", [*designated_cells("asyncio"), *designated_cells("trio")], ids=str)
def test_a_broken_bus_is_caught_by_its_designated_check(cell: Cell, results: Mapping[Cell, Result]) -> None:
    mutant, result = MUTANTS[cell.bus], results[cell]
    assert caught(mutant, result), f"{mutant.prose} Outcome: {result.outcome}\n{result.reason}\n{result.detail}"


def test_every_row_of_the_table_is_here_with_all_its_variants() -> None:
    found = Counter(mutant.row for mutant in MUTANTS.values())
    assert {row: found[row] for row in TABLE} == TABLE
    assert sum(TABLE.values()) == 59
    assert {row: found[row] for row in DISTRIBUTIONS} == DISTRIBUTIONS


def test_every_check_has_a_bus_to_catch() -> None:
    assert {mutant.check for mutant in MUTANTS.values()} == set(CHECKS)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.id)
def test_a_broken_bus_says_in_one_sentence_what_it_does_wrong(mutant: Mutant) -> None:
    assert CHECKS[mutant.check].id == mutant.check
    assert mutant.fragment
    assert mutant.prose.endswith(".")
    assert mutant.prose.count(". ") == 0


def test_the_matrix_that_is_checked_in_is_of_these_buses_and_checks() -> None:
    matrix = read_matrix(ARTEFACT.read_text(encoding="utf-8"))
    assert set(matrix) == {ReferenceBus.__name__, *MUTANTS}, REGENERATE
    for bus, signs in matrix.items():
        assert list(signs) == list(CHECKS), REGENERATE
        designated = [check for check, sign in signs.items() if sign == "D"]
        assert designated == ([MUTANTS[bus].check] if bus in MUTANTS else []), REGENERATE
        assert "!" not in signs.values(), REGENERATE
    assert set(matrix[ReferenceBus.__name__].values()) == {"."}


def test_a_change_of_the_matrix_is_told() -> None:
    def cell(bus: str, check: str, outcome: str, reason: str = "") -> tuple[Cell, Result]:
        return Cell(bus, check), Result(id=check, backend="asyncio", outcome=outcome, reason=reason)  # type: ignore[arg-type]

    passes = cell("ReferenceBus", "deliver.echo", "passed")
    before = render_matrix(dict([passes, cell("EmitsNaN", "deliver.echo", "failed")]))
    after = render_matrix(dict([passes, cell("EmitsNaN", "deliver.echo", "passed")]))
    without = render_matrix(dict([passes]))
    assert differences(before, before) == {}
    assert list(differences(before, after).values()) == ["EmitsNaN / deliver.echo: was 'x', is '.'"]
    assert list(differences(before, without).values()) == ["EmitsNaN / deliver.echo: was 'x', is ' '"]
    assert list(differences(without, before).values()) == ["EmitsNaN / deliver.echo: was ' ', is 'x'"]


def test_a_designated_check_that_does_not_catch_its_bus_is_marked() -> None:
    mutant = MUTANTS["EmitsNaN"]
    wrong = Result(id=mutant.check, backend="asyncio", outcome="failed", reason="by other words")
    passed = Result(id="x", backend="asyncio", outcome="passed")
    matrix = render_matrix({Cell("ReferenceBus", mutant.check): passed, Cell(mutant.id, mutant.check): wrong})
    assert read_matrix(matrix)[mutant.id][mutant.check] == "!"


def test_the_command_runs_and_writes_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "matrix.txt"
    few = ["--only", "ReferenceBus", "EmitsNaN", "--checks", "publish.unencodable_fails_fast", "--jobs", "1"]
    assert main([*few, "--write", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "0 broken buses not caught" in printed
    assert read_matrix(file.read_text(encoding="utf-8"))["EmitsNaN"]["publish.unencodable_fails_fast"] == "D"
    assert main([*few, "--compare", str(file)]) == 0
    file.write_text(file.read_text(encoding="utf-8").replace("D", "!"), encoding="utf-8")
    capsys.readouterr()
    assert main([*few, "--compare", str(file)]) == 1
    assert "EmitsNaN / publish.unencodable_fails_fast: was '!', is 'D'" in capsys.readouterr().out


def test_the_command_fails_where_a_bus_is_not_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MUTANTS, "EmitsNaN", replace(MUTANTS["EmitsNaN"], fragment="words that it does not say"))
    assert main(["--designated", "--only", "EmitsNaN", "--jobs", "1"]) == 1
    assert "words that it does not say" in capsys.readouterr().out


def test_the_command_runs_the_reference_bus_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--soak", "2", "--checks", "deliver.echo", "order.per_publisher_fifo", "--jobs", "1"]) == 0
    assert "4 runs on asyncio, 2 of each check, 0 failed" in capsys.readouterr().out


def test_the_command_lists_what_each_bus_does_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(mutant.id in printed and mutant.prose in printed for mutant in MUTANTS.values())


async def test_a_child_process_finds_its_harness_by_a_name_with_the_port() -> None:
    hub = Hub()
    other = getattr(child, f"EmitsNaN_at_{listen(hub)}")
    async with other.instance("c") as bus, bus.subscribe() as stream:
        assert type(bus) is MUTANTS["EmitsNaN"].bus
        hello = BusNotification("hello")
        found: list[BusNotification] = []
        with anyio.fail_after(10):
            while not found:  # a bridge takes its time to stand
                await hub.inject("c", hello.encode())
                with anyio.move_on_after(0.05):
                    found.append(await anext(aiter(stream)))
        assert found == [hello]


def test_only_names_with_a_port_are_found_in_the_module_for_child_processes() -> None:
    assert not hasattr(child, "ReferenceBus")


def test_a_bus_is_found_by_its_name() -> None:
    assert find_bus("ReferenceBus") is ReferenceBus
    assert find_bus("EmitsNaN") is MUTANTS["EmitsNaN"].bus
    with pytest.raises(KeyError):
        find_bus("Unheard")


def test_two_broken_buses_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two broken buses are named EmitsNaN"):
        broken("a row", check="deliver.echo", fragment="x")(type("EmitsNaN", (ReferenceBus,), {}))
