"""How patient the checks are."""

from dataclasses import dataclass

__all__ = ["Timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds, each settable by itself. Waiting ends as soon as what is waited for is there: `wait` can be generous."""

    wait: float = 10.0
    """How long to wait for what must come."""

    silence: float = 0.1
    """How long nothing may come, after a sentinel has shown that whatever was to come could have come."""

    poll: float = 0.005
    """How often to look."""

    prompt: float = 0.2
    """What counts as at once, for `publish` and the like. A busy machine is given several tries."""

    blocked: float = 0.1
    """The longest time for which publishing may keep the event loop from everybody else, with several tries."""

    outage: float = 2.0
    """How long a long outage lasts: beyond the patience of the client library that the bus uses."""

    deadline: float = 60.0
    """How long one check may take, whatever happens."""
