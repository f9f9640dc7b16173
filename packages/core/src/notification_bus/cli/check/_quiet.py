"""What a bus under test logs is for the checks to look at, and not for the terminal."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Generator[None]:
    """Keep Python from printing warnings that nobody has asked to see; handlers of a harness's own stay."""
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)
