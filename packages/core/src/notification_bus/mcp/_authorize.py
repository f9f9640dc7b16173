"""Who may watch what: the user's hook, and what becomes of its answer."""

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from notification_bus.subscriptions import SubscriptionFilter

__all__ = ["Authorize", "Authorizer"]

Authorize: TypeAlias = Callable[
    [ServerRequestContext[Any, Any], SubscriptionFilter], SubscriptionFilter | Awaitable[SubscriptionFilter]
]
"""Narrows what a caller may watch: gets the request's context and what was asked for, as far as the server can push it,
and returns what of it is allowed. It cannot widen it. Whatever it raises refuses the stream."""

_REFUSED: Final = "this caller may not open this subscription"
"""The same words whatever was asked for: they must not tell which resources there are."""


class Authorizer:
    """Asks the hook, if there is one.

    Args:
        authorize: See there; `None` allows everything.
        logger: For what the client is not told.
    """

    def __init__(self, authorize: Authorize | None, logger: logging.Logger) -> None:
        self._authorize = authorize
        self._logger = logger

    async def allowed(self, ctx: ServerRequestContext[Any, Any], requested: SubscriptionFilter) -> SubscriptionFilter:
        """What of `requested` its caller may watch.

        Raises:
            MCPError: Nothing. In words that are the same whatever was asked for.
        """
        if self._authorize is None:
            return requested
        try:
            allowed = self._authorize(ctx, requested)
            if isawaitable(allowed):
                allowed = await allowed
            return requested.intersect(allowed)
        except PermissionError:
            raise self.refusal() from None
        except Exception:
            self._logger.exception("`authorize` failed; the subscription was refused")
            raise self.refusal() from None

    @staticmethod
    def refusal() -> MCPError:
        """What a caller is told that may not watch."""
        return MCPError(types.INVALID_REQUEST, _REFUSED)
