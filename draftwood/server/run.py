"""Runs the application on a socket, and ends it in order."""

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn

from draftwood.errors import DraftwoodError
from draftwood.files import reason
from draftwood.server.app import application
from draftwood.server.service import Service

if sys.platform != "win32":
    import resource

logger = logging.getLogger(__name__)

_KEEP_ALIVE = 75
"""Seconds for which an idle connection is kept; longer than the pools of common clients."""

_LAST_BYTES = 20
"""Seconds in which clients must read the last answers of a server that stops."""


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket at an address, which does not listen yet.

    Raises:
        DraftwoodError: the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise DraftwoodError(
            f"cannot listen at {host}, port {port}: {reason(error)} (--host and --port name "
            "another place; port 0 is any that is free)"
        ) from error
    return found


def url_of(bound: socket.socket) -> str:
    """The URL of the API on a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


class Server(uvicorn.Server):
    """A server that drains: at the first signal no new requests are taken, and those held go on.

    When they have ended it stops; at a second signal it stops at once.

    If the engine's thread has died, the server stops as well.

    Args:
        service: what is served.
        started: called once connections are accepted.
        access_log: log a line for each request.

    Attributes:
        engine_died: whether that is why it stops.
    """

    def __init__(
        self,
        service: Service,
        *,
        started: Callable[[], None] = lambda: None,
        access_log: bool = False,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application(service),
                lifespan="off",
                log_config=None,
                access_log=access_log,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_LAST_BYTES,
                ws="none",
            )
        )
        self._late = LateRequests(service.settings.headers_within)
        self._service = service
        self._on_started = started
        self._signals = 0
        self.engine_died = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Note a signal; it may come at any place of the code, even where a lock is held."""
        self._signals += 1
        if self._signals > 1:  # on_tick is no longer called where clients read the last answers
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop now; asked ten times a second."""
        thread = self._service.thread
        if self._signals and not thread.draining:
            if thread.held:
                logger.warning("stopping when %d requests have ended", thread.held)
            else:
                logger.info("stopping")
            thread.drain()
        if not counter % 10:
            for connection in self._late.found(self.server_state.connections):
                connection.shutdown()
        if not thread.alive and not self.engine_died:
            logger.critical("stopping, because the engine has died")
            self.engine_died = self.should_exit = True
        if thread.draining and not thread.held:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for clients to read the last answers; a second signal cuts their connections."""
        cut = asyncio.create_task(self._cut_connections())
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    async def _cut_connections(self) -> None:
        # From Python 3.12 on, a socket that listened is closed when its last connection is.
        while not self.force_exit:
            await asyncio.sleep(0.1)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class LateRequests:
    """Finds connections whose client does not send a whole request: uvicorn waits for ever.

    A connection that is idle after a response does not count; uvicorn closes it itself.

    Args:
        within: seconds in which the headers of a request must come.
        clock: seconds.
    """

    def __init__(self, within: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within = within
        self._clock = clock
        self._since: dict[Any, tuple[Any, float]] = {}  # last request, and when it was looked at

    def found(self, connections: Iterable[Any]) -> list[Any]:
        """Connections that have waited for too long; ask once a second."""
        now, since = self._clock(), self._since
        self._since = {each: _waits_since(each, since, now) for each in connections if waits(each)}
        return [each for each, (_, begun) in self._since.items() if now - begun > self._within]


def waits(connection: Any) -> bool:
    """Whether a connection of uvicorn has no request, or only the beginning of one."""
    last = connection.cycle
    return last is None or (last.response_complete and connection.timeout_keep_alive_task is None)


def _waits_since(
    connection: Any, since: Mapping[Any, tuple[Any, float]], now: float
) -> tuple[Any, float]:
    last, begun = since.get(connection, (None, now))
    return connection.cycle, begun if last is connection.cycle else now


def raise_file_limit() -> None:
    """Let this process open as many files as it may: each connection is one.

    Many systems allow 1,024 unless a program asks for more.
    """
    if sys.platform != "win32":  # it has no such limit
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with suppress(OSError, ValueError):  # macOS has another limit below this one
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(server: Server, service: Service, bound: socket.socket) -> int:
    """Serve until a signal ends it; returns the exit code: 1 if the engine has died."""
    raise_file_limit()
    try:
        server.run([bound])
    finally:
        service.close()
        bound.close()
    return 1 if server.engine_died else 0
