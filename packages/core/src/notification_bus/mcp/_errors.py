"""What a client is told of a subscription that it cannot have."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from notification_bus._floodlog import FloodLog
from notification_bus.errors import NotificationBusError
from notification_bus.subscriptions import InvalidFilterError, SubscriptionLimitError, SubscriptionsClosedError

__all__ = ["as_protocol_errors"]

_UNAVAILABLE: Final = "subscriptions are not available at the moment: try again"
"""What is wrong with the broker is for the server's log; it is nothing that a client could mend, or should know."""


@contextmanager
def as_protocol_errors(floods: FloodLog) -> Generator[None]:
    """Turn what a registry raises into what the protocol has for it: whether it is the client's to mend, and how.

    Raises:
        MCPError: Instead of any `NotificationBusError`.
    """
    try:
        yield
    except InvalidFilterError as exc:
        raise MCPError(types.INVALID_PARAMS, str(exc)) from None
    except SubscriptionLimitError as exc:
        code = types.INTERNAL_ERROR if exc.limit == "max_streams" else types.INVALID_PARAMS
        raise MCPError(code, str(exc)) from None
    except SubscriptionsClosedError as exc:
        raise MCPError(types.INTERNAL_ERROR, str(exc)) from None
    except NotificationBusError as exc:
        floods.add("listen", f"a subscription was refused: {exc}")
        raise MCPError(types.INTERNAL_ERROR, _UNAVAILABLE) from None
