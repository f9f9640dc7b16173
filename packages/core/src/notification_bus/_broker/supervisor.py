"""The one place that reconnects: it makes connections one after the other, and runs a session on each."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from notification_bus._backoff import Backoff
from notification_bus._broker.ledger import Ledger
from notification_bus._broker.liveness import Peers
from notification_bus._broker.session import Session
from notification_bus._loops import BackgroundTask
from notification_bus.connection import BrokerConnection

__all__ = ["Supervisor"]

_CAUSES: Final = 8
"""Different causes that are logged in one outage, each once."""


class Supervisor:
    """Runs a bus from its start to its stop. Building it starts it, in the running event loop."""

    def __init__(
        self,
        ledger: Ledger,
        logger: logging.Logger,
        connect: Callable[[], Awaitable[BrokerConnection]],
        describe: Callable[[BaseException | None], str],
    ) -> None:
        self._ledger = ledger
        self._logger = logger
        self._connect = connect
        self._describe = describe
        self._backoff = Backoff(ledger.options.backoff_cap)
        self._peers = Peers(ledger.options.probe_interval)
        self._session: Session | None = None
        self._connections = 0
        self._reported: dict[str, str] = {}
        self._changed = anyio.Event()
        self._flushed = False
        self.last_exception: BaseException | None = None
        self._task = BackgroundTask(self._supervise, name=f"supervisor of {ledger.name}")

    @property
    def connected(self) -> bool:
        """True while a connection is up: the broker has confirmed its subscription and nothing has failed since."""
        return self._session is not None

    @property
    def causes(self) -> str:
        """The causes of this outage, each once and the last one last: with several hosts, each has its own."""
        last = self._ledger.counters.last_error
        return "; ".join([*(cause for cause in self._reported.values() if cause != last), *([last] if last else [])])

    async def wait_changed(self) -> None:
        """Wait until `connected` changes, or the bus begins to stop."""
        await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def stop(self, limit: float) -> None:
        """Send what is queued, tell the peers, and end everything within `limit` seconds, in any state."""
        deadline = anyio.current_time() + limit
        self._announce()
        if self._session is not None:
            # Half of the time to send what is queued; the other half to close a connection that does not answer.
            with anyio.move_on_after(limit / 2):
                self._flushed = await self._session.flush()
        self._task.cancel()
        with anyio.move_on_after(max(0.1, deadline - anyio.current_time())):
            await self._task.wait()
        if not self._task.done:
            self._logger.warning("%s: a connection did not close within %g s; left to itself", self._ledger.name, limit)

    async def _supervise(self) -> None:
        async with anyio.create_task_group() as leftovers:
            while True:
                try:
                    connection = await self._attempt()
                    if connection is not None:
                        try:
                            await self._live(connection)
                        finally:
                            # Not awaited: closing a dead link can take long, and the next attempt must not wait for it.
                            leftovers.start_soon(self._discard, connection)
                except Exception as exc:
                    # A bug here or in an adapter's hook. If the supervisor ended, the bus would stay silent for ever.
                    self._logger.exception("%s: unexpected error in its supervisor", self._ledger.name)
                    self.last_exception = exc
                await anyio.sleep(self._backoff.next())

    async def _attempt(self) -> BrokerConnection | None:
        """Try once to connect, in a task of its own: a cancellation that escapes a client must not end this one."""
        made: list[BrokerConnection] = []
        problem: BaseException | None = None
        limit = self._ledger.options.probe_timeout

        async def attempt() -> None:
            nonlocal problem
            try:
                with anyio.fail_after(limit):
                    made.append(await self._connect())
            except Exception as exc:
                problem = exc

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt)
        except BaseException:
            if made:
                await self._discard(made[0])
            raise
        if made:
            return made[0]
        if isinstance(problem, TimeoutError) and not str(problem):
            problem = TimeoutError(f"no answer within {limit:g} s")
        self._report(problem, "cannot connect")
        return None

    async def _live(self, connection: BrokerConnection) -> None:
        """Run one connection to its end."""
        ledger = self._ledger
        self._connections += 1
        if self._connections > 1:
            ledger.counters["reconnects"] += 1
        # Before anything that the new connection delivers: what was published in between is lost.
        if ledger.fanout.gap():
            ledger.counters["gaps"] += 1
        ledger.debt.connected()
        self._peers.connected(anyio.current_time())
        session = self._session = Session(ledger, connection, self._peers, self._proven)
        ledger.counters.mark(connected=True)
        self._announce()
        began = anyio.current_time()
        try:
            cause = await session.run()
        finally:
            self._session = None
            if not self._flushed:
                ledger.in_doubt(session.in_doubt)
            ledger.counters.mark(connected=False)
            self._announce()
        if anyio.current_time() - began > ledger.options.probe_timeout and session.refused:
            # The broker refuses this user's probes, so no probe can prove the connection; that it lasted is enough.
            self._recovered()
        self._report(cause, "lost the connection")

    def _proven(self) -> None:
        """Note that a probe came back: the connection works in both directions."""
        self._recovered()
        self._ledger.floods.flush()

    def _recovered(self) -> None:
        # Not on connecting: a broker that confirms and then stays silent would be retried in a tight loop, and logged
        # each time.
        self._backoff.reset()
        if self._reported:
            self._reported.clear()
            self._logger.info("%s works again", self._ledger.name)

    async def _discard(self, connection: BrokerConnection) -> None:
        with anyio.move_on_after(self._ledger.options.close_timeout / 2, shield=True):
            try:
                await connection.aclose()
            except Exception as exc:
                self._logger.debug("%s: closing a connection failed: %s", self._ledger.name, self._describe(exc))

    def _report(self, exc: BaseException | None, what: str) -> None:
        """Log a cause, once in an outage however often it is met."""
        self.last_exception = exc
        text = self._describe(exc)
        self._ledger.counters.last_error = f"{what}: {text}"
        if text not in self._reported and len(self._reported) < _CAUSES:
            self._reported[text] = f"{what}: {text}"
            self._logger.warning("%s %s; trying again until it works: %s", self._ledger.name, what, text)
