"""What a report of the kit begins with: which bus, on which broker, and what can be done to it."""

from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from secrets import token_hex

from notification_bus.testing._tasks import start_loop
from notification_bus.testing.harness import DeafLink, Harness

__all__ = ["Header", "describe"]

_FAULTS = ("delay", "stall", "blackhole", "cut", "refuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What is checked, and with what."""

    bus: str
    """The class and the version of its distribution."""

    broker: str
    capabilities: str
    faults: str
    hooks: str
    scale: int

    def lines(self) -> list[str]:
        """As a report shows it."""
        return [
            f"bus: {self.bus}",
            f"broker: {self.broker}",
            f"capabilities: {self.capabilities}",
            f"faults: {self.faults}",
            f"hooks: {self.hooks}",
            f"scale: {self.scale}",
        ]


def describe(harness: Harness, *, backend: str | None = None, scale: int = 1) -> Header:
    """Look at a harness; an instance is started for a moment, unless the harness has a `build`."""
    kinds: list[type] = []
    faults: list[str] = []

    async def look() -> None:
        if "build" in harness.hooks:
            kinds.append(type(harness.build(f"kit-header-{token_hex(6)}")))
        else:
            async with harness.instance(f"kit-header-{token_hex(6)}") as bus:
                kinds.append(type(bus))
        link = harness.link()
        if link is not None:
            async with link as opened:
                faults.extend([*_FAULTS, *(["deaf"] if isinstance(opened, DeafLink) else [])])

    start_loop(look, backend or next(iter(harness.capabilities.backends)))
    kind = kinds[0]
    capabilities = harness.capabilities
    broker = harness.broker or ("not told by the harness" if capabilities.has_broker else "none")
    return Header(
        bus=f"{kind.__module__}.{kind.__qualname__} {_version(kind.__module__)}".rstrip(),
        broker=broker,
        capabilities=", ".join(f"{field.name}={getattr(capabilities, field.name)!r}" for field in fields(capabilities)),
        faults=", ".join(faults) or "none",
        hooks=", ".join(harness.hooks) or "none",
        scale=scale,
    )


@cache
def _version(module: str) -> str:
    package = module.partition(".")[0]
    # An editable install lists no top-level names, and then the distribution is called like its package.
    for name in (*metadata.packages_distributions().get(package, ()), package.replace("_", "-")):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
