"""Buses that are broken on purpose, each in one way, and the check of the kit that must catch it.

A kit that has never seen a broken bus proves nothing by a green table. `python -m tests.kit.gallery`
runs the kit on every one of them.
"""

from tests.kit.gallery import closing, delivery, outages, publishing, subscribing, values
from tests.kit.gallery.mutant import MUTANTS, Mutant, find_bus
from tests.kit.gallery.reference import ReferenceBus

__all__ = ["MUTANTS", "Mutant", "ReferenceBus", "find_bus"]

# The modules register what they define.
del closing, delivery, outages, publishing, subscribing, values
