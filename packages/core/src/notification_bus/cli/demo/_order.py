"""What the demo and its replicas say to each other. Imports no SDK: the demo starts them before it loads its own."""

from typing import Final, TypedDict

__all__ = ["PATH", "WITH", "WITHOUT", "Answer", "Order"]

PATH: Final = "/mcp"
WITHOUT: Final = "/without"
WITH: Final = "/with"
"""The board is served twice, so that one start shows both: with the SDK's own subscriptions, and over the bus."""


class Order(TypedDict):
    """What a replica reads. From its input, since arguments are shown to everybody and a URL may hold a password."""

    bus: str
    timeout: float


class Answer(TypedDict, total=False):
    """What a replica answers, when it listens or cannot."""

    port: int
    error: str
