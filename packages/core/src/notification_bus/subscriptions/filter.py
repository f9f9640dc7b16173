"""`SubscriptionFilter`, what a client asks for, and `Capabilities`, what a server can push."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from reprlib import Repr
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias, cast, final

from notification_bus.subscriptions._keys import Key
from notification_bus.subscriptions.errors import InvalidFilterError

__all__ = ["Capabilities", "SubscriptionFilter"]

_FLAGS: Final = {
    "toolsListChanged": "tools_list_changed",
    "promptsListChanged": "prompts_list_changed",
    "resourcesListChanged": "resources_list_changed",
}
_URIS: Final = "resourceSubscriptions"
_EXTRA: TypeAlias = Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a server can push. By default all four kinds, and no extension."""

    tools_list_changed: bool = True
    prompts_list_changed: bool = True
    resources_list_changed: bool = True
    resources_subscribe: bool = True
    """Updates of single resources."""

    extensions: frozenset[str] = frozenset()
    """Members of a filter that this library does not know and the server itself serves, such as `"taskIds"`. They are
    acknowledged, nothing else."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFilter:
    """What one stream carries. Immutable, compared by value; empty by default.

    Raises:
        InvalidFilterError: `resource_subscriptions` is a string, or holds something that is not a string.
    """

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: tuple[str, ...] = ()
    """The exact URIs whose updates are carried, in the order given, each once. Any iterable of strings is accepted."""

    extra: _EXTRA = field(default_factory=dict[str, Any], hash=False)
    """Members that this library does not know, unchanged."""

    def __post_init__(self) -> None:
        uris: Any = self.resource_subscriptions
        if isinstance(uris, str) or not isinstance(uris, Iterable):
            raise InvalidFilterError(f"{_URIS} is {_shown(uris)}: give a list of URIs")
        unique = tuple(dict.fromkeys(_checked(cast("Iterable[object]", uris))))
        object.__setattr__(self, "resource_subscriptions", unique)
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read the protocol's filter, as in `params.notifications` of `subscriptions/listen`.

        A member that is `null` counts as absent. Unknown members are kept in `extra`. The registry limits sizes,
        not this.

        Raises:
            InvalidFilterError: It is not an object, a known member is of the wrong type, or a URI cannot be encoded as
                UTF-8.
        """
        if not isinstance(value, Mapping):
            raise InvalidFilterError(
                f"the filter is {_shown(value)}: give an object, as in {{'toolsListChanged': true}}"
            )
        extra = dict(cast("Mapping[str, Any]", value))
        known: dict[str, Any] = {}
        for wire, name in _FLAGS.items():
            flag = extra.pop(wire, None)
            if flag is not None and not isinstance(flag, bool):
                raise InvalidFilterError(f"{wire} is {_shown(flag)}: give true, or leave it out")
            known[name] = bool(flag)
        uris = extra.pop(_URIS, None)
        if uris is not None:
            if not isinstance(uris, list | tuple):
                raise InvalidFilterError(f"{_URIS} is {_shown(uris)}: give an array of URIs, or leave it out")
            known["resource_subscriptions"] = uris
        return cls(**known, extra=extra)

    def to_wire(self) -> dict[str, Any]:
        """Return the protocol's filter, without what is not asked for. A new object at each call."""
        wire: dict[str, Any] = {name: True for name, attribute in _FLAGS.items() if getattr(self, attribute)}
        if self.resource_subscriptions:
            wire[_URIS] = list(self.resource_subscriptions)
        return {**wire, **self.extra}

    def narrow(self, capabilities: Capabilities) -> Self:
        """Return the accepted filter: what was asked for and can be pushed. The rest is dropped, not refused.

        A member of `extra` stays only if `capabilities.extensions` names it: to acknowledge it is to promise it.
        """
        can = capabilities
        return replace(
            self,
            tools_list_changed=self.tools_list_changed and can.tools_list_changed,
            prompts_list_changed=self.prompts_list_changed and can.prompts_list_changed,
            resources_list_changed=self.resources_list_changed and can.resources_list_changed,
            resource_subscriptions=self.resource_subscriptions if can.resources_subscribe else (),
            extra={name: value for name, value in self.extra.items() if name in can.extensions},
        )

    def intersect(self, other: "SubscriptionFilter") -> Self:
        """Return what both filters ask for: never more than this one.

        Members of `extra` stay if both have them, with this filter's value.
        """
        theirs = frozenset(other.resource_subscriptions)
        return replace(
            self,
            tools_list_changed=self.tools_list_changed and other.tools_list_changed,
            prompts_list_changed=self.prompts_list_changed and other.prompts_list_changed,
            resources_list_changed=self.resources_list_changed and other.resources_list_changed,
            resource_subscriptions=tuple(uri for uri in self.resource_subscriptions if uri in theirs),
            extra={name: value for name, value in self.extra.items() if name in other.extra},
        )

    @property
    def is_empty(self) -> bool:
        """True if the filter admits no notification. `extra` does not count."""
        return not self.keys()

    def keys(self) -> tuple[Key, ...]:
        """Return the keys of a stream with this filter: the kinds of lists by number, then the URIs."""
        flags = (self.tools_list_changed, self.prompts_list_changed, self.resources_list_changed)
        return (*(kind for kind, asked in enumerate(flags) if asked), *self.resource_subscriptions)


def _checked(uris: Iterable[object]) -> Iterable[str]:
    for position, uri in enumerate(uris):
        if not isinstance(uri, str):
            raise InvalidFilterError(f"{_URIS}[{position}] is {_shown(uri)}: give the URI as a string")
        text = str.__str__(uri)
        if not text.isascii():
            # Rejected here it is the client's error; while writing the acknowledgment it would be the server's.
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidFilterError(
                    f"{_URIS}[{position}] holds a lone surrogate, which UTF-8 cannot carry"
                ) from None
        yield text


def _shown(value: object) -> str:
    """Return a value as an error shows it to its sender: recognisable, and shortened."""
    if value is None:
        return "null"
    short = Repr()
    short.maxstring, short.maxother, short.maxlist, short.maxdict, short.maxlevel = 60, 60, 2, 2, 2
    return f"{type(value).__name__} {short.repr(value)}"
