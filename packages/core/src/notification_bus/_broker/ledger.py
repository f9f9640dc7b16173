"""The state of a broker bus that outlives connections: outbox, subscriptions, counts, and the gap owed for a loss."""

import logging
from collections.abc import Sequence
from secrets import token_hex

from notification_bus._broker.outbox import GapDebt, Outbox
from notification_bus._fanout import Fanout
from notification_bus._floodlog import FloodLog
from notification_bus.errors import MalformedBodyError
from notification_bus.options import BusOptions
from notification_bus.stats import Counters, DropReason

__all__ = ["Ledger"]


class Ledger:
    """What connections share. Stopping the bus empties it; the counts and the gap owed to the peers stay."""

    def __init__(self, name: str, logger: logging.Logger, options: BusOptions) -> None:
        self.name = name
        self.options = options
        self.counters = Counters()
        self.debt = GapDebt()
        self.floods = FloodLog(logger)
        self.renew()

    def renew(self) -> None:
        """Start over with a new instance id, and with nothing that belongs to an event loop."""
        self.instance = token_hex(8)
        self.fanout = Fanout(self.options.buffer, self._buffer_full)
        self.outbox = Outbox(self.options.outbox, self._outbox_full)

    def dropped(self, reason: DropReason, text: str, count: int = 1) -> None:
        """Count and log notifications dropped before they were sent, and owe the peers a gap."""
        self.counters.dropped[reason] += count
        self.floods.add(f"dropped:{reason}", f"{self.name} dropped a notification: {text}", count)
        self.debt.incur()

    def in_doubt(self, count: int) -> None:
        """Count notifications that may or may not have arrived, and owe the peers a gap."""
        if count:
            self.counters["in_doubt"] += count
            self.debt.incur()

    def malformed(self, errors: Sequence[MalformedBodyError]) -> None:
        """Count and log what arrived on the channel and is not a notification."""
        self.counters["malformed"] += len(errors)
        self.floods.add("malformed", f"{self.name} skipped a body that is no notification: {errors[0]}", len(errors))

    def close(self) -> None:
        """Drop what is unsent, end the streams, and log what has only been counted."""
        unsent = self.outbox.clear()
        if unsent:
            self.dropped("closed", "the bus was closed before it was sent", unsent)
        self.fanout.close()
        self.floods.flush(force=True)

    def _outbox_full(self, count: int) -> None:
        self.dropped("outbox", f"more than {self.options.outbox} wait to be sent; the oldest goes first", count)

    def _buffer_full(self, count: int) -> None:
        # The peers missed nothing: only this buffer yields a gap, before what is left in it.
        self.counters.dropped["buffer"] += count
        self.floods.add(
            "dropped:buffer",
            f"{self.name} dropped a notification: a subscription reads too slowly and has more than "
            f"{self.options.buffer} waiting; the oldest goes first",
            count,
        )
