"""Subscriptions of MCP servers over a notification bus. Needs `pip install "notification-bus[mcp]"`."""

try:
    from notification_bus.mcp._listen import Authorize
    from notification_bus.mcp._subscriptions import McpSubscriptions
except ModuleNotFoundError as _exc:
    if _exc.name is None or _exc.name.partition(".")[0] not in {"mcp", "mcp_types"}:
        raise
    raise ModuleNotFoundError(
        'notification_bus.mcp needs the MCP SDK, version 2: pip install "notification-bus[mcp]"', name=_exc.name
    ) from _exc

__all__ = ["Authorize", "McpSubscriptions"]
