"""Where in a server a listen handler goes, and what the server then says that it can push."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, cast

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp_types import ServerCapabilities

from notification_bus.mcp._events import LIST_EVENTS
from notification_bus.subscriptions import Capabilities

__all__ = ["Host", "advertise", "host_of", "watch_lists"]

_FASTMCP_KINDS: Final[dict[str, ServerEvent]] = {
    "tool": ToolsListChanged(),
    "resource": ResourcesListChanged(),
    "template": ResourcesListChanged(),
    "prompt": PromptsListChanged(),
}


@dataclass(frozen=True, slots=True)
class Host:
    """A server that listen can be served by."""

    server: Any
    """What the user has built."""

    low_level: Any
    """The SDK's low-level server inside it, or itself."""


def host_of(server: object) -> Host:
    """What to install on.

    Raises:
        TypeError: It is none of the servers that are known here.
    """
    if isinstance(server, Server):
        return Host(server, cast("Any", server))
    if isinstance(server, MCPServer):
        # The SDK's migration guide names this attribute; the public way leads through an HTTP app.
        return Host(server, cast("Any", server)._lowlevel_server)  # noqa: SLF001
    fastmcp: Any = sys.modules.get("fastmcp")
    if fastmcp is not None and isinstance(server, fastmcp.FastMCP):
        return Host(server, cast("Any", server)._mcp_server)  # noqa: SLF001
    raise TypeError(
        f"install() takes an MCPServer or low-level Server of mcp 2, or a FastMCP of fastmcp 4, not a "
        f"{type(server).__module__}.{type(server).__qualname__}: call it with the server, before its HTTP app is built"
    )


def advertise(server: Server[Any], capabilities: Capabilities) -> Callable[[str], Capabilities]:
    """Have a server say no more than it can push.

    Returns:
        What it says to clients of a protocol version: the capabilities, without kinds that the server does not have.
    """
    plain = server.get_capabilities

    @wraps(plain)
    def get_capabilities(*args: Any, **kwargs: Any) -> ServerCapabilities:
        return _narrowed(plain(*args, **kwargs), capabilities)

    server.get_capabilities = get_capabilities  # type: ignore[method-assign]

    def can_push(protocol_version: str) -> Capabilities:
        said = server.get_capabilities(protocol_version=protocol_version)
        return Capabilities(
            tools_list_changed=said.tools is not None and said.tools.list_changed is True,
            prompts_list_changed=said.prompts is not None and said.prompts.list_changed is True,
            resources_list_changed=said.resources is not None and said.resources.list_changed is True,
            resources_subscribe=said.resources is not None and said.resources.subscribe is True,
            extensions=capabilities.extensions,
        )

    return can_push


def _narrowed(said: ServerCapabilities, can: Capabilities) -> ServerCapabilities:
    changes: dict[str, Any] = {}
    if said.tools is not None and not can.tools_list_changed:
        changes["tools"] = said.tools.model_copy(update={"list_changed": False})
    if said.prompts is not None and not can.prompts_list_changed:
        changes["prompts"] = said.prompts.model_copy(update={"list_changed": False})
    if said.resources is not None:
        update: dict[str, Any] = {}
        if not can.resources_list_changed:
            update["list_changed"] = False
        if not can.resources_subscribe:
            update["subscribe"] = False
        changes["resources"] = said.resources.model_copy(update=update)
    return said.model_copy(update=changes)


def watch_lists(host: Host, tell: Callable[[ServerEvent], None]) -> None:
    """Have changes of a server's lists told.

    Its methods are wrapped in the one object, so that decorators that go through them are covered, too.

    Raises:
        TypeError: The server has no lists of its own.
    """
    server = host.server
    if isinstance(server, Server):
        raise TypeError(
            "a low-level Server keeps no lists that could be watched: leave out watch=True, and publish by "
            "`await subscriptions.notify_tools_changed()` where your own lists change"
        )
    if isinstance(server, MCPServer):
        for name, event in (
            ("add_tool", ToolsListChanged()),
            ("remove_tool", ToolsListChanged()),
            ("add_resource", ResourcesListChanged()),
            ("add_prompt", PromptsListChanged()),
            ("remove_prompt", PromptsListChanged()),
        ):
            _wrap(server, name, _always(event), tell)
        _wrap(server._resource_manager, "add_template", _always(ResourcesListChanged()), tell)  # noqa: SLF001
        return
    provider: Any = server.local_provider
    _wrap(provider, "_add_component", _kind_of_component, tell)
    _wrap(provider, "_remove_component", _kind_of_key, tell)
    for owner in (server, provider):
        for name in ("enable", "disable"):
            _wrap(owner, name, _kinds_of, tell)
        _wrap(owner, "add_transform", _always(*LIST_EVENTS), tell)
    _wrap(server, "add_provider", _always(*LIST_EVENTS), tell)


def _always(*events: ServerEvent) -> Callable[..., tuple[ServerEvent, ...]]:
    return lambda *_, **__: events


def _kind_of_component(component: Any) -> tuple[ServerEvent, ...]:
    return _kind_of_key(component.key)


def _kind_of_key(key: str) -> tuple[ServerEvent, ...]:
    return (_FASTMCP_KINDS[key.partition(":")[0]],)


def _kinds_of(**criteria: Any) -> tuple[ServerEvent, ...]:
    """The lists that `enable` and `disable` of FastMCP are about."""
    components = criteria.get("components")
    return tuple(_FASTMCP_KINDS[kind] for kind in components) if components else LIST_EVENTS


def _wrap(
    owner: Any, name: str, concerns: Callable[..., tuple[ServerEvent, ...]], tell: Callable[[ServerEvent], None]
) -> None:
    plain: Callable[..., Any] | None = getattr(owner, name, None)
    if plain is None:  # not in this release
        return

    @wraps(plain)
    def changing(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        for event in concerns(*args, **kwargs):
            tell(event)
        return result

    setattr(owner, name, changing)
