"""What the contract kit checks: one entry a check, which is all that reports, documents and adapters need to know."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from notification_bus.testing.harness import Capabilities

__all__ = ["CLAIMS", "MANIFEST", "Check", "Claim", "Level", "Need", "find_check"]

Level: TypeAlias = Literal["MUST", "SHOULD", "CAPABILITY"]
"""`MUST`: every bus keeps it. `SHOULD`: as MUST, and a bus with a good reason not to declares a known failure.
`CAPABILITY`: only of a bus that claims it."""

Need: TypeAlias = Literal["two", "delay", "stall", "cut", "deaf", "wire", "process", "build"]
"""What a check does beyond using one instance: `two` instances (every harness can), a fault of a link (`delay`, `stall`
for everything that keeps sockets open and carries nothing, `cut` for everything that breaks or refuses, `deaf`), a hook
of the harness (`wire`, `process` for its `child`, `build`)."""

Claim: TypeAlias = Literal["fifo", "gaps", "outbox_gaps", "liveness", "end_to_end", "distinct"]
"""What a bus can say of itself, as far as a check depends on it."""

CLAIMS: Final[Mapping[Claim, tuple[Callable[[Capabilities], bool], str]]] = {
    "fifo": (lambda c: c.fifo, "the bus does not declare `fifo`"),
    "gaps": (lambda c: c.gaps, "the bus does not declare `gaps`"),
    "outbox_gaps": (lambda c: c.gaps and c.outbox is not None, "the bus does not declare `gaps` and an `outbox`"),
    "liveness": (lambda c: c.liveness is not None, "the bus does not declare `liveness`"),
    "end_to_end": (
        lambda c: c.end_to_end and c.liveness is not None,
        "the bus does not declare `end_to_end` and `liveness`",
    ),
    "distinct": (lambda c: not c.coalesces, "the bus declares `coalesces`: equal notifications may be merged"),
}
"""For each claim, whether a bus makes it, and the reason to report where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the kit. The function is found by the id: `deliver.echo` is `deliver_echo` in one of the modules."""

    id: str
    """Stable; what known failures and reports refer to."""

    behaviour: str
    """What is checked, in one sentence."""

    level: Level
    """How binding it is."""

    rule: str
    """The bold word of the rule, in the docstring of `NotificationBus`, that it proves."""

    needs: frozenset[Need] = frozenset()
    """What the harness must have for it."""

    claim: Claim | None = None
    """What the bus must claim for it to be run."""

    brokerless: bool = False
    """Whether it is run without its faults where there is no broker: they only sharpen it."""


def _check(
    id_: str,
    level: Level,
    rule: str,
    behaviour: str,
    *needs: Need,
    claim: Claim | None = None,
    brokerless: bool = False,
) -> Check:
    return Check(
        id=id_,
        behaviour=behaviour,
        level=level,
        rule=rule,
        needs=frozenset(needs),
        claim=claim,
        brokerless=brokerless,
    )


MANIFEST: Final[tuple[Check, ...]] = (
    _check(
        "deliver.fan_out", "MUST", "echo",
        "A notification reaches every subscription of every instance once, equal to the original.",
        "two",
    ),
    _check(
        "deliver.echo", "MUST", "echo",
        "An instance's subscription yields what the same instance publishes.",
    ),
    _check(
        "deliver.one_copy", "MUST", "at_most_once",
        "No subscription yields a notification twice, whichever instance published it.",
        "two",
    ),
    _check(
        "deliver.complete_when_healthy", "MUST", "complete",
        "Nothing is lost while the broker is healthy and subscribers read.",
        "two",
    ),
    _check(
        "deliver.identical_kept", "MUST", "complete",
        "Equal notifications, apart or in a burst, arrive as often as they were published.",
        claim="distinct",
    ),
    _check(
        "deliver.no_history", "MUST", "at_most_once",
        "A new subscription yields nothing that was published before it.",
    ),
    _check(
        "deliver.namespace_isolated", "MUST", "isolation",
        "Nothing crosses from one channel name to another, however alike, long or odd the names are.",
        "two",
    ),
    _check(
        "deliver.cross_process", "MUST", "echo",
        "Notifications travel from another process to this one and back.",
        "process",
    ),
    _check(
        "ready.first_publish_after_enter", "MUST", "ready",
        "The very first notification published after a subscription was entered arrives, also on a slow link.",
        "two", "delay", brokerless=True,
    ),
    _check(
        "ready.cancelled_enter_leaves_nothing", "MUST", "ready",
        "An entering that was cancelled while the broker was away leaves no subscription behind.",
        "two", "cut",
    ),
    _check(
        "sub.close_one_keeps_others", "MUST", "never_ends",
        "Closing one subscription, or a peer instance, leaves the other subscriptions whole.",
        "two",
    ),
    _check(
        "sub.reopen_after_last_close", "MUST", "ready",
        "After an instance's last subscription was closed, a new one works.",
    ),
    _check(
        "sub.close_wakes_and_is_idempotent", "MUST", "close",
        "Closing a subscription from another task ends a read that waits in it, and closing it again does nothing.",
    ),
    _check(
        "sub.churn_keeps_stable_whole", "MUST", "complete",
        "Subscriptions that come and go cost a steady one nothing.",
        "two",
    ),
    _check(
        "order.per_publisher_fifo", "CAPABILITY", "order",
        "Notifications of one publisher arrive in the order published.",
        "two", claim="fifo",
    ),
    _check(
        "conc.many_publishers_mixed_sizes", "MUST", "complete",
        "Many tasks on two instances publish small and large bodies at once, and each arrives once and intact.",
        "two",
    ),
    _check(
        "slow.publisher_unaffected", "MUST", "bounded",
        "A subscription that is never read neither delays publishing nor makes it raise.",
    ),
    _check(
        "slow.sibling_unaffected", "MUST", "bounded",
        "A subscription that is never read costs its siblings nothing, whether older or younger.",
    ),
    _check(
        "slow.buffer_is_bounded", "MUST", "bounded",
        "A subscription that is not read holds no more than its stated buffer.",
    ),
    _check(
        "slow.drop_is_warned", "MUST", "bounded",
        "A drop is warned of on the stated logger, with its kind and a count as fields of the record.",
    ),
    _check(
        "slow.drop_is_warned_once", "SHOULD", "bounded",
        "A flood of drops is warned of now and then, not once for each.",
    ),
    _check(
        "slow.recovers_in_order", "MUST", "bounded",
        "After an overflow the stream goes on: what survived is in order and without duplicates, and new ones arrive.",
    ),
    _check(
        "cancel.next_is_survivable_and_lossless", "MUST", "never_ends",
        "A cancelled read ends at once, loses nothing, and the next read goes on.",
    ),
    _check(
        "cancel.publish_propagates", "MUST", "cancellation",
        "Cancelling a task inside `publish` cancels that task and nothing else, and its notification still arrives.",
    ),
    _check(
        "cancel.consumer_unwinds_in_stall", "MUST", "cancellation",
        "A subscriber that is cancelled while the link is stalled leaves its subscription at once.",
        "stall",
    ),
    _check(
        "publish.prompt_when_broker_stalls", "MUST", "hand_off",
        "`publish` returns at once while the broker accepts bytes and answers nothing.",
        "stall",
    ),
    _check(
        "publish.never_raises_when_broker_down", "MUST", "hand_off",
        "`publish` returns and raises nothing while the broker cannot be reached.",
        "cut",
    ),
    _check(
        "publish.outage_backlog_is_bounded", "MUST", "bounded",
        "What is published in an outage is kept up to the stated outbox, the rest dropped with a warning.",
        "two", "cut",
    ),
    _check(
        "publish.snapshots_its_input", "MUST", "hand_off",
        "`publish` changes nothing of the caller's, and what the caller changes afterwards does not travel.",
        "stall", brokerless=True,
    ),
    _check(
        "publish.unencodable_fails_fast", "MUST", "hand_off",
        "What cannot be encoded is refused before anything of it travels, and spoils nothing.",
    ),
    _check(
        "publish.yields_and_never_blocks_loop", "MUST", "hand_off",
        "A burst of publishing lets other tasks run, and blocks the event loop for no noticeable time.",
    ),
    _check(
        "wire.body_is_exact", "MUST", "wire",
        "What travels is exactly the notification's JSON body, with absent, empty and given params told apart.",
        "wire",
    ),
    _check(
        "wire.reads_foreign_peer", "MUST", "wire",
        "Bodies written by another implementation are read, with unknown members, other order and null params.",
        "wire",
    ),
    _check(
        "wire.skips_garbage_and_lives", "MUST", "untrusted",
        "Whatever is no notification is skipped with a warning, and the next good one arrives.",
        "wire",
    ),
    _check(
        "codec.values_round_trip", "MUST", "complete",
        "Odd text and every JSON type arrive equal and of the same type.",
        "two",
    ),
    _check(
        "codec.size_limit_is_in_bytes", "MUST", "hand_off",
        "Bodies up to the stated number of bytes arrive whole, one byte more is refused, and the bus lives on.",
        "two",
    ),
    _check(
        "codec.deliveries_are_independent", "MUST", "complete",
        "What one subscriber does to a notification is not seen by another.",
    ),
    _check(
        "reconnect.survives_cut_both_ways", "MUST", "never_ends",
        "After its connections were cut an instance receives and publishes again, on the same stream.",
        "two", "cut",
    ),
    _check(
        "reconnect.survives_long_outage_with_backoff", "MUST", "reconnect",
        "After an outage longer than any client's own patience, the same stream goes on.",
        "two", "cut",
    ),
    _check(
        "reconnect.backs_off", "SHOULD", "reconnect",
        "While the broker is away connections are tried again at a bounded rate.",
        "cut",
    ),
    _check(
        "reconnect.no_replay_no_duplicates", "MUST", "at_most_once",
        "Nothing arrives twice around reconnects, also when a connection breaks between a send and its answer.",
        "two", "delay", "cut",
    ),
    _check(
        "reconnect.half_open_detected", "CAPABILITY", "reconnect",
        "A connection that died without a word is noticed and made anew within the stated time.",
        "two", "stall", claim="liveness",
    ),
    _check(
        "crash.peer_killed", "MUST", "never_ends",
        "A peer killed in the middle of publishing harms nobody, and no half body is delivered.",
        "two", "process",
    ),
    _check(
        "close.idempotent_and_concurrent", "MUST", "close",
        "Closing twice, at the same time, or without ever having started is no error and does not hang.",
    ),
    _check(
        "close.ends_streams", "MUST", "close",
        "Closing an instance ends the loops of its subscribers normally.",
    ),
    _check(
        "close.bounded_in_outage_and_overflow", "MUST", "close",
        "Closing returns within the stated time while the broker is gone or frozen and every buffer is full.",
        "stall", "cut",
    ),
    _check(
        "close.leaves_nothing_and_publish_is_defined", "MUST", "close",
        "A closed instance leaves no task, thread or socket, refuses to publish at once and sends nothing more.",
        "two",
    ),
    _check(
        "gap.after_reconnect", "CAPABILITY", "gaps",
        "After an outage every subscription yields a gap before its next notification, not one for each try.",
        "two", "cut", claim="gaps",
    ),
    _check(
        "gap.on_overflow", "CAPABILITY", "gaps",
        "The subscription that overflowed yields a gap before what survived, and its siblings yield none.",
        claim="gaps",
    ),
    _check(
        "gap.on_the_wire", "CAPABILITY", "gaps",
        "An instance that dropped what it was to send tells the subscriptions of the other instances.",
        "two", "cut", claim="outbox_gaps",
    ),
    _check(
        "gap.unknown_to_peers", "CAPABILITY", "gaps",
        "What travels for gaps and liveness is a valid body of an unknown method, and no probe is ever yielded.",
        "wire", claim="gaps",
    ),
    _check(
        "live.subscribed_in_name_only", "CAPABILITY", "reconnect",
        "A subscription that the broker confirmed and does not serve is warned of and made anew.",
        "deaf", claim="end_to_end",
    ),
    _check(
        "life.reference_counted", "MUST", "lifecycle",
        "A bus entered several times works until its last exit, then stops, and can be entered in another event loop.",
        "build",
    ),
    _check(
        "life.built_without_loop", "MUST", "lifecycle",
        "Building a bus needs no event loop and opens nothing, and it works in two loops one after the other.",
        "build",
    ),
)  # fmt: skip
"""Every check, in the order in which they are run."""

_BY_ID: Final = {check.id: check for check in MANIFEST}


def find_check(id_: str) -> Check:
    """The entry of an id.

    Raises:
        KeyError: There is none.
    """
    return _BY_ID[id_]
