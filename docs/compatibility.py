"""Run the contract kit on every bus and server that is here, and write `compatibility.md` from what came of it.

    uv run python -m docs.compatibility

Takes a few minutes. A test holds the page to the kit's manifest: a new check makes it out of date.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from notification_bus.testing import CHECKS, MemoryHarness, run_suite, url_harness
from tests.brokers import KINDS, Provider, available_flavours

PAGE: Final = Path(__file__).parent / "compatibility.md"
BUSES: Final = {"redis": "RedisBus", "nats": "NatsBus", "postgres": "PostgresBus"}
SERVERS: Final = {"redis": "Redis", "valkey": "Valkey", "nats": "NATS", "postgres": "PostgreSQL"}
MARKS: Final = {"passed": "✓", "not_declared": "-", "untestable": "?", "failed": "✗", "known_failure": "✗ (known)"}
MAX_BODY: Final = {"redis": 1_048_576, "nats": 1_048_576, "postgres": 7_999}


@contextmanager
def harnesses() -> Generator[dict[str, Any]]:
    """Each bus on each server, by the head of its column."""
    found: dict[str, Any] = {"MemoryBus": MemoryHarness()}
    provider = Provider("local")
    contexts: list[Any] = []
    try:
        for kind in KINDS:
            for flavour in available_flavours(kind):
                context = provider.dedicated(kind, flavour)
                server = context.__enter__()
                contexts.append(context)
                product = SERVERS[flavour.partition("-")[0]]
                # The wire is found by itself, as for whoever runs `notification-bus check`.
                harness = url_harness(server.url, max_body=MAX_BODY[kind])
                found[f"{BUSES[kind]}, {product} {server.version}"] = harness
        yield found
    finally:
        for context in contexts:
            context.__exit__(None, None, None)
        provider.close()


def page(columns: dict[str, dict[str, str]]) -> str:
    """The page, from the outcomes by column and check."""
    heads = list(columns)
    lines = [
        "# Compatibility",
        "",
        "*Written by `python -m docs.compatibility`, which ran the contract kit under `--strict` on these servers.*",
        "",
        "✓ passed, - not declared (a bus without a broker has no link to break), ✗ failed, ? could not be run.",
        "",
        "| check | " + " | ".join(heads) + " |",
        "| --- |" + " :-: |" * len(heads),
    ]
    lines += [f"| `{id_}` | " + " | ".join(MARKS[columns[head][id_]] for head in heads) + " |" for id_ in CHECKS]
    return "\n".join(lines) + "\n"


def main() -> None:
    columns: dict[str, dict[str, str]] = {}
    with harnesses() as found:
        for head, harness in found.items():
            results = run_suite(harness)
            columns[head] = {result.id: cast("str", result.outcome) for result in results}
    PAGE.write_text(page(columns), encoding="utf-8")


if __name__ == "__main__":
    main()
