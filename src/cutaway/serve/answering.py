"""A response that waits for a model: lines of JSON while the work goes on, or one file at its end. It never runs longer
than somebody reads it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutaway.errors import CutawayError
from cutaway.serve.engine import Engine, Event, Failure, Making, Report, Request, Served
from cutaway.serve.refusal import STATUS, error_value, json_bytes, text_value
from cutaway.words import say

PATIENCE = 1.0  # seconds after which who waits in line hears so
STALLED = 30.0  # seconds that a client may leave unread what was sent
CHUNK = 1 << 18  # bytes that are sent at once
LINES = "application/x-ndjson"


class Answering(Response):
    """What `make` makes of a model, as a body of that type. Of type LINES there is a line for news before it, and an
    error after such a line is the last one; before any line an error is a body of its own, with its status."""

    def __init__(
        self, engine: Engine, model: Served, key: str, make: Making, tab: str | None = None,
        generation: int = 0, media_type: str = LINES, headers: Mapping[str, str] | None = None,
    ):  # fmt: skip
        super().__init__(None, 200, headers, media_type)
        del self.headers["content-length"]
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._report: Report | None = None
        self._end: Failure | bytes | None = None
        self._request = Request(model, key, make, self._hear, tab, generation)
        # refused at once where there is no room
        engine.ask(self._request)

    def _hear(self, event: Event) -> None:
        """Called by any thread. The newest report takes the place of one that was not sent yet."""
        # the loop is gone where the server has ended
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._heard, event)

    def _heard(self, event: Event) -> None:
        if isinstance(event, Report):
            self._report = event
        elif self._end is None:
            self._end = event
        self._news.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_closed(receive))
        answering = asyncio.ensure_future(self._answer(scope, receive, send))
        try:
            await asyncio.wait({gone, answering}, return_when=asyncio.FIRST_COMPLETED)
            # a client that reads nothing gets no more
            if answering.done():
                with suppress(TimeoutError):
                    answering.result()
        finally:
            gone.cancel()
            answering.cancel()
            self._engine.stop(self._request)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, lines = False, self.media_type == LINES

        async def begin() -> None:
            nonlocal begun
            if not begun:
                begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        while self._end is None:
            try:
                await asyncio.wait_for(self._news.wait(), PATIENCE)
            except TimeoutError:
                self._report = self._report or self._waits()
            self._news.clear()
            report, self._report = self._report, None
            if report is not None and lines and self._end is None:
                await begin()
                value = {"what": text_value(report.what), "done": report.done, "total": report.total}
                await _send(send, json_bytes({"progress": value}) + b"\n")
        if isinstance(self._end, Failure) and not begun:
            await error_response(self._end.error)(scope, receive, send)
            return
        await begin()
        await _send(send, error_line(self._end.error) if isinstance(self._end, Failure) else self._end)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _waits(self) -> Report | None:
        """What there is to tell who has heard nothing for a while."""
        if self._request.model.state == "loading":
            return Report(say("the model is being opened"), 0, 1)
        before = self._request.model.before(self._request)
        return None if before is None else Report(say("waiting in line"), 0, before)


def error_response(error: CutawayError) -> Response:
    """An error as a body of its own."""
    headers = {"retry-after": "5"} if error.kind == "busy" else None
    return Response(error_line(error), STATUS[error.kind], headers, "application/json")


def error_line(error: CutawayError) -> bytes:
    return json_bytes({"error": error_value(error)}) + b"\n"


async def _closed(receive: Receive) -> None:
    """Until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, data: bytes) -> None:
    """Bytes in pieces, each as soon as the one before it is on its way. TimeoutError for a client that reads none."""
    for start in range(0, len(data), CHUNK):
        async with asyncio.timeout(STALLED):
            await send({"type": "http.response.body", "body": data[start : start + CHUNK], "more_body": True})
