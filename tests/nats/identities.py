"""NKeys and JWTs for servers of the tests, as `nsc` would make them."""

import base64
import hashlib
import json
import os
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, cast

__all__ = ["Key", "Operator", "new_key"]

Kind = Literal["operator", "account", "user"]


@dataclass(frozen=True)
class Key:
    """An NKey pair."""

    public: str
    seed: str
    pair: Any

    def jwt(self, kind: Kind, subject: str, **claims: object) -> str:
        """A JWT about `subject`, signed by this key."""
        body: dict[str, object] = {
            "iat": int(time.time()),
            "iss": self.public,
            "sub": subject,
            "name": kind,
            "nats": {"type": kind, "version": 2, **claims},
        }
        body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
        signed = f"{_encode({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_encode(body)}"
        return f"{signed}.{_base64(cast('bytes', self.pair.sign(signed.encode())))}"


def new_key(kind: Kind) -> Key:
    nkeys: Any = import_module("nkeys")  # optional, and without types
    prefixes = {
        "operator": nkeys.PREFIX_BYTE_OPERATOR,
        "account": nkeys.PREFIX_BYTE_ACCOUNT,
        "user": nkeys.PREFIX_BYTE_USER,
    }
    seed: Any = nkeys.encode_seed(os.urandom(32), prefixes[kind])
    pair: Any = nkeys.from_seed(bytearray(seed))
    return Key(pair.public_key.decode(), bytes(seed).decode(), pair)


class Operator:
    """An operator with one account: the configuration of a server that trusts it, and credentials of its users."""

    def __init__(self) -> None:
        self._operator = new_key("operator")
        self._account = new_key("account")

    @property
    def config(self) -> str:
        limits = dict.fromkeys(("subs", "conn", "leaf", "imports", "exports", "data", "payload"), -1)
        account = self._operator.jwt("account", self._account.public, limits={**limits, "wildcards": True})
        operator = self._operator.jwt("operator", self._operator.public)
        return f"operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {self._account.public}: {account} }}\n"

    def credentials(self) -> str:
        """A new user's credentials file."""
        user = new_key("user")
        jwt = self._account.jwt("user", user.public, pub={}, sub={}, subs=-1, data=-1, payload=-1)
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )


def _encode(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
