"""A server from its socket to its end: where it listens, who may come, how it is stopped."""

import asyncio
import errno
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cutaway.errors import CutawayError, reason
from cutaway.serve.app import UI, application
from cutaway.serve.engine import Engine
from cutaway.serve.guard import CODE, Guard

PORT = 8765
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_HEAD = 65_536  # bytes of a request's head
HEAD_SECONDS = 15.0  # that it has to come in


@dataclass(frozen=True)
class Door:
    """Where a server listens: its socket, the names that it answers to, and the access code of who may come, if any."""

    socket: socket.socket
    port: int
    hosts: frozenset[str]
    code: str | None
    address: str  # what to open, with the code


def open_door(
    host: str | None = None, port: int | None = None, lan: bool = False, names: Sequence[str] = ()
) -> Door:
    """Listen on `host` (None: on this machine alone, or with `lan` on all its interfaces) and `port` (None: 8765, or a
    free one where that is taken). `names` are further names that the machine goes by.

    Raises CutawayError for an address that others can reach without `lan`, which demands an access code, and for one
    that cannot be listened on.
    """
    host = host or ("0.0.0.0" if lan else LOOPBACK[0])
    if not lan and not _is_loopback(host):
        raise CutawayError(
            "--host {host}: others on the network could reach it; add --lan, which makes a link with an access code "
            "that they need, or leave --host out",
            host=host,
        )
    for each in names:
        if not each or "/" in each or each.isspace():
            raise CutawayError("--allow-host {name}: expected a name, or name:port", name=each)
    opened = _listening(host, port)
    bound: int = opened.getsockname()[1]
    code = secrets.token_urlsafe(24) if lan else None
    own = [f"{name}:{bound}" for name in (*LOOPBACK, *(_own_names(host) if lan else [_bracketed(host)]))]
    shown = _bracketed(_outer_address() if host in ("0.0.0.0", "::") else host)
    query = "" if code is None else f"?{CODE}={code}"
    hosts = frozenset(map(str.lower, (*own, *names)))
    return Door(opened, bound, hosts, code, f"http://{shown}:{bound}/{query}")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, wanted), family=family, backlog=256)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise CutawayError(
                "--host {host} --port {port}: cannot be listened on: {reason}; give another --port, or none",
                host=host,
                port=wanted,
                reason=reason(error),
            ) from error
        except OverflowError:
            break
    raise CutawayError("--port {port}: expected 0 to 65535", port=port)


def _own_names(host: str) -> list[str]:
    name = socket.gethostname()
    return [_bracketed(host), _bracketed(_outer_address()), name, f"{name}.local"]


def _outer_address() -> str:
    """The address by which others on the network reach this machine; no packet is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        # not on any network
        except OSError:
            return LOOPBACK[0]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Connection(H11Protocol):
    """A connection that is closed where the head of a request does not come whole in time, however slowly it comes."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server of an engine's models behind a door. SIGINT and SIGTERM end it, with a word to who waits."""

    def __init__(
        self, engine: Engine, door: Door, started: Callable[[], None] = lambda: None,
        frames: str = "'none'", told: bool = False, ui: Path = UI,
    ):  # fmt: skip
        app = Guard(application(engine, ui), door.hosts, door.code, f"cutaway-{door.port}", frames, told)
        super().__init__(
            uvicorn.Config(
                app, http=Connection, ws="none", lifespan="off", log_config=None, log_level="critical",
                access_log=False,
                server_header=False, h11_max_incomplete_event_size=MOST_HEAD, timeout_graceful_shutdown=1,
                timeout_keep_alive=60,
            )
        )  # fmt: skip
        self.engine, self.door, self._started = engine, door, started
        self.ended_by: int | None = None

    def go(self) -> None:
        """Serve until a signal, or `should_exit`, ends it."""
        asyncio.run(self.serve([self.door.socket]))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()
        self.engine.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.engine.close()
        await super().shutdown(sockets)

    # The caller says how the process ends; uvicorn would raise the signal again. Only a main thread hears signals.
    @contextmanager
    def capture_signals(self) -> "Iterator[None]":
        main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGTERM) if main else ()
        before = {each: signal.signal(each, self._end) for each in signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _end(self, number: int, _: object) -> None:
        self.ended_by, self.should_exit = number, True


def serve(models: Sequence[str], door: Door, started: Callable[[], None], told: bool = False) -> NoReturn:
    """Serve models until SIGINT (exit code 130) or SIGTERM (0) ends the process. `started` is called once pages can be
    had."""
    engine = Engine(models)
    server = Server(engine, door, started, told=told)
    server.go()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads may be in the midst of an import or of a product of matrices, and torch takes a second to be unloaded.
    os._exit(130 if server.ended_by == signal.SIGINT else 0)
