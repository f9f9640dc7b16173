"""The register of broken buses: what each does wrong, and the check that must say so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.kit.gallery.reference import ReferenceBus

__all__ = ["MUTANTS", "Mutant", "broken", "find_bus"]

_Bus = TypeVar("_Bus", bound=type[ReferenceBus])


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken bus."""

    bus: type[ReferenceBus]
    """The reference bus with one part replaced."""

    row: str
    """The row of the table of broken buses that it belongs to."""

    check: str
    """The id of the check that must catch it."""

    fragment: str
    """Words of the message by which that check fails."""

    backends: Sequence[str]
    """The async libraries on which it can be caught."""

    @property
    def id(self) -> str:
        """The class's name."""
        return self.bus.__name__

    @property
    def prose(self) -> str:
        """What it does wrong, in one sentence."""
        return " ".join((self.bus.__doc__ or "").split())


MUTANTS: Final[dict[str, Mutant]] = {}
"""Every broken bus, by id, once the modules of the gallery have been imported."""


def find_bus(name: str) -> type[ReferenceBus]:
    """The bus of that name: the reference bus or a broken one.

    Raises:
        KeyError: There is none.
    """
    return ReferenceBus if name == ReferenceBus.__name__ else MUTANTS[name].bus


def broken(
    row: str, *, check: str, fragment: str, backends: Sequence[str] = ("asyncio", "trio")
) -> Callable[[_Bus], _Bus]:
    """Register a broken bus. Its docstring says in one sentence what it does wrong."""

    def register(bus: _Bus) -> _Bus:
        mutant = Mutant(bus, row, check, fragment, backends)
        if mutant.id in MUTANTS:
            raise ValueError(f"two broken buses are named {mutant.id}")
        MUTANTS[mutant.id] = mutant
        return bus

    return register
