"""Liveness probes and the peers that they show. No I/O: the time is passed in."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, Self

from notification_bus.notification import BusNotification

__all__ = ["CONTROL_PREFIX", "GAP_METHOD", "PROBE_METHOD", "Peers", "Probe", "may_be_control"]

CONTROL_PREFIX: Final = "notifications/bus/"
GAP_METHOD: Final = "notifications/bus/gap"
PROBE_METHOD: Final = "notifications/bus/probe"

_CONTROL_BYTES: Final = CONTROL_PREFIX.encode()

_FULL_RATE: Final = 10
"""Instances that probe at the stated interval. In a larger fleet each waits longer: the rate on the channel stays."""

_MISSED: Final = 3
"""Intervals without a probe after which a peer counts as gone."""

_MAX_PEERS: Final = 10_000
_MAX_INTERVAL: Final = 3600.0
_MAX_NAME: Final = 64


def may_be_control(data: bytes | str) -> bool:
    """Return whether a message may hold a probe or a gap: it has their prefix, or an escape that may hide it."""
    if isinstance(data, str):
        return CONTROL_PREFIX in data or "\\" in data
    return data.find(_CONTROL_BYTES) >= 0 or data.find(b"\\") >= 0


@dataclass(frozen=True, slots=True)
class Probe:
    """A liveness probe: the instance, a number, the seconds until its next, and whether the instance is leaving."""

    instance: str
    number: int
    interval: float
    leaving: bool = False

    def encode(self) -> bytes:
        params: dict[str, str | int | float | bool] = {
            "instance": self.instance,
            "number": self.number,
            "interval": self.interval,
        }
        if self.leaving:
            params["leaving"] = True
        return BusNotification(PROBE_METHOD, params).encode()

    @classmethod
    def read(cls, notification: BusNotification) -> Self | None:
        """Read a probe from an untrusted peer; `None` if it is not a valid one."""
        params = notification.params or {}
        instance, number, interval = params.get("instance"), params.get("number"), params.get("interval")
        if not isinstance(instance, str) or not 0 < len(instance) <= _MAX_NAME:
            return None
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        if not isinstance(interval, int | float) or isinstance(interval, bool) or not isfinite(interval):
            return None
        if interval <= 0:
            return None
        # Clamped, so that no peer can claim an interval in which it is never missed. Not rejected: it may be this
        # instance's own, and without its own probes it would consider every connection dead.
        return cls(instance, number, min(float(interval), _MAX_INTERVAL), params.get("leaving") is True)


class Peers:
    """The other instances on the channel, as their probes show them."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._gone_at: dict[str, float] = {}
        self._patience: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._gone_at)

    @property
    def interval(self) -> float:
        """Seconds between this instance's probes, stretched with the size of the fleet."""
        return min(self._interval * max(1.0, (len(self._gone_at) + 1) / _FULL_RATE), max(self._interval, _MAX_INTERVAL))

    def heard(self, probe: Probe, now: float) -> None:
        """Note a peer's probe. A leaving peer is not missed afterwards."""
        name = probe.instance
        if probe.leaving:
            self._gone_at.pop(name, None)
            self._patience.pop(name, None)
        elif name in self._gone_at or len(self._gone_at) < _MAX_PEERS:
            self._patience[name] = _MISSED * max(probe.interval, self._interval)
            self._gone_at[name] = now + self._patience[name]

    def connected(self, now: float) -> None:
        """Expect the known peers on a new connection too, each within its own time."""
        self._gone_at = {name: now + patience for name, patience in self._patience.items()}

    def all_lost(self, now: float) -> bool:
        """Forget overdue peers. Returns True if there were some and now there are none."""
        overdue = [name for name, gone_at in self._gone_at.items() if now >= gone_at]
        for name in overdue:
            del self._gone_at[name], self._patience[name]
        return bool(overdue) and not self._gone_at
