"""The log records of a check."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["LogTap"]


class LogTap(logging.Handler):
    """Collects records of WARNING and above: those of the bus for the checks, those above WARNING for the runner."""

    def __init__(self, bus_logger: str) -> None:
        super().__init__(logging.WARNING)
        self._bus_logger = bus_logger
        self._seen: set[int] = set()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        # A record reaches this handler twice where it is attached to a logger and to the root.
        if id(record) not in self._seen:
            self._seen.add(id(record))
            self.records.append(record)

    @property
    def of_the_bus(self) -> list[logging.LogRecord]:
        """Records of the bus's own logger, or of one below it."""
        name = self._bus_logger
        return [r for r in self.records if not name or r.name == name or r.name.startswith(f"{name}.")]

    @property
    def drops(self) -> list[logging.LogRecord]:
        """Those of them that tell of a drop."""
        return [r for r in self.of_the_bus if str(getattr(r, "notification_bus_event", "")).startswith("dropped")]

    @property
    def errors(self) -> list[logging.LogRecord]:
        """Records above WARNING, whosever they are."""
        return [record for record in self.records if record.levelno > logging.WARNING]

    @contextmanager
    def attached(self) -> Generator[None]:
        """Collect inside."""
        bus_logger = logging.getLogger(self._bus_logger)
        level = bus_logger.level
        if bus_logger.getEffectiveLevel() > logging.WARNING:
            # An application that silences the bus must not hide from the kit whether it warns.
            bus_logger.setLevel(logging.WARNING)
        loggers = {logging.getLogger(), bus_logger}
        for logger in loggers:
            logger.addHandler(self)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(self)
            bus_logger.setLevel(level)
