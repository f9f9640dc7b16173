"""The notification bus over PostgreSQL's LISTEN and NOTIFY."""

from notification_bus_postgres._bus import Executes, PostgresBus

__all__ = ["Executes", "PostgresBus"]
