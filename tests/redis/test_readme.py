"""The distribution's README names what there is; `tests/docs` runs its example."""

from pathlib import Path

from notification_bus.options import OPTION_NAMES
from notification_bus_redis._connection import grant

README = (Path(__file__).parents[2] / "packages/bus-redis/README.md").read_text("utf-8")


def test_every_option_and_the_rights_of_the_user_are_named() -> None:
    assert [name for name in OPTION_NAMES if f"`{name}`" not in README] == []
    assert grant("board") in README
