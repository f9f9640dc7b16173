"""The contract kit: what a bus promises, as checks that anyone can run against any bus.

Describe the bus by a `Harness`: how to build it, and what may be done to it. Some are made already: `memory_harness`,
`url_harness` for what `open_bus` opens, and `broker_bus_harness` for any `BrokerBus`. Then run the checks: by
`notification-bus check`; in pytest, by a subclass of `notification_bus.testing.contract.BusContract` (the only module
here that imports pytest, which is why this one does not import it); or from a program, by `run_suite`.
"""

from notification_bus.testing._proxy import FaultProxy
from notification_bus.testing.check import Check, Claim, Level, Need
from notification_bus.testing.checks import CHECKS
from notification_bus.testing.context import Context
from notification_bus.testing.faulty import FaultyLink
from notification_bus.testing.harness import Capabilities, DeafLink, Harness, Link, Observed, Wire
from notification_bus.testing.harnesses import ConnectionWire, broker_bus_harness, memory_harness, url_harness
from notification_bus.testing.outcome import CheckFailedError, KnownFailure, Outcome, Result, UntestableError
from notification_bus.testing.pump import Pump
from notification_bus.testing.report import Header, describe
from notification_bus.testing.runner import (
    Examination,
    HarnessFault,
    examine_harness,
    iter_suite,
    run_check,
    run_stress,
    run_suite,
    select_checks,
)
from notification_bus.testing.specs import SpecError, load_harness
from notification_bus.testing.timing import Timing

__all__ = [
    "CHECKS",
    "Capabilities",
    "Check",
    "CheckFailedError",
    "Claim",
    "ConnectionWire",
    "Context",
    "DeafLink",
    "Examination",
    "FaultProxy",
    "FaultyLink",
    "Harness",
    "HarnessFault",
    "Header",
    "KnownFailure",
    "Level",
    "Link",
    "Need",
    "Observed",
    "Outcome",
    "Pump",
    "Result",
    "SpecError",
    "Timing",
    "UntestableError",
    "Wire",
    "broker_bus_harness",
    "describe",
    "examine_harness",
    "iter_suite",
    "load_harness",
    "memory_harness",
    "run_check",
    "run_stress",
    "run_suite",
    "select_checks",
    "url_harness",
]
