"""What a user can do about an error of nats-py's or of the network."""

import ssl
from socket import gaierror
from typing import Final

__all__ = ["remedy"]

_STRANGE: Final = (
    "expecting info",
    "json parse error",
    "separator is not found",  # a first line that never ends
    "route port",
    "websocket",
    "server handshake",
)
"""What nats-py and what it stands on say of a peer that speaks something else."""


def remedy(exc: BaseException, grant: str) -> str | None:
    """Half a sentence, or `None` where nothing is known.

    Args:
        exc: What went wrong.
        grant: The permissions that the bus needs.
    """
    text = str(exc).lower()
    if isinstance(exc, PermissionError) and "allowed to" in text:
        return f"grant it: {grant}"
    if "authorization violation" in text or "authorization failed" in text or "authentication" in text:
        return "check user and password, token, NKey or credentials file, whichever this server asks for"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return (
            "name the authority of the server's certificate with tls_ca_file or tls, and use a host name that stands "
            "in the certificate, or name that with tls_hostname"
        )
    if isinstance(exc, ssl.SSLError):
        return "the server asks for another kind of TLS: check its port, the scheme, and whether it wants a certificate"
    if "offers no tls" in text:
        return "use nats:// and no option for TLS, or turn on TLS in the server"
    if isinstance(exc, gaierror):
        return "check the host's name"
    if isinstance(exc, ConnectionRefusedError) or "connect call failed" in text or "cannot connect to host" in text:
        return "nothing listens there: check host and port, and that the server runs"
    if any(part in text for part in _STRANGE):
        return "what answers there is no NATS server, or not on this port: clients use 4222 by default"
    if "maximum" in text and "connections" in text:
        return "raise max_connections in the server's configuration, or look for who holds them"
    if "during the handshake" in text:
        return "its log says why: one connection too many, for example"
    if isinstance(exc, TimeoutError):
        return (
            "either nothing is reachable there, or what answers is no NATS server, or one that begins with TLS and "
            "needs tls_handshake_first=true"
        )
    return None
