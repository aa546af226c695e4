"""A server as a process and as a place: its address, its page, who is let in, how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command import Run
from tests.limits import takes_less_than
from tests.serve.conftest import Asking, Serving, started

from cutaway import zoo
from cutaway.errors import CutawayError
from cutaway.serve import server
from cutaway.serve.engine import Engine
from cutaway.serve.server import open_door


@pytest.fixture(scope="module")
def built(masked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a page of its own."""
    ui = tmp_path_factory.mktemp("ui")
    (ui / "assets").mkdir()
    (ui / "index.html").write_text("<!doctype html><title>the page</title>")
    (ui / "assets" / "index-1a2b3c.js").write_text("// " + "x" * 5000)
    found = started(Engine([str(masked)]), ui=ui)
    yield found
    found.server.should_exit = True


# The page.


def test_the_page(built: Serving):
    page, script = built.get("/"), built.get("/assets/index-1a2b3c.js")
    assert (page.status, page.headers["cache-control"]) == (200, "no-store")
    assert b"the page" in page.body
    assert (script.status, script.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert "javascript" in script.headers["content-type"]
    assert built.get("/assets/nothing.js").status == 404
    assert built.get("/nothing").status == 404


def test_what_is_large_is_packed_but_no_answer(built: Serving):
    packed = built.get("/assets/index-1a2b3c.js", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < 1000
    assert built.get("/api/v1/vocabulary", Accept_Encoding="gzip").headers["content-encoding"] == "gzip"
    asked = {"model": "masked0", "text": "one [MASK] two"}
    answer = built.post("answers/attention", asked, Accept_Encoding="gzip")
    assert "content-encoding" not in answer.headers
    assert answer.headers["content-type"] == "application/x-ndjson"


@pytest.mark.parametrize(
    "path", ["/", "/assets/index-1a2b3c.js", "/api/v1/models", "/api/v1/palette.css", "/nothing"]
)
def test_headers_of_everything(built: Serving, path: str):
    """S08: a browser runs nothing but what comes from here, and shows this page in no other one."""
    headers = built.get(path).headers
    policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in policy["script-src"] + policy["style-src"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_without_a_page_it_says_how_to_get_one(masked: Path, tmp_path: Path):
    serving = started(Engine([str(masked)]), ui=tmp_path)
    found = serving.get("/")
    assert found.status == 503
    for word in (b"make serve", b"pip install", "重新安装".encode()):
        assert word in found.body
    assert not re.search(rb"(src|href)=", found.body)
    serving.server.should_exit = True


def test_no_page_of_a_framework_is_there(built: Serving):
    """They would load scripts from elsewhere; the description itself is there."""
    assert {built.get(path).status for path in ("/docs", "/redoc", "/openapi.json")} == {404}
    described = json.loads(built.get("/api/v1/openapi.json").body)
    assert "/api/v1/answers/{question}" in described["paths"]


# Who is let in.


def test_this_machine_alone_unless_asked():
    """S03."""
    with open_door(port=0).socket as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.org"):
        with pytest.raises(CutawayError, match="add --lan"):
            open_door(host, 0)


def test_a_door_to_the_network_has_a_code():
    one, other = open_door(port=0, lan=True), open_door(port=0, lan=True)
    with one.socket, other.socket:
        assert one.code is not None
        assert len(one.code) >= 32
        assert one.code != other.code
        assert one.address.endswith(f":{one.port}/?code={one.code}")
        assert one.socket.getsockname()[0] == "0.0.0.0"


def test_without_the_code_everything_is_refused(masked: Path, capfd: pytest.CaptureFixture[str]):
    serving = started(Engine([str(masked)]), lan=True, told=True)
    code = serving.door.code
    assert code is not None
    for path in (
        "/",
        "/api/v1/health",
        "/api/v1/models",
        "/assets/x.js",
        "/nothing",
        "/?code=wrong",
        "/?code=",
    ):
        found = serving.get(path)
        assert (found.status, found.kind) == (403, "forbidden")
        assert "set-cookie" not in found.headers
    assert serving.post("tokenize", {"model": "masked0", "text": "a"}).status == 403
    assert serving.get("/api/v1/models", Cookie=f"cutaway-{serving.port}=wrong").status == 403
    assert serving.get("/api/v1/models", Cookie="=; ;;\x01").status == 403
    assert serving.get("/api/v1/models", Authorization="Bearer wrong").status == 403

    first = serving.get(f"/?code={code}")
    assert (first.status, first.headers["location"]) == (303, "./")
    cookie = first.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    held = cookie.partition(";")[0]
    # the code leaves the address of whoever is known, too
    assert serving.get(f"/?code={code}", Cookie=held).status == 303
    assert serving.get("/api/v1/models", Cookie=f"other=1; {held}").status == 200
    assert serving.post("tokenize", {"model": "masked0", "text": "a"}, Cookie=held).status == 200
    assert serving.get("/api/v1/models", Authorization=f"Bearer {code}").status == 200
    told = capfd.readouterr().err
    assert "GET '/' 303" in told
    assert code not in told
    serving.server.should_exit = True


def test_a_line_is_told_of_each_request(masked: Path, capfd: pytest.CaptureFixture[str]):
    """S09."""
    serving = started(Engine([str(masked)]), told=True)
    capfd.readouterr()
    serving.get("/a%0Ab%1B%5B31m" + "c" * 3000)
    serving.get("/api/v1/health")
    time.sleep(0.1)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in lines[0]
    assert len(lines[0]) <= 1000
    assert re.fullmatch(r"GET '/api/v1/health' 200 \d+ ms", lines[1])
    serving.server.should_exit = True


def test_a_port_that_is_taken(cutaway: Run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = cutaway("serve", "bert-tiny", "--port", port)
    assert (found.code, found.out) == (2, "")
    assert f"--port {port}: cannot be listened on" in found.err


def test_the_usual_port_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        usual = free.getsockname()[1]
    monkeypatch.setattr(server, "PORT", usual)
    one = open_door()
    with one.socket:
        other = open_door()
        with other.socket:
            assert one.port == usual != other.port


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing",), "no model 'nothing'"),
        (("--host", "0.0.0.0"), "add --lan"),
        (("--host", "no host at all"), "--host no host at all"),
        (("--port", "70000"), "70000"),
        (("--allow-host", "http://x/"), "--allow-host http://x/"),
    ],
)
def test_mistakes_are_told(cutaway: Run, arguments: tuple[str, ...], says: str):
    found = cutaway("serve", *arguments)
    assert (found.code, found.out) == (2, "")
    assert says in found.err
    assert found.err.count("\n") == 1


# As a process.


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    command = [sys.executable, "-W", "error", "-m", "cutaway", "serve", "--port", "0"]
    begun = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=kept | {"LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield begun
    begun.kill()
    begun.communicate()


def address_of(process: subprocess.Popen[str]) -> int:
    """The port in the one line that it prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends it\)\n", line)
    assert found, line
    return int(found[1])


def ended(process: subprocess.Popen[str], number: int) -> tuple[int, float, str]:
    """How it ends by a signal: its exit code, the seconds until then, and all that it still told."""
    begun = time.monotonic()
    process.send_signal(number)
    code = process.wait(10)
    took = time.monotonic() - begun
    assert process.stderr is not None
    return code, took, process.stderr.read()


def test_what_is_asked_while_models_open_is_answered(process: subprocess.Popen[str]):
    """From the first moment: the page is there, torch is not; a question waits for its model and is answered. And the
    end, with work going on and a stream open: a word to who waits, at once."""
    there = Asking(address_of(process))
    page = there.get("/")
    assert page.status in (200, 503)
    models = json.loads(there.get("/api/v1/models").body)["models"]
    assert {each["id"] for each in models} == {folder.name for folder in zoo.bundled()}
    assert {each["state"] for each in models} == {"loading"}
    reply = there.ask("lens", "bert-tiny", "The [MASK] is here.")
    assert reply.status == 200
    assert "answer" in reply.last
    long = {"text": "我们明天去北京，你想喝点什么？" * 8, "beam": 32}
    stream = there.begin("align", model="translate-zh-en", options=long)
    time.sleep(0.5)
    code, took, told = ended(process, signal.SIGINT)
    assert (code, told) == (130, "")
    assert took < 2
    with stream, stream.makefile("rb") as file:
        last = file.read().splitlines()[-1]
        while not last.startswith(b"{"):
            pytest.fail(f"the stream ends without a word: {last!r}")
    assert json.loads(last)["error"]["kind"] == "failed"


def test_it_ends_while_models_open(process: subprocess.Popen[str]):
    address_of(process)
    code, took, told = ended(process, signal.SIGTERM)
    assert (code, told) == (0, "")
    assert took < 3


def test_torch_is_not_there_before_the_page():
    heavy = "{'torch', 'numpy', 'tokenizers'}"
    program = f"import sys, cutaway.serve.server; print({heavy} & sys.modules.keys())"
    with takes_less_than(2.5):
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


@pytest.mark.slow
def test_two_hundred_in_a_row_do_not_grow(serving: Serving):
    def rss() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def count(what: str) -> int:
        return len(list(Path("/proc/self", what).iterdir()))

    def ask(n: int) -> None:
        assert serving.ask("attention", "translator0", f"我爱你{n}。", want=["page", "result"]).status == 200

    for n in range(40):
        ask(n)
    before, threads, files = rss(), count("task"), count("fd")
    for n in range(40, 240):
        ask(n)
    # what is kept of 200 answers is part of it
    assert rss() - before < 15
    assert count("task") <= threads + 1
    assert count("fd") <= files + 3
