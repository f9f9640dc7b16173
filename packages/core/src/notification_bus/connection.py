"""What an adapter provides: one attachment to its broker, and what it may say about it."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

from notification_bus.notification import DEFAULT_MAX_BODY

__all__ = ["BrokerConnection"]


class BrokerConnection(ABC):
    """One attachment to the broker, both halves: publishing, and a subscription that the broker has confirmed.

    An adapter keeps no state beyond it, retries nothing and reconnects nowhere: any exception from any method, except
    `SendRefusedError`, means that this connection is lost, and `BrokerBus` makes a new one.

    `send` and `check` are never called at the same time; `receive` runs beside them; `aclose` may come in the middle of
    all of them.
    """

    max_body: int = DEFAULT_MAX_BODY
    """Bytes of the largest body that this broker carries."""

    @abstractmethod
    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send each body as one broker message, in order, and return when the broker's client is done with them.

        Each exactly once: a client's own retries are switched off. Bodies may be equal and must not collapse.

        Raises:
            SendRefusedError: The broker refused, and the connection is good.
        """

    @abstractmethod
    def receive(self) -> AsyncIterator[Sequence[bytes | str]]:
        """What arrives on the channel, in batches as they come. Waits for ever where nothing arrives.

        The iterator ends, or raises, when the connection is lost.
        """

    async def check(self) -> None:  # noqa: B027  # a broker without such a question answers it by doing nothing
        """Called with each probe: ask the broker whether this node is still the primary, where it can say so.

        Raises:
            NotPrimaryError: It is not.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of everything, whatever state it is in, without waiting for a broker that does not answer."""
