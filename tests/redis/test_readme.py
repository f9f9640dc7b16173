"""The distribution's README does what it says."""

import re
import textwrap
from pathlib import Path
from typing import Any

from notification_bus import BusNotification
from notification_bus.options import OPTION_NAMES
from notification_bus_redis._connection import grant
from tests.brokers import Server
from tests.redis.support import channel

README = (Path(__file__).parents[2] / "packages/bus-redis/README.md").read_text("utf-8")


async def test_first_example_runs(redis_server: Server) -> None:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    code = found[1].replace("redis://localhost:6379?channel=board", f"{redis_server.url}?channel={channel()}")
    code = code.replace("print(", "yield (")
    imports, _, body = code.partition("\n\n")
    names: dict[str, Any] = {}
    exec(f"{imports}\nasync def run():\n{textwrap.indent(body, '    ')}", names)  # noqa: S102
    assert [shown async for shown in names["run"]()] == [BusNotification.tools_list_changed()]


def test_every_option_and_the_rights_of_the_user_are_named() -> None:
    assert [name for name in OPTION_NAMES if f"`{name}`" not in README] == []
    assert grant("board") in README
