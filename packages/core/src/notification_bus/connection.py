"""`BrokerConnection`: what an adapter implements."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

from notification_bus.notification import DEFAULT_MAX_BODY

__all__ = ["BrokerConnection"]


class BrokerConnection(ABC):
    """One connection to the broker: it publishes, and holds a subscription that the broker has confirmed.

    An adapter never retries and never reconnects: any exception from any method, except `SendRefusedError`, means that
    this connection is lost, and `BrokerBus` makes a new one.

    `send` and `check` are never called concurrently; `receive` runs beside them; `aclose` may be called while any of
    them runs.
    """

    max_body: int = DEFAULT_MAX_BODY
    """Bytes of the largest body that this broker accepts."""

    @abstractmethod
    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send each body as one broker message, in order, and return when the client library is done with them.

        Each exactly once: the client's own retries must be off. Equal bodies must not be merged.

        Raises:
            SendRefusedError: The broker refused, and the connection is still good.
        """

    @abstractmethod
    def receive(self) -> AsyncIterator[Sequence[bytes | str]]:
        """Yield what arrives on the channel, in batches. Waits without limit while nothing arrives.

        Ends or raises when the connection is lost.
        """

    async def check(self) -> None:  # noqa: B027  # optional: nothing to ask of most brokers
        """Ask the broker whether this node is still the primary, if it can tell. Called with each probe.

        Raises:
            NotPrimaryError: The node is not the primary.
        """

    async def version(self) -> str | None:
        """Return the name and version of the broker, for reports; `None` if it does not tell.

        Raises:
            Exception: Whatever asking raises.
        """
        return None

    @abstractmethod
    async def aclose(self) -> None:
        """Release everything, in any state, without waiting for a broker that does not answer."""
