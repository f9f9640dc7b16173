"""A publisher that is no server: a cron job that brings text files into the notes of `examples/updates`.

    python -m examples.updates.server --port 8001
    python -m examples.updates.watch http://127.0.0.1:8001/mcp
    echo milk > shopping.txt && python -m examples.publisher.import_notes shopping.txt

Needs `pip install notification-bus notification-bus-redis`, and a Redis; `--bus` names it, the same as the servers'.

A process that lives for a second has no time to outlive an outage, so it does three things that a server does not:

* It waits for the broker first. Without one it changes nothing, says so, and fails: whoever runs it will run it again.
* It publishes everything and then leaves the bus. Leaving sends what is queued, so that all of it has been handed to
  the broker when the process ends; there is nothing to sleep for.
* It looks at what the bus says of it. A broker that went away in between has cost notifications, and no process is left
  to announce the gap. Then the exit code says so, and the next run tells of everything again.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import anyio

from examples.updates.store import INDEX, NAME, Notes, uri_of
from notification_bus import BusNotification, NotificationBusError, open_bus


async def run(bus_url: str, notes: Notes, files: Sequence[Path]) -> str:
    """Import the files, and tell the replicas. What has been done, in words.

    Raises:
        NotificationBusError: The URL is none, or the broker does not answer; nothing has been changed.
        SystemExit: The broker has gone since; what it was not told of is lost.
    """
    bus = open_bus(bus_url)
    async with bus:
        await bus.wait_ready(5)
        for file in files:
            name, text = file.stem, file.read_text("utf-8").strip()
            if not notes.create(name, text):
                notes.edit(name, text)
            # Also where it was the same before: this may be the second run, after one that could not tell of it. To
            # look once too often costs a read.
            await bus.publish(BusNotification.resource_updated(uri_of(name)))
        # Once for all of them.
        await bus.publish(BusNotification.resource_updated(INDEX))
        await bus.publish(BusNotification.resources_list_changed())
    stats = bus.stats()
    if stats.unsent:
        raise SystemExit(
            f"imported, but {stats.unsent} of {stats.published} notifications may not have arrived: run it again"
        )
    return f"imported {len(files)}, and told of it in {stats.published} notifications"


def main() -> None:
    """Exit with 0 if everything was imported and has been handed to the broker, else with 1 and the reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--bus", default="redis://localhost?channel=notes")
    parser.add_argument("--notes", type=Path, default=Path("notes.sqlite"))
    options = parser.parse_args()
    for file in options.files:
        if not re.fullmatch(NAME, file.stem):
            parser.error(f"{file}: a note's name is small letters, digits and hyphens")
    try:
        print(anyio.run(run, options.bus, Notes(options.notes), options.files))
    except NotificationBusError as error:
        raise SystemExit(f"nothing imported: {error}") from None


if __name__ == "__main__":
    main()
