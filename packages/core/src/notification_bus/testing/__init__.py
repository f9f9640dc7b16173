"""The contract kit: what a bus promises, as checks that anyone can run against any bus.

Write a harness, which says how to build the bus and what may be done to it (`Harness`; `MemoryHarness` and
`url_harness` are made already). Then run the checks: in pytest, by a subclass of
`notification_bus.testing.contract.BusContract` (the only module here that needs pytest, which is why it is not imported
by this one); from a program, by `run_suite`.
"""

from notification_bus.testing._proxy import FaultProxy
from notification_bus.testing.context import Context
from notification_bus.testing.harness import Capabilities, DeafLink, FullHarness, Harness, Link, Observed, Wire
from notification_bus.testing.harnesses import BrokerHarness, MemoryHarness, url_harness
from notification_bus.testing.manifest import MANIFEST, Check, Claim, Level, Need, find_check
from notification_bus.testing.outcome import CheckFailedError, KnownFailure, Outcome, Result, UntestableError
from notification_bus.testing.pump import Pump
from notification_bus.testing.report import Header, describe
from notification_bus.testing.runner import iter_suite, run_check, run_stress, run_suite, select_checks
from notification_bus.testing.timing import Timing

__all__ = [
    "MANIFEST",
    "BrokerHarness",
    "Capabilities",
    "Check",
    "CheckFailedError",
    "Claim",
    "Context",
    "DeafLink",
    "FaultProxy",
    "FullHarness",
    "Harness",
    "Header",
    "KnownFailure",
    "Level",
    "Link",
    "MemoryHarness",
    "Need",
    "Observed",
    "Outcome",
    "Pump",
    "Result",
    "Timing",
    "UntestableError",
    "Wire",
    "describe",
    "find_check",
    "iter_suite",
    "run_check",
    "run_stress",
    "run_suite",
    "select_checks",
    "url_harness",
]
