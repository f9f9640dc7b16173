"""Buses that are broken on purpose, each in one way, and the check of the kit that must catch it.

A kit that has never seen a broken bus proves nothing by a green table. `python -m notification_bus.testing.gallery`
runs the kit on every one of them.
"""

from notification_bus.testing.gallery import closing, delivery, outages, publishing, streams, values
from notification_bus.testing.gallery.harness import CAPABILITIES, gallery_harness
from notification_bus.testing.gallery.mutant import MUTANTS, Mutant, find_bus
from notification_bus.testing.gallery.reference import ReferenceBus

__all__ = ["CAPABILITIES", "MUTANTS", "Mutant", "ReferenceBus", "find_bus", "gallery_harness"]

# The modules register what they define.
del closing, delivery, outages, publishing, streams, values
