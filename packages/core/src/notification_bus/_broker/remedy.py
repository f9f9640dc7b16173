"""What a user can do about an error of the operating system on the way to a broker."""

import ssl
from collections.abc import Sequence
from socket import gaierror
from typing import Final

__all__ = ["remedy"]

_NOBODY: Final = "nothing listens there: check host and port, and that the server runs"
_REMEDIES: Final[Sequence[tuple[type[BaseException] | tuple[type[BaseException], ...], str]]] = (
    (
        ssl.SSLCertVerificationError,
        "name the authority of the server's certificate, and use a host name that the certificate has",
    ),
    (ssl.SSLError, "check the port, and whether the server uses TLS: the URL's scheme or options say so"),
    (gaierror, "check the host's name"),
    ((ConnectionRefusedError, FileNotFoundError), _NOBODY),
    (PermissionError, "the operating system does not allow it: check the permissions of the socket or file"),
    (TimeoutError, "the host does not answer: check its address, the port and the firewall, and whether it uses TLS"),
)


def remedy(exc: BaseException, tls_help: str = "") -> str | None:
    """Return half a sentence for the error or what it was raised from; `None` if nothing is known.

    Args:
        exc: As the client raised it.
        tls_help: How TLS is set up for this broker; added where it may be what is wrong.
    """
    seen: list[BaseException] = []
    link: BaseException | None = exc
    while link is not None and link not in seen:
        seen.append(link)
        link = link.__cause__ or link.__context__
    # The innermost error is the operating system's; what wraps it, such as a client's time-out, says less.
    for native in reversed(seen):
        for kinds, text in _REMEDIES:
            if isinstance(native, kinds):
                about_tls = tls_help and isinstance(native, ssl.SSLError | TimeoutError)
                return f"{text}; {tls_help}" if about_tls else text
        if isinstance(native, OSError) and "Connect call failed" in str(native):
            return _NOBODY  # asyncio's error for a name with several addresses
    return None
