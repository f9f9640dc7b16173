"""What identifies the bus to a server, read anew for each connection: files may have been renewed meanwhile."""

import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nats.aio.client import RawCredentials

from notification_bus import BusURLError

__all__ = ["CredentialsFile", "read_credentials", "read_seed", "tls_from_files"]

CredentialsFile = str | os.PathLike[str] | RawCredentials

_JWT: Final = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s")
_SEED: Final = re.compile(r"-+BEGIN USER NKEY SEED-+\s+(\S+)")


def read_credentials(source: CredentialsFile) -> RawCredentials:
    """The credentials in a form that nats-py reads.

    nats-py looks for the parts of the file in an endless loop that stops the whole program where one is missing.

    Raises:
        ValueError: A part is missing.
        OSError: The file cannot be read.
    """
    text = str(source) if isinstance(source, RawCredentials) else Path(source).read_text("utf-8", "replace")
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        where = "the credentials" if isinstance(source, RawCredentials) else f"the credentials file {os.fspath(source)}"
        raise ValueError(f"{where} must hold a NATS USER JWT and a USER NKEY SEED, as `nsc generate creds` writes them")
    clean = (
        f"-----BEGIN NATS USER JWT-----\n{jwt[1]}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed[1]}\n------END USER NKEY SEED------\n"
    )
    return RawCredentials(clean)


def read_seed(path: str | os.PathLike[str]) -> str:
    """The seed in a file.

    Raises:
        OSError: The file cannot be read.
    """
    return Path(path).read_text("utf-8", "replace").strip()


def tls_from_files(ca: str | None, cert: str | None, key: str | None) -> Callable[[], ssl.SSLContext] | None:
    """How to make a TLS context from PEM files; `None` where there are none.

    Raises:
        BusURLError: One of them cannot be used.
    """
    if key and not cert:
        raise BusURLError("tls_key_file needs a tls_cert_file: the key is that of the certificate")
    if not ca and not cert:
        return None

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
        return context

    for path in filter(None, (ca, cert, key)):
        try:
            Path(path).read_bytes()
        except OSError as exc:
            raise BusURLError(f"a file for TLS cannot be read: {exc}") from None
    try:
        make()
    except ssl.SSLError as exc:
        raise BusURLError(
            f"the files for TLS ({', '.join(filter(None, (ca, cert, key)))}) are not PEM: {exc}"
        ) from None
    return make
