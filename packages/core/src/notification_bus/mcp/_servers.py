"""The servers that listen streams can be served on: where the handlers go, what each can push, and its own lists."""

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types.version import LATEST_MODERN_VERSION

from notification_bus.notification import BusNotification
from notification_bus.subscriptions import Capabilities

__all__ = ["NarrowAnswers", "can_push", "low_level_of", "watch_lists", "with_flags"]

_TOOLS: Final = BusNotification.tools_list_changed()
_PROMPTS: Final = BusNotification.prompts_list_changed()
_RESOURCES: Final = BusNotification.resources_list_changed()
_LISTS: Final = (_TOOLS, _PROMPTS, _RESOURCES)
_FASTMCP_KINDS: Final = {"tool": _TOOLS, "resource": _RESOURCES, "template": _RESOURCES, "prompt": _PROMPTS}


def low_level_of(server: object) -> Server[Any] | None:
    """Return the SDK's low-level server inside a server, or the server itself; `None` for anything else."""
    if isinstance(server, Server):
        return cast("Server[Any]", server)
    known: Any = server
    if isinstance(server, MCPServer):
        # The SDK's migration guide names this attribute; the public one exists only after an HTTP app was built.
        return cast("Server[Any]", known._lowlevel_server)  # noqa: SLF001
    fastmcp: Any = sys.modules.get("fastmcp")
    if fastmcp is not None and isinstance(server, fastmcp.FastMCP):
        return cast("Server[Any]", known._mcp_server)  # noqa: SLF001
    return None


def can_push(server: Server[Any], option: Capabilities, protocol_version: str = LATEST_MODERN_VERSION) -> Capabilities:
    """Return what can be pushed to a client: what the server has, as far as the option `capabilities` allows it."""
    said = server.get_capabilities(protocol_version=protocol_version)
    tools, prompts, resources = said.tools, said.prompts, said.resources
    return Capabilities(
        tools_list_changed=option.tools_list_changed and tools is not None and tools.list_changed is True,
        prompts_list_changed=option.prompts_list_changed and prompts is not None and prompts.list_changed is True,
        resources_list_changed=option.resources_list_changed
        and resources is not None
        and resources.list_changed is True,
        resources_subscribe=option.resources_subscribe and resources is not None and resources.subscribe is True,
        extensions=option.extensions,
    )


class NarrowAnswers:
    """A middleware by which a server promises no more than the option `capabilities` allows.

    A middleware, since over stdio and in memory the SDK computes its answer to `initialize` before it enters the
    lifespan, which is where this is put in place.

    Args:
        option: What the user lets the server push.
        methods: The requests whose answers are narrowed: `initialize`, `server/discover`.
    """

    def __init__(self, option: Capabilities, methods: frozenset[str]) -> None:
        self._methods = methods
        flags = {
            "tools": {"listChanged": option.tools_list_changed},
            "prompts": {"listChanged": option.prompts_list_changed},
            "resources": {"listChanged": option.resources_list_changed, "subscribe": option.resources_subscribe},
        }
        self._denied = {
            kind: {flag: False for flag, can in of_kind.items() if not can} for kind, of_kind in flags.items()
        }

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method not in self._methods or result is None:
            return result
        return with_flags(result, self._denied)


def with_flags(answer: Any, flags: Mapping[str, Mapping[str, bool]]) -> dict[str, Any]:
    """Return an answer to `initialize` or `server/discover` with flags set in the capabilities that it names."""
    wire: dict[str, Any] = (
        dict(cast("Mapping[str, Any]", answer))
        if isinstance(answer, Mapping)
        else answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    )
    said: dict[str, Any] = dict(wire.get("capabilities", {}))
    for kind, of_kind in flags.items():
        if kind in said:
            said[kind] = {**said[kind], **of_kind}
    return {**wire, "capabilities": said}


def watch_lists(server: object, tell: Callable[[BusNotification], None]) -> None:
    """Have changes of a server's own lists told.

    Its methods are wrapped on the one object, so that the decorators that go through them are covered, too.

    Raises:
        TypeError: The server has no lists of its own.
    """
    if isinstance(server, Server):
        raise TypeError(
            "a low-level Server keeps no lists that could be watched: leave out watch=True, and publish by "
            "`await subscriptions.notify_tools_changed()` where your own lists change"
        )
    known: Any = server
    if isinstance(server, MCPServer):
        for name, notification in (
            ("add_tool", _TOOLS),
            ("remove_tool", _TOOLS),
            ("add_resource", _RESOURCES),
            ("add_prompt", _PROMPTS),
            ("remove_prompt", _PROMPTS),
        ):
            _wrap(server, name, _always(notification), tell)
        _wrap(known._resource_manager, "add_template", _always(_RESOURCES), tell)  # noqa: SLF001
        return
    provider = known.local_provider
    _wrap(provider, "_add_component", _kind_of_component, tell)
    _wrap(provider, "_remove_component", _kind_of_key, tell)
    for owner in (server, provider):
        for name in ("enable", "disable"):
            _wrap(owner, name, _kinds_of, tell)
        _wrap(owner, "add_transform", _always(*_LISTS), tell)
    _wrap(server, "add_provider", _always(*_LISTS), tell)


def _always(*notifications: BusNotification) -> Callable[..., tuple[BusNotification, ...]]:
    return lambda *_, **__: notifications


def _kind_of_component(component: Any) -> tuple[BusNotification, ...]:
    return _kind_of_key(component.key)


def _kind_of_key(key: str) -> tuple[BusNotification, ...]:
    return (_FASTMCP_KINDS[key.partition(":")[0]],)


def _kinds_of(**criteria: Any) -> tuple[BusNotification, ...]:
    """Return the lists that a call of FastMCP's `enable` or `disable` is about."""
    components = criteria.get("components")
    return tuple(_FASTMCP_KINDS[kind] for kind in components) if components else _LISTS


def _wrap(
    owner: Any, name: str, concerns: Callable[..., tuple[BusNotification, ...]], tell: Callable[[BusNotification], None]
) -> None:
    plain: Callable[..., Any] | None = getattr(owner, name, None)
    if plain is None:  # not in this release
        return

    @wraps(plain)
    def changing(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        for notification in concerns(*args, **kwargs):
            tell(notification)
        return result

    setattr(owner, name, changing)
