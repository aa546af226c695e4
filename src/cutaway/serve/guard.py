"""What stands before every route: who may ask, how much may be sent, and what every answer says to a browser.

A page of a stranger that is open in the same browser must neither read nor send anything here: the Host names this
server (against DNS rebinding), a request that brings something comes from its own page (Origin), and no other origin
is ever allowed to read. With an access code, nothing is answered without it.
"""

import asyncio
import json
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutaway.errors import CutawayError, brief
from cutaway.serve.body import body_object
from cutaway.serve.engine import log
from cutaway.serve.refusal import STATUS, Refusal, error_value
from cutaway.words import Phrase, names_of, say

MOST_BODY = 500_000  # bytes
MOST_HEADERS = 100
MOST_TARGET = 8_000  # bytes of a path and query
BODY_SECONDS = 30.0
CODE = "code"
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "script-src 'self'; connect-src 'self'; frame-ancestors {frames}; base-uri 'none'; form-action 'none'"
)


class Guard:
    """An application behind these checks.

    `hosts` are the names that a Host may have, in lower case: `name:port`, or `name` for any port. `code` is demanded
    of everything where it is given, in `cookie`, which a link with the code sets. `frames` are the pages that may show
    this one in a frame. With `told`, each request is a line on standard error: its method, its path without the query,
    status and milliseconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        code: str | None = None,
        cookie: str = "cutaway",
        frames: str = "'none'",
        told: bool = False,
    ):
        self._app, self._hosts, self._code, self._cookie, self._told = app, hosts, code, cookie, told
        self._headers = {
            "content-security-policy": POLICY.format(frames=frames),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun, status = monotonic(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check(scope, headers)
            # the code leaves the address, where it would be copied with a link
            if self._code is not None and _brings(scope, self._code):
                cookie = f"{self._cookie}={self._code}; Path=/; HttpOnly; SameSite=Lax"
                await _answer(sent, 303, {"location": "./", "set-cookie": cookie})
                return
            if self._code is not None and not self._is_known(headers, self._code):
                raise _Wrong(403, _forbidden(NO_CODE))
            body = await _body(headers, receive) if scope["method"] == "POST" else b""
            await self._app(scope, _with(body, receive), sent)
        except _Wrong as wrong:
            body = json.dumps({"error": error_value(wrong.error)}, ensure_ascii=False).encode()
            more = {"content-type": "application/json", "connection": "close"}
            await _answer(sent, wrong.status, more, body)
        finally:
            if self._told:
                took = round(1000 * (monotonic() - begun))
                log(f"{scope['method']} {scope['path']!r} {status or '–'} {took} ms")

    def _check(self, scope: Scope, headers: Headers) -> None:
        target = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
        if len(scope["headers"]) > MOST_HEADERS or target > MOST_TARGET:
            raise _Wrong(
                431,
                _bad(
                    say(
                        "the request has more than {lines} header lines, or an address of more than {most:,} bytes; "
                        "send less",
                        lines=MOST_HEADERS,
                        most=MOST_TARGET,
                    )
                ),
            )
        if "transfer-encoding" in headers and "content-length" in headers:
            raise _Wrong(400, _bad(say("the body has two lengths, expected one")))
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._knows(hosts[0]):
            raise _Wrong(
                403,
                _forbidden(
                    say(
                        "the host is {host}, expected one of {known}; `cutaway serve --allow-host NAME` allows another "
                        "name of this machine",
                        host=brief(", ".join(hosts)),
                        known=names_of(sorted(self._hosts)),
                    )
                ),
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            words = say("the method is {method}, expected GET or POST", method=brief(scope["method"]))
            raise _Wrong(405, _bad(words))
        if scope["method"] == "POST":
            self._check_post(headers)

    def _check_post(self, headers: Headers) -> None:
        for origin in headers.getlist("origin"):
            if not self._knows(_host_of(origin)):
                words = say(
                    "a page of {origin} may not ask here; open the page of this server", origin=brief(origin)
                )
                raise _Wrong(403, _forbidden(words))
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" or "content-encoding" in headers:
            words = say("the body is {kind}, expected application/json as it is", kind=brief(kind))
            raise _Wrong(415, _bad(words))

    def _knows(self, host: str) -> bool:
        name, colon, port = host.lower().rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host.lower(), "80"
        return name in self._hosts or f"{name}:{port}" in self._hosts

    def _is_known(self, headers: Headers, code: str) -> bool:
        """Whether the code is in the cookie, or given as programs give it."""
        held = SimpleCookie()
        try:
            held.load(headers.get("cookie", ""))
        except CookieError:
            held.clear()
        cookie = held[self._cookie].value if self._cookie in held else ""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return _same(cookie, code) or _same(bearer, code)


class _Wrong(Exception):
    """A refusal with its status."""

    def __init__(self, status: int, error: CutawayError):
        super().__init__(str(error))
        self.status, self.error = status, error


NO_CODE = say("the access code is missing or wrong; open the whole link that `cutaway serve` printed")


def _bad(words: Phrase) -> Refusal:
    return Refusal("bad_request", words)


def _forbidden(words: Phrase) -> Refusal:
    return Refusal("forbidden", words)


def _same(given: str, code: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), code.encode())


def _host_of(origin: str) -> str:
    """What stands for the host in an Origin; nothing where it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _brings(scope: Scope, code: str) -> bool:
    """Whether it is the page that is asked for, by a link with the code."""
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    return scope["method"] == "GET" and scope["path"].endswith("/") and _same(query.get(CODE, ""), code)


async def _body(headers: Headers, receive: Receive) -> bytes:
    """The body, read whole and looked through. It never grows beyond the limit, whatever is declared or sent."""
    words = say("the request is too large, expected at most {most:,} bytes", most=MOST_BODY)
    large = _Wrong(413, Refusal("too_large", words))
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 15 or int(declared) > MOST_BODY:
        raise large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BODY:
                    raise large
                more = message.get("more_body", False)
    except TimeoutError:
        words = say("the request did not come whole within {n:g} seconds; send it again", n=BODY_SECONDS)
        raise _Wrong(408, _bad(words)) from None
    try:
        body_object(bytes(body))
    except CutawayError as error:
        raise _Wrong(STATUS[error.kind], error) from error
    return bytes(body)


def _with(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body that was read, then what comes of the connection."""
    given = False

    async def received() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


async def _answer(send: Send, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
