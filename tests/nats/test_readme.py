"""The distribution's README does what it says."""

import re
import textwrap
from pathlib import Path
from typing import Any

from notification_bus import BusNotification
from notification_bus.options import OPTION_NAMES
from notification_bus_nats import NatsOptions
from notification_bus_nats._bus import LONGEST_SUBJECT, subject_of
from tests.brokers import Server

README = (Path(__file__).parents[2] / "packages/bus-nats/README.md").read_text("utf-8")


async def test_first_example_runs(nats_server: Server, channel: str) -> None:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    code = found[1].replace("nats://localhost:4222?channel=board", f"{nats_server.url}?channel={channel}")
    code = code.replace("print(", "yield (")
    imports, _, body = code.partition("\n\n")
    names: dict[str, Any] = {}
    exec(f"{imports}\nasync def run():\n{textwrap.indent(body, '    ')}", names)  # noqa: S102
    assert [shown async for shown in names["run"]()] == [BusNotification.tools_list_changed()]


def test_every_option_is_in_the_table() -> None:
    assert [name for name in NatsOptions.__optional_keys__ if f"`{name}`" not in README] == []
    assert [name for name in OPTION_NAMES if f"`{name}`" not in README] == []


def test_what_is_said_of_subjects_is_true() -> None:
    assert subject_of("board *") == "board%20%2A"
    assert f"{LONGEST_SUBJECT:,} bytes" in README
