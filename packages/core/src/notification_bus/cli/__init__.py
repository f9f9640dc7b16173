"""The command `notification-bus`."""

from notification_bus.cli._main import main

__all__ = ["main"]
