"""A harness for a `BrokerBus` on the simulated broker; `simulated_bus:at_40123` is one for a child process."""

from notification_bus.testing import Capabilities
from tests.kit.simulated import SimulatedBroker, SimulatedBus, SimulatedHarness, SimulatedLink
from tests.kit.simulated.bridge import join

CAPABILITIES = Capabilities(
    buffer=16,
    outbox=32,
    max_body=8192,
    ready_timeout=3.0,
    close_timeout=0.5,
    liveness=2.0,
    end_to_end=True,
    backends=("asyncio", "trio"),
    drop_logger="notification_bus.simulated",
)


def build(link: SimulatedLink, channel: str) -> SimulatedBus:
    return SimulatedBus(
        link,
        channel,
        max_body=8192,
        buffer=16,
        outbox=32,
        probe_interval=0.3,
        probe_timeout=1.0,
        ready_timeout=3.0,
        close_timeout=0.5,
        backoff_cap=0.2,
    )


def harness(broker: SimulatedBroker | None = None) -> SimulatedHarness:
    return SimulatedHarness(build, CAPABILITIES, broker=broker, child=lambda port: f"tests.kit.simulated_bus:at_{port}")


def __getattr__(name: str) -> SimulatedHarness:
    if not name.startswith("at_"):
        raise AttributeError(name)
    broker = SimulatedBroker()
    join(broker, int(name.removeprefix("at_")))
    return harness(broker)
