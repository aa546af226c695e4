"""A real server on this machine, and who asks it."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cutaway.serve.engine import Engine
from cutaway.serve.server import Door, Server, open_door


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    @property
    def kind(self) -> str:
        """That of the error it ends with."""
        return self.last["error"]["kind"]


@dataclass(frozen=True)
class Asking:
    """Who asks a server at a port of this machine."""

    port: int

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, None, headers)

    def post(self, path: str, body: object, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", f"/api/v1/{path}", data, {"content-type": "application/json", **headers})

    def ask(self, question: str, model: str, text: str | None = None, **more: Any) -> Reply:
        return self.post(f"answers/{question}", {"model": model, "text": text, **more})

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        reply = Reply(response.status, found, response.read())
        connection.close()
        return reply

    def open(self, head: bytes) -> socket.socket:
        """A connection on which these bytes were sent."""
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        opened.sendall(head)
        return opened

    def raw(self, data: bytes) -> bytes:
        """All that comes back for bytes that may be no HTTP at all."""
        with self.open(data) as opened:
            found = b""
            try:
                while more := opened.recv(65536):
                    found += more
            except ConnectionResetError:
                pass
            return found

    def begin(self, question: str, **body: Any) -> socket.socket:
        """A question that is asked, its connection open."""
        data = json.dumps(body).encode()
        head = (
            f"POST /api/v1/answers/{question} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        return self.open(head.encode() + data)

    def health(self) -> dict[str, Any]:
        return json.loads(self.get("/api/v1/health").body)

    def idle(self, seconds: float = 2.0) -> bool:
        """Whether nothing runs or waits any more within that time."""
        due = time.monotonic() + seconds
        while time.monotonic() < due:
            if (found := self.health())["running"] == found["waiting"] == 0:
                return True
            time.sleep(0.02)
        return False


@dataclass(frozen=True)
class Serving(Asking):
    """A server that runs in this process."""

    server: Server
    engine: Engine
    door: Door


def started(engine: Engine, lan: bool = False, **more: Any) -> Serving:
    """A server in a thread, its models opened."""
    door = open_door("127.0.0.1", 0, lan)
    server = Server(engine, door, **more)
    threading.Thread(target=server.go, daemon=True).start()
    found = Serving(door.port, server, engine, door)
    due = time.monotonic() + 120
    while "loading" in {each.state for each in engine.models.values()}:
        assert time.monotonic() < due, "the models were not opened in time"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def serving(translator: Path, poet: Path, masked: Path, headless: Path) -> Iterator[Serving]:
    """The bundled models and tiny ones: `translator0`, `poet0`, `masked0`, `headless0`."""
    bundled = ["translate-zh-en", "poet-zh", "bert-tiny"]
    found = started(Engine([*bundled, *map(str, (translator, poet, masked, headless))]))
    yield found
    found.server.should_exit = True
