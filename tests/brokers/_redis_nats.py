"""Local Redis (or Valkey) and NATS: one process each, told everything on its command line."""

from collections.abc import Sequence

from tests.brokers._local import LocalServer

__all__ = ["NatsServer", "RedisServer"]


class RedisServer(LocalServer, kind="redis"):
    def _prepare(self) -> None: ...

    def _command(self) -> Sequence[str]:
        ports = ["--port", str(self.port)]
        if self.tls is not None:
            files_ = ["--tls-cert-file", str(self.tls.cert), "--tls-key-file", str(self.tls.key)]
            ports = ["--port", "0", "--tls-port", str(self.port), *files_, "--tls-auth-clients", "no"]
            ports += ["--tls-ca-cert-file", str(self.tls.ca)]
        password = [] if self.password is None else ["--requirepass", self.password]
        memory = ["--save", "", "--appendonly", "no"]
        place = ["--bind", self.host, "--dir", str(self._folder), "--protected-mode", "no"]
        return [str(self._program), *place, *ports, *memory, *password, *self._config.get("args", ())]


class NatsServer(LocalServer, kind="nats"):
    def _prepare(self) -> None:
        text = self._config.get("text", "")
        if self.password is not None:
            text += f"\nauthorization {{ user: bus, password: {_quoted(self.password)} }}\n"
        if self.tls is not None:
            text += f"\ntls {{ cert_file: {_quoted(str(self.tls.cert))}, key_file: {_quoted(str(self.tls.key))} }}\n"
        (self._folder / "nats.conf").write_text(text, "utf-8")

    def _command(self) -> Sequence[str]:
        place = ["--addr", self.host, "--port", str(self.port), "--config", str(self._folder / "nats.conf")]
        return [str(self._program), *place, *self._config.get("args", ())]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
