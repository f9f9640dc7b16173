"""The notification bus over NATS."""

from notification_bus_nats._bus import NatsBus

__all__ = ["NatsBus"]
