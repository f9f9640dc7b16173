"""One broker as the common tests see it: how to build a bus on it, and what its server says of the bus's sessions."""

from dataclasses import dataclass
from typing import Any

from notification_bus.broker import BrokerBus
from notification_bus.testing import FaultProxy
from tests.brokers._base import Kind, Server
from tests.brokers._docker import DockerServer
from tests.brokers._listener import QUICK
from tests.brokers._local import LocalServer
from tests.brokers._witness import witness

__all__ = ["Broker"]


@dataclass(frozen=True)
class Broker:
    """A server, and what differs from kind to kind in tests that state the same outcome for all of them."""

    server: Server

    @property
    def kind(self) -> Kind:
        return self.server.kind

    @property
    def connections(self) -> int:
        """How many connections a bus holds."""
        return 1 if self.kind == "nats" else 2

    @property
    def own(self) -> LocalServer | DockerServer:
        """The server, known to be one that may be killed and frozen."""
        assert isinstance(self.server, LocalServer | DockerServer)
        return self.server

    def bus(self, channel: str, through: FaultProxy | None = None, **options: Any) -> BrokerBus:
        """A bus with quick options whose sessions bear the channel's name, over a proxy if one is given."""
        url = self.server.url if through is None else self.server.via(through.host, through.port)
        joined = "&" if "?" in url else "?"
        options = QUICK | options
        match self.kind:
            case "redis":
                from notification_bus_redis import RedisBus

                return RedisBus(f"{url}{joined}client_name={channel}", channel=channel, **options)
            case "nats":
                from notification_bus_nats import NatsBus

                return NatsBus(url, channel=channel, **options)
            case "postgres":
                from notification_bus_postgres import PostgresBus

                return PostgresBus(f"{url}{joined}application_name={channel}", channel=channel, **options)

    async def sessions(self, channel: str, half: str = "") -> list[int]:
        """The ids of the bus's sessions on the server: of both halves, or of "listen" or "publish"."""
        match self.kind:
            case "redis":
                async with witness("redis", self.server.url, channel) as raw:
                    clients: list[dict[str, str]] = await raw.client.client_list()  # pyright: ignore[reportUnknownMemberType]
                mine = [client for client in clients if client["name"] == channel]
                return [int(c["id"]) for c in mine if not half or (half == "listen") == (int(c["sub"]) > 0)]
            case "postgres":
                async with witness("postgres", self.server.url, channel) as raw:
                    rows = await raw.connection.fetch(
                        "SELECT pid FROM pg_stat_activity WHERE starts_with(application_name, $1)", f"{channel}:{half}"
                    )
                return [int(row["pid"]) for row in rows]
            case "nats":
                raise NotImplementedError("a NATS server lists its sessions and ends them for its system account only")

    async def end_sessions(self, channel: str, half: str = "") -> None:
        """Let the server end the bus's sessions, or those of one half."""
        for session in await self.sessions(channel, half):
            if self.kind == "redis":
                async with witness("redis", self.server.url, channel) as raw:
                    await raw.client.client_kill_filter(_id=str(session))  # pyright: ignore[reportUnknownMemberType]
            else:
                async with witness("postgres", self.server.url, channel) as raw:
                    await raw.connection.execute("SELECT pg_terminate_backend($1)", session)
