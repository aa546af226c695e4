"""What a server refuses, and how: by kind, in both languages, at once, and without harm to others."""

import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_origin

import pytest
from tests.limits import grows_less_than
from tests.serve.conftest import Reply, Serving

from cutaway.inspection.options import Parameter
from cutaway.inspection.question import RUN_OPTIONS, all_questions, find_question, names
from cutaway.serve import app, guard, server
from cutaway.serve.refusal import STATUS

TEXT = "我爱你。"
MODEL = "translator0"


def refused(reply: Reply, status: int, kind: str, says: str = "") -> None:
    """A refusal in both languages, with its kind and no more than its status says."""
    assert reply.status == status, reply.body
    error = reply.last["error"]
    assert error["kind"] == kind
    assert set(error["message"]) == {"en", "zh"}
    assert re.search(says, error["message"]["en"]), error
    assert re.search("[一-鿿]", error["message"]["zh"]), error
    assert reply.headers["cache-control"] == "no-store"
    assert "Traceback" not in reply.body.decode()


def harmless(serving: Serving) -> None:
    """The server answers as if nothing had been."""
    assert serving.ask("lens", MODEL, TEXT).status == 200


# Who may ask.

HOSTS: list[list[str]] = [
    ["evil.example"], ["evil.example:{port}"], ["127.0.0.1.evil.example:{port}"], [""], ["127.0.0.1:1"],
    ["localhost"], ["127.0.0.1"], ["localhost.:{port}"], ["2130706433:{port}"], ["[::1]"], ["[::2]:{port}"],
    ["user@localhost:{port}"], ["localhost:{port}", "evil.example"], ["localhost:{port}", "localhost:{port}"],
    ["0.0.0.0:{port}"], ["127.1:{port}"], ["localhost:{port}/"],
]  # fmt: skip


@pytest.mark.parametrize("hosts", HOSTS, ids=str)
def test_a_foreign_host_is_refused_everywhere(serving: Serving, hosts: list[str]):
    """S01, B74: against DNS rebinding, for the page as for the rest."""
    lines = "".join(f"Host: {each.format(port=serving.port)}\r\n" for each in hosts)
    for path in ("/", "/api/v1/models", "/api/v1/health", "/nothing", "/assets/x.js"):
        found = serving.raw(f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        assert re.match(rb"HTTP/1.1 (403|400) ", found), found[:200]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_names_of_this_machine(serving: Serving, host: str):
    assert serving.get("/api/v1/health", Host=f"{host}:{serving.port}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:1",
        "https://127.0.0.1",
        "file://",
        "http://127.0.0.1",
        "http://[",
    ],
)
def test_a_foreign_page_may_not_ask(serving: Serving, origin: str):
    """S02."""
    body = {"model": MODEL, "text": TEXT}
    refused(serving.post("answers/lens", body, Origin=origin), 403, "forbidden", "may not ask here")
    for method in ("GET", "OPTIONS"):
        found = serving.send(method, "/api/v1/models", None, {"Origin": origin})
        assert not [name for name in found.headers if name.startswith("access-control-")]


def test_its_own_page_may_ask(serving: Serving):
    body = {"model": MODEL, "text": TEXT}
    assert serving.post("answers/lens", body, Origin=f"http://localhost:{serving.port}").status == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""],
)
def test_a_form_of_a_foreign_page_is_refused(serving: Serving, kind: str):
    reply = serving.send("POST", "/api/v1/answers/lens", b'{"model": "x"}', {"content-type": kind})
    refused(reply, 415, "bad_request", "application/json")


def test_a_packed_body_is_refused(serving: Serving):
    refused(
        serving.post("tokenize", {"model": MODEL, "text": "a"}, Content_Encoding="gzip"), 415, "bad_request"
    )


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods(serving: Serving, method: str):
    refused(serving.send(method, "/api/v1/models", None, {}), 405, "bad_request")


def test_a_question_is_no_page(serving: Serving):
    # the page's files are looked through where there is one
    assert serving.get("/api/v1/answers/lens").status in (404, 405)


# How much may be sent.

HEAD = "POST /api/v1/answers/lens HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"


