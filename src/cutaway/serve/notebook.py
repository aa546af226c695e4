"""The explorer in a cell of a notebook, by a server in a thread of this process."""

import threading
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from cutaway.errors import CutawayError
from cutaway.serve.engine import Engine
from cutaway.serve.server import Server, open_door
from cutaway.words import say, told
from cutaway.zoo import TRANSLATOR

# Pages that may show the explorer in a frame: notebooks of this machine, and those of VS Code.
NOTEBOOKS = "http://localhost:* http://127.0.0.1:* vscode-webview:"
STARTING = 30.0  # seconds
_RUNNING: dict[str, Server] = {}  # by the model's name or path
_STARTING = threading.Lock()


class Explorer:
    """The page of one model. A notebook shows it in the cell, and a prompt its address."""

    def __init__(self, server: Server, model: str, text: str | None, height: int):
        asked = {"m": model} | ({} if text is None else {"text": text})
        self.address = f"{server.door.address}#/?{urlencode(asked)}"
        self._server, self._height = server, height

    def close(self) -> None:
        """End the server; without it, it ends with the process."""
        self._server.should_exit = True
        with _STARTING:
            for given in [given for given, server in _RUNNING.items() if server is self._server]:
                del _RUNNING[given]

    def __repr__(self) -> str:
        return self.address

    def _repr_html_(self) -> str:
        address, words = escape(self.address), escape(told("Open the explorer in a window of its own."))
        return (
            f'<iframe src="{address}" style="width:100%;height:{self._height}px;border:0"></iframe>'
            f'<p><a href="{address}" target="_blank" rel="noreferrer">{words}</a></p>'
        )


def explore(model: str | Path = TRANSLATOR, text: str | None = None, *, height: int = 800) -> Explorer:
    """Show the explorer of a model, given by a bundled name or a path, beginning with `text`, `height` pixels high.

    Asked again of the same model it shows the same server, which listens on this machine alone. A notebook whose
    browser runs on another machine needs that port forwarded to it. Raises CutawayError for what is no model.
    """
    with _STARTING:
        server = _RUNNING.get(str(model))
        if server is None or server.should_exit:
            server = _RUNNING[str(model)] = _started(str(model))
    [id] = server.engine.models
    return Explorer(server, id, text, height)


def _started(model: str) -> Server:
    """A server in a thread of its own, once it listens."""
    started = threading.Event()
    server = Server(Engine([model]), open_door(), started.set, frames=NOTEBOOKS)
    threading.Thread(target=server.go, name="cutaway explores", daemon=True).start()
    if not started.wait(STARTING):
        server.should_exit = True
        raise CutawayError(say("the server did not start within {n:g} seconds; try again", n=STARTING))
    return server
