"""Write the pages of the docs that are generated: `uv run python docs/generate.py`. A test holds them to the code."""

import inspect
import re
from pathlib import Path
from typing import Final

from notification_bus import NotificationBus
from notification_bus.testing import CHECKS

HERE: Final = Path(__file__).parent


def rules() -> dict[str, str]:
    """The rules of the contract, by their bold word, as the protocol's docstring has them."""
    docstring = inspect.getdoc(NotificationBus) or ""
    found = re.findall(r"^(\d+)\. \*\*(\w+)\*\*: (.*?)(?=^\d+\. |^Not promised)", docstring, re.MULTILINE | re.DOTALL)
    return {word: " ".join(text.split()) for _, word, text in found}


def contract() -> str:
    """The page on the contract: each rule, and the checks that prove it."""
    docstring = inspect.getdoc(NotificationBus) or ""
    not_promised = " ".join(docstring.partition("Not promised:")[2].split())
    lines = [
        "# The contract",
        "",
        "*Generated from the docstring of `NotificationBus` and the checks of the kit by `docs/generate.py`.*",
        "",
        "A bus is an object with two methods, `publish` and `subscribe`, and these rules. Each is proven by the checks",
        "below it, which `notification-bus check` and `notification_bus.testing.contract.BusContract` run on any bus.",
        "MUST: every bus keeps it. SHOULD: a bus with a good reason not to declares a known failure. CAPABILITY: of",
        "a bus that claims it.",
    ]
    for number, (word, text) in enumerate(rules().items(), start=1):
        lines += ["", f"## {number}. {word}", "", text, ""]
        lines += ["| check | level | what is checked |", "| --- | --- | --- |"]
        lines += [f"| `{c.id}` | {c.level} | {c.behaviour} |" for c in CHECKS.values() if c.rule == word]
    lines += ["", "## Not promised", "", not_promised[:1].upper() + not_promised[1:]]
    return "\n".join(lines) + "\n"


PAGES: Final = {"contract.md": contract}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