def test_bodies_that_are_too_large(serving: Serving):
    """S10: refused by what is declared, and by what comes; nothing of that size is ever held."""
    head = HEAD.format(port=serving.port)
    with grows_less_than(2 * guard.MOST_BODY / 1e6 + 10):
        over = b'{"text": "' + b"x" * guard.MOST_BODY + b'"}'
        refused(serving.post("answers/lens", over), 413, "too_large")
        found = serving.raw(f"{head}Content-Length: 10000000000\r\n\r\n".encode())
        assert found.startswith(b"HTTP/1.1 413 ")
        with serving.open(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()) as opened:
            chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            try:
                for _ in range(200):
                    opened.sendall(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass
        found = serving.raw(
            f"{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
        )
        assert found.startswith(b"HTTP/1.1 400 ")
    harmless(serving)


def test_a_body_that_never_comes(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    found = serving.raw(f"{HEAD.format(port=serving.port)}Content-Length: 5\r\n\r\n{{".encode())
    assert found.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n" + b"X: 1\r\n" * 10_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n" + b"X: 1\r\n" * 200 + b"\r\n",
        b"GET /\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["target", "long target", "header", "headers", "many headers", "HTTP/0.9", "nonsense", "TLS"],
)
def test_heads_that_are_too_large_or_none(serving: Serving, data: bytes):
    """S11."""
    with grows_less_than(20):
        opened = serving.open(b"")
        with opened:
            try:
                opened.sendall(data.replace(b"{port}", str(serving.port).encode()))
                opened.shutdown(socket.SHUT_WR)
                found = opened.recv(65536)
            # it closed before it had read everything
            except OSError:
                found = b""
        assert not found or re.match(rb"HTTP/1.1 (400|414|431) ", found), found[:100]
    assert serving.health()["state"] == "ok"


def test_a_head_that_comes_too_slowly(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    """S12: neither at first nor after an answer is a connection held open by single bytes."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    whole = f"GET /api/v1/health HTTP/1.1\r\nHost: localhost:{serving.port}\r\n\r\n".encode()
    for first in (b"", whole):
        with serving.open(first) as opened:
            if first:
                assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
            begun = time.monotonic()
            try:
                for each in whole[:-1]:
                    opened.sendall(bytes([each]))
                    time.sleep(0.1)
            except (BrokenPipeError, ConnectionResetError):
                pass
            # of the 50 bytes hardly any were taken
            assert time.monotonic() - begun < 3
    # who is in time may wait for the answer
    with serving.open(whole) as opened:
        time.sleep(0.5)
        assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
        opened.sendall(whole)
        assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")


# JSON that two readers could understand differently.

BODIES: dict[str, bytes] = {
    "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep enough": b'{"a":' + b"[" * 80 + b"]" * 80 + b"}",
    "twice": b'{"model": "x", "model": "y", "text": "a"}',
    "digits": b'{"model": "x", "text": "a", "options": {"top": ' + b"9" * 100_000 + b"}}",
    "large": b'{"model": "x", "text": "a", "options": {"top": 1e999}}',
    "NaN": b'{"model": "x", "text": "a", "options": {"top": NaN}}',
    "encoding": b'{"model": "\xff"}',
    "mark": b'\xef\xbb\xbf{"model": "x"}',
    "UTF-16": '{"model": "x"}'.encode("utf-16"),
    "surrogate": b'{"model": "x", "text": "\\ud800"}',
    "surrogate key": b'{"\\udc00": 1}',
    "more": b'{"model": "x", "text": "a"} x',
    "list": b"[]",
    "text": b'"a"',
    "none": b"",
    "null": b"null",
}


@pytest.mark.parametrize("name", BODIES)
def test_json_is_read_strictly(serving: Serving, name: str):
    """S18."""
    begun = time.process_time()
    refused(serving.post("answers/lens", BODIES[name]), 400, "bad_request")
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"text": "a"}, "'model' is missing"),
        ({"model": MODEL, "text": 3}, "text is 3, expected a text"),
        ({"model": MODEL, "text": "a", "temperature": 1}, "unknown key 'temperature'"),
        ({"model": MODEL, "text": "a", "options": []}, r"options is \[\], expected a table of keys"),
        (
            {"model": MODEL, "text": "a", "want": ["everything"]},
            "want is 'everything', expected page or result",
        ),
        ({"model": MODEL, "text": "a", "want": "page"}, "expected a list"),
        ({"model": MODEL, "text": "a", "tab": "x" * 201}, "tab is too long"),
        ({"model": MODEL, "text": "a", "options": {"tops": 1}}, "did you mean 'top'"),
        ({"model": MODEL, "text": "a", "options": {"top": 0}}, "top is 0, expected at least 1"),
        ({"model": MODEL}, "needs a text"),
        ({"model": MODEL, "text": "", "options": {}}, "the text is empty"),
    ],
)
def test_what_is_wrong_is_named(serving: Serving, body: dict[str, Any], says: str):
    refused(serving.post("answers/lens", body), 400, "bad_request", says)


def test_kinds(serving: Serving):
    refused(serving.ask("lens", "nothing", TEXT), 404, "unknown_model", "expected one that was given")
    refused(serving.ask("lense", MODEL, TEXT), 404, "not_found", "did you mean 'lens'")
    refused(serving.get("/api/v1/nothing"), 404, "not_found")
    refused(serving.ask("experts", MODEL, TEXT), 400, "bad_request", "mixture of experts")
    refused(serving.ask("lens", "headless0", TEXT), 400, "bad_request", "output head")
    changes = [{"op": "nothing"}]
    refused(
        serving.ask("diff", MODEL, TEXT, options={"changes": changes}), 400, "bad_change", "op is 'nothing'"
    )
    changes = [{"op": "head", "side": "cross", "layer": 99, "head": 0}]
    refused(serving.ask("diff", MODEL, TEXT, options={"changes": changes}), 400, "bad_change", "99")
    refused(serving.ask("lens", MODEL, TEXT * 30), 413, "too_long", "at most")
    refused(serving.ask("lens", "poet0", TEXT * 30), 413, "too_long")
    refused(serving.ask("lens", "masked0", "one two " * 30), 413, "too_long")
    refused(serving.ask("sweep", "headless0", "one two " * 30), 413, "too_long")
    refused(serving.post("tokenize", {"model": MODEL, "text": TEXT * 30}), 413, "too_long")
    refused(serving.ask("lens", MODEL, "a" * (app.MOST_TEXT + 1)), 413, "too_long", "20,000")
    other = {"other": "a" * (app.MOST_TEXT + 1), "word": "a"}
    refused(serving.ask("drift", MODEL, TEXT, options=other), 413, "too_long", "other")
    assert set(STATUS) >= {"bad_request", "bad_change", "too_long", "not_found", "unknown_model"}


# No file is opened by its name.

PATHS = [
    "..", "../translate-zh-en", "%2e%2e%2f", "%252e%252e%252f", "/etc/passwd", "C:\\x", "..\\..", "a;b", "a\0b",
    "x" * 199, "CON", "bert-tiny/", "bert-tiny/../poet-zh", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", [*PATHS, str(Path(__file__).parent)])
def test_a_model_is_no_path(serving: Serving, name: str, opened: Callable[[], list[str]]):
    """S06."""
    refused(serving.ask("lens", name, TEXT), 404, "unknown_model")
    refused(serving.post("tokenize", {"model": name, "text": "a"}), 404, "unknown_model")
    assert not opened()


FILES = [
    "..", "../app.py", "%2e%2e/app.py", "%252e%252e/app.py", "..%2fapp.py", "a;b", "a%00b", "%5c..%5capp.py",
    "//etc/passwd", "a" * 3000, "assets/../../app.py", "assets/",
]  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_no_file_outside_the_page_is_sent(serving: Serving, path: str):
    found = serving.get(f"/{path}")
    assert found.status in (400, 403, 404), found
    assert b"application(" not in found.body


def test_options_open_no_file(serving: Serving, opened: Callable[[], list[str]]):
    for question in all_questions():
        for parameter in (*question.parameters, *RUN_OPTIONS):
            if parameter.kind is str:
                options = {parameter.name: str(Path(__file__))}
                assert serving.ask(question.name, MODEL, TEXT, options=options).status < 500
    assert not [each for each in opened() if "test_requests" in each]


# Numbers.

WRONG = [2**63, -(2**63), 1e308, 0.5, "1", True, [1], {}]
ODD = [-1, 2**31, None]


def some(parameter: Parameter) -> object:
    """A value for an option that must be given."""
    if not parameter.names_tokens:
        return TEXT
    return ["▁I", "▁you", "▁see"] if get_origin(parameter.kind) is tuple else "▁I"


def is_within(parameter: Parameter, value: object) -> bool:
    """Whether a value is one of a float option's own, large as it may be."""
    if parameter.kind is not float or not isinstance(value, int | float) or isinstance(value, bool):
        return False
    low, high = parameter.option.at_least, parameter.option.at_most
    return (low is None or value >= low) and (high is None or value <= high)


@pytest.mark.parametrize("name", names())
def test_numbers(serving: Serving, name: str):
    """S14: what is no number of this kind is refused by its field's name; what is one is answered or refused."""
    question = find_question(name)
    required = {each.name: some(each) for each in question.parameters if each.required}
    # as few points of the integral as there may be, and no search for a translation
    quick = {"tolerance": 1.0, "most_points": 12} if name == "gradients" else {}
    text = TEXT if question.subject == "text" else None
    quick |= {} if text is None else {"target": "I love you."}
    of_run = RUN_OPTIONS if question.subject == "text" else ()
    for parameter in (*question.parameters, *of_run):
        if parameter.kind not in (int, float):
            continue
        for value in WRONG:
            if is_within(parameter, value):
                continue
            reply = serving.ask(name, MODEL, text, options={**quick, **required, parameter.name: value})
            if reply.kind != "bad_request" or "needs" not in str(reply.last):
                refused(reply, 400, "bad_request", parameter.name)
        for value in [*ODD, *(each for each in WRONG if is_within(parameter, each))]:
            reply = serving.ask(name, MODEL, text, options={**quick, **required, parameter.name: value})
            assert reply.status in (200, 400, 413), (parameter.name, value, reply.body)


class Opened:
    """Files that this process opens, but for those of Python itself."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.listening = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if self.listening and event == "open" and isinstance(given[0], str) and not given[0].endswith(PYTHON):
            self.names.append(given[0])


PYTHON = (".py", ".pyc", ".so", ".pyi")
OPENED = Opened()  # a hook stays as long as the process


@pytest.fixture
def opened() -> Iterator[Callable[[], list[str]]]:
    OPENED.names.clear()
    OPENED.listening = True
    yield lambda: OPENED.names
    OPENED.listening = False
