"""Chat templates rendered in a process of their own, which can be ended: the only limit that holds for any program."""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.words import say

LONGEST_TEMPLATE = 64 * 1024  # bytes
LONGEST_TEXT = 4 * 2**20  # bytes of UTF-8 that may come out
SECONDS = 2.0  # a render may take
_STARTING = 30.0  # seconds until the process has imported what it needs
_LONGEST_ANSWER = 6 * LONGEST_TEXT + 4096  # JSON writes a byte as six at most
_NEEDED = ("jinja2", "markupsafe")
_REASONS = {
    "output": say("writes more than {size} MB", size=LONGEST_TEXT // 2**20),
    "memory": say("needs too much memory"),
    "recursion": say("calls itself too deep"),
    "syntax": say("is malformed"),
    "forbidden": say("does what a template may not do"),
    "refused": say("refuses these messages"),
    "failed": say("fails"),
}


class TemplateProcess:
    """One process, started when it is first needed and kept: starting takes a hundred times as long as rendering.

    Requests of several threads wait for one another. After a limit was passed the process is ended, and the next
    request starts a fresh one. Where the system has no limit of memory for a process (Windows, macOS) a template can
    fill memory for as long as it may run.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        """`seconds` is how long a render may take."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # a forked child has the pipes of a process that is not its own

    def render(self, template: str, values: Mapping[str, object], where: str) -> str:
        """The text that the template makes of the values, which must be plain JSON.

        Raises CutawayError naming `where` for a template that is too long, malformed, fails, refuses the values, or
        passes a limit: of time, of memory, `LONGEST_TEXT`.
        """
        size = len(template.encode("utf-8", "surrogatepass"))
        if size > LONGEST_TEMPLATE:
            raise CutawayError(
                "{where}: the chat template has {size:,} bytes, expected at most {limit:,}",
                where=where,
                size=size,
                limit=LONGEST_TEMPLATE,
            )
        request = {"template": template, "values": values, "most": LONGEST_TEXT, "seconds": self._seconds}
        answer = self._ask(json.dumps(request).encode() + b"\n", where)
        if isinstance(text := answer.get("text"), str):
            return text
        # A stranger's text, for a terminal: what is no printable character is spelled.
        spelled = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(answer.get("detail", "")))
        raise CutawayError(
            "{where}: the chat template {reason}{detail}",
            where=where,
            reason=_REASONS.get(str(answer.get("error")), _REASONS["failed"]),
            detail=say(": {text}", text=spelled) if spelled else "",
        )

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        if os.getpid() == self._owner:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # what was still to be written has no reader
                with suppress(OSError):
                    pipe.close()

    def _ask(self, line: bytes, where: str) -> dict[str, object]:
        with self._lock:
            try:
                process = self._running()
                answer = _exchange(process, line, self._seconds)
            # an answer that nobody waits for any more must not meet the next question
            except BaseException:
                self.stop()
                raise
            if not answer.endswith(b"\n"):
                self.stop()
                raise CutawayError(
                    "{where}: the chat template did not end within {seconds:g} seconds, or ended its "
                    "process; it was stopped",
                    where=where,
                    seconds=self._seconds,
                )
            return json.loads(answer)

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and os.getpid() == self._owner and process.poll() is None:
            return process
        self.stop()
        # -I: neither the working directory nor the environment decides what is imported.
        command = [sys.executable, "-I", str(Path(__file__).with_name("worker.py"))]
        places = {
            str(Path(found.origin).parents[1])
            for name in _NEEDED
            if (found := find_spec(name)) and found.origin
        }
        self._process = process = subprocess.Popen(
            [*command, *places], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._owner = os.getpid()
        if _exchange(process, b"", _STARTING) != b"ready\n":
            raise CutawayError(
                "the process that renders chat templates did not start ({executable}); is jinja2 installed?",
                executable=sys.executable,
            )
        return process


def _exchange(process: subprocess.Popen[bytes], line: bytes, seconds: float) -> bytes:
    """The line that comes back for a line; what there is of it when the process ends, as it does after `seconds`."""
    clock = threading.Timer(seconds, process.kill)
    clock.daemon = True
    clock.start()
    assert process.stdin is not None and process.stdout is not None, "the process was started with pipes"
    try:
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline(_LONGEST_ANSWER)
    except BrokenPipeError:
        return b""
    finally:
        clock.cancel()


SHARED = TemplateProcess()
atexit.register(SHARED.stop)
