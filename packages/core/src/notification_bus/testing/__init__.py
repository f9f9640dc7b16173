"""The contract kit: what a bus promises, as checks that anyone can run against any bus.

Write a harness, which says how to build the bus and what may be done to it (`Harness`). Some are made already:
`MemoryHarness`, `url_harness` for whatever `open_bus` opens, and `BrokerBusHarness` for any `BrokerBus`. Then run the
checks: by `notification-bus check`; in pytest, by a subclass of `notification_bus.testing.contract.BusContract` (the
only module here that needs pytest, which is why it is not imported by this one); from a program, by `run_suite`, after
`examine_harness` has found that the harness does what it says.
"""

from notification_bus.testing._proxy import FaultProxy
from notification_bus.testing.brokerbus import BrokerBusHarness, ConnectionWire
from notification_bus.testing.check import Check, Claim, Level, Need
from notification_bus.testing.checks import CHECKS
from notification_bus.testing.context import Context
from notification_bus.testing.faulty import FaultyLink
from notification_bus.testing.harness import Capabilities, DeafLink, FullHarness, Harness, Link, Observed, Wire
from notification_bus.testing.harnesses import BrokerHarness, MemoryHarness, url_harness
from notification_bus.testing.outcome import CheckFailedError, KnownFailure, Outcome, Result, UntestableError
from notification_bus.testing.pump import Pump
from notification_bus.testing.report import Header, describe
from notification_bus.testing.runner import iter_suite, run_check, run_stress, run_suite, select_checks
from notification_bus.testing.selfcheck import Examination, HarnessFault, examine_harness
from notification_bus.testing.specs import SpecError, load_harness
from notification_bus.testing.timing import Timing
from notification_bus.testing.wires import WireFactory, find_wire

__all__ = [
    "CHECKS",
    "BrokerBusHarness",
    "BrokerHarness",
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
    "FullHarness",
    "Harness",
    "HarnessFault",
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
    "SpecError",
    "Timing",
    "UntestableError",
    "Wire",
    "WireFactory",
    "describe",
    "examine_harness",
    "find_wire",
    "iter_suite",
    "load_harness",
    "run_check",
    "run_stress",
    "run_suite",
    "select_checks",
    "url_harness",
]
