"""The notification bus over Redis or Valkey."""

from notification_bus_redis._bus import RedisBus

__all__ = ["RedisBus"]
