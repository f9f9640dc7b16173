"""The notification bus over NATS."""

from notification_bus_nats._bus import NatsBus
from notification_bus_nats._settings import NatsOptions

__all__ = ["NatsBus", "NatsOptions"]
