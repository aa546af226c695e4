"""Models that are asked, each by one thread of its own: requests wait in line, are answered once, and end when nobody
waits for them any more.

Nothing heavy is imported before `start`, and then by a thread: a page can be served before torch is there.
"""

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal

from cutaway.errors import CutawayError, brief, nearest
from cutaway.page.wrapping import legible
from cutaway.serve.refusal import Refusal, error_value, json_bytes
from cutaway.words import Text, names_of, say
from cutaway.zoo import TRANSLATOR, bundled, examples, find

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cutaway.checkpoint.folder import Loaded
    from cutaway.inspection.answers import Session, VectorSession
    from cutaway.inspection.options import Progress

KEPT = 256_000_000  # bytes of answers that are kept
LINE = 64  # requests that wait for one model
SECONDS = 600.0  # that a request may wait and run
BETWEEN = 0.1  # seconds between two reports of progress


@dataclass(frozen=True)
class Report:
    """How far a request is."""

    what: Text
    done: int
    total: int


@dataclass(frozen=True)
class Failure:
    """Why a request has no answer."""

    error: CutawayError


Event = Report | Failure | bytes  # the bytes are the answer
Making = Callable[["Session | VectorSession", "Progress"], bytes]


class Stopped(Exception):
    """Nobody waits for this answer any more."""


@dataclass(eq=False)
class Request:
    """One thing to be made by a model: `make` returns its bytes, and `key` says all that they depend on but the model.

    `hear` is told of progress and, once and last, of the end; it is called by whatever thread has news. Of the
    requests of one `tab` one waits at most, the one of the highest `generation`, in whatever order they arrive.
    """

    model: "Served"
    key: str
    make: "Making"
    hear: Callable[[Event], None]
    tab: str | None = None
    generation: int = 0
    stopped: bool = False
    _due: float = field(default_factory=lambda: monotonic() + SECONDS)
    _heard: float = 0.0

    def go_on(self) -> None:
        """Stopped where nobody waits; Refusal once the time is over."""
        if self.stopped:
            raise Stopped
        if monotonic() > self._due:
            raise Refusal(
                "busy",
                say(
                    "this took more than {minutes} minutes and was given up; ask of a shorter text, or later",
                    minutes=round(SECONDS / 60),
                ),
            )

    def report(self, what: Text, done: int, total: int) -> None:
        """The progress that a question tells of: a place to stop at, and news, but not too often."""
        self.go_on()
        now = monotonic()
        if now - self._heard >= BETWEEN:
            self._heard = now
            self.hear(Report(what, done, total))

    def guard(self, x: "Tensor") -> "Tensor":
        """An edit of taps that changes nothing: at every block of the model it is a place to stop at."""
        self.go_on()
        return x


class Kept:
    """Answers by what they answer, the newest ones, up to a number of bytes."""

    def __init__(self, room: int = KEPT):
        self._room, self._answers = room, OrderedDict[tuple[str, str], bytes]()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> bytes | None:
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
            return self._answers.get(key)

    def put(self, key: tuple[str, str], answer: bytes) -> None:
        with self._lock:
            self._room -= len(answer) - len(self._answers.pop(key, b""))
            self._answers[key] = answer
            while self._room < 0:
                self._room += len(self._answers.popitem(last=False)[1])


class Served:
    """A model under the id that the server gives it, what is known of it, and the thread that answers for it."""

    def __init__(self, id: str, given: str, kept: Kept):
        self.id, self.given = id, given
        self.state: Literal["loading", "ready", "failed"] = "loading"
        self.error: CutawayError | None = None
        self.facts: dict[str, object] = {"examples": examples(given)}
        self.running: Request | None = None
        self._session: Session | VectorSession | None = None
        self._kept = kept
        self._line: deque[Request] = deque()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"cutaway {id}", daemon=True)

    @property
    def loaded(self) -> "Loaded":
        """The opened model. Raises Refusal (loading) while it is being opened."""
        if self.error is not None:
            raise self.error
        if self._session is None or self.state == "loading":
            raise Refusal("loading", say("{model} is being opened; ask again in a moment", model=self.id))

        from cutaway.inspection.answers import VectorSession

        if isinstance(self._session, VectorSession):
            raise CutawayError("{model} holds word vectors, which read no text; give a model", model=self.id)
        return self._session.loaded

    def check(self, question: str, text: str | None, options: Mapping[str, object]) -> None:
        """Raises CutawayError for what cannot be asked, as far as its config tells."""
        from cutaway.inspection.question import find_question, names

        if question not in names():
            try:
                find_question(question)
            except CutawayError as error:
                raise Refusal("not_found", error.message) from error
        if self._session is not None:
            self._session.check(find_question(question), text, options)

    @property
    def waiting(self) -> int:
        return len(self._line)

    def read(self) -> None:
        """Its config, and what that tells of it."""
        from cutaway.inspection.answers import open_session
        from cutaway.serve.facts import facts

        with self._failing():
            self._session = open_session(self.given)
            self.facts |= facts(self._session)

    def open(self) -> None:
        """Read the weights and begin to answer, in the thread of this model."""
        self._thread.start()

    def fail(self, error: CutawayError) -> None:
        """No question can be asked of it any more."""
        error = Refusal("failed", error.message)
        with self._news:
            self.state, self.error = "failed", error
            refused, self._line = list(self._line), deque()
            self._news.notify_all()
        for each in refused:
            each.hear(Failure(error))

    def close(self) -> None:
        error = Refusal("failed", say("the server was stopped; start it again: cutaway serve"))
        self.fail(error)
        # none begins any more
        running = self.running
        if running is not None:
            running.stopped = True
            running.hear(Failure(error))

    def put(self, request: Request) -> None:
        """Let a request stand in line. Raises Refusal (busy) where the line is full."""
        with self._news:
            if self.error is not None:
                raise self.error
            if len(self._line) >= LINE:
                raise Refusal("busy", say("{n} requests are waiting already; try again later", n=LINE))
            self._line.append(request)
            self._news.notify()

    def drop(self, request: Request) -> bool:
        """Whether a request stood in line, which it does no longer."""
        with self._news:
            there = request in self._line
            if there:
                self._line.remove(request)
            return there

    def before(self, request: Request) -> int | None:
        """How many requests are answered before one that waits; None for one that does not wait."""
        with self._news:
            if request not in self._line:
                return None
            return self._line.index(request) + (self.running is not None)

    @contextmanager
    def _failing(self) -> "Iterator[None]":
        try:
            yield
        except Exception as error:
            self.fail(as_told(error))

    def _work(self) -> None:
        with self._failing():
            from cutaway.serve.facts import open_model

            assert self._session is not None, "read before"
            self._model, self.facts["languages"] = open_model(self._session)
            self.state = "ready"
        while self.error is None:
            with self._news:
                self._news.wait_for(lambda: self._line or self.error is not None)
                if self.error is not None:
                    return
                request = self.running = self._line.popleft()
            try:
                request.hear(self._answered(request, self._session, self._model))
            except Stopped:
                pass
            except Exception as error:
                request.hear(Failure(as_told(error)))
            finally:
                self.running = None

    def _answered(self, request: Request, session: "Session | VectorSession", model: "nn.Module") -> bytes:
        key = (self.id, request.key)
        if (kept := self._kept.get(key)) is not None:
            return kept
        request.go_on()

        from cutaway.tap import TapError, Trace

        made: bytes | None = None
        try:
            with Trace(model, edit={"*.resid_pre": request.guard}):
                made = request.make(session, request.report)
        # some questions run no block, so that the guard met none
        except TapError:
            if made is None:
                raise
        self._kept.put(key, made)
        return made


def as_told(error: Exception) -> CutawayError:
    """What to tell of an error to whoever asked. What is no mistake of theirs is told on the server's terminal too."""
    if isinstance(error, CutawayError):
        return error
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        return Refusal(
            "out_of_memory",
            say("not enough memory on this machine for a model or text of this size; ask of a shorter text"),
        )
    where, trace = "", error.__traceback__
    while trace is not None:
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    log(f"failed: {type(error).__name__} at {where}: {error}")
    return Refusal(
        "failed",
        say(
            "a fault of cutaway's ended this: {fault} at {where}; please report it with what was asked",
            fault=type(error).__name__,
            where=where,
        ),
    )


def log(text: str) -> None:
    """One line on standard error, whatever the text holds, and no longer than 1,000 characters."""
    sys.stderr.write(f"{legible(' '.join(text.split()))[:1000]}\n")


class Engine:
    """The models of one server."""

    def __init__(self, models: Sequence[str] = ()):
        """`models` are names of bundled models, or paths; none: all that are bundled. Raises CutawayError for what is
        no model."""
        kept = Kept()
        self.models: dict[str, Served] = {}
        own = {path.name for path in bundled()}
        for given in dict.fromkeys(models or sorted(own, key=lambda name: (name != TRANSLATOR, name))):
            path = find(given)
            name = given if given in own else path.stem if path.is_file() else path.resolve().name
            id, number = name, 1
            while id in self.models or (id in own and id != given):
                number += 1
                id = f"{name}-{number}"
            self.models[id] = Served(id, given, kept)
        self.imported = threading.Event()
        self.fault: CutawayError | None = None  # what kept the library from being imported
        self._tabs: dict[str, Request] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Open the models, in threads."""
        threading.Thread(target=self._open, name="cutaway opens", daemon=True).start()

    def _open(self) -> None:
        try:
            from cutaway.inspection.question import all_questions

            all_questions()
        except Exception as error:
            self.fault = as_told(error)
            for each in self.models.values():
                each.fail(self.fault)
        finally:
            self.imported.set()
        for each in self.models.values():
            if each.error is None:
                each.read()
        for each in self.models.values():
            if each.error is None:
                each.open()

    def model(self, id: str) -> Served:
        """The model of that id. Raises Refusal (unknown_model); an id never opens a file."""
        if id in self.models:
            return self.models[id]
        raise Refusal(
            "unknown_model",
            say(
                "there is no model {id}{hint}, expected one that was given to `cutaway serve`: {known}",
                id=brief(id),
                hint=nearest(id, self.models),
                known=names_of(self.models),
            ),
        )

    def ask(self, request: Request) -> None:
        """Let a request stand in line, in the place of an older one of its tab that waits. Raises Refusal (busy)."""
        with self._lock:
            older = None if request.tab is None else self._tabs.get(request.tab)
            if older is not None and older.generation > request.generation:
                raise _outdated()
            request.model.put(request)
            replaced = older is not None and older.model.drop(older)
            if request.tab is not None:
                self._tabs[request.tab] = request
        if replaced and older is not None:
            older.hear(Failure(_outdated()))

    def stop(self, request: Request) -> None:
        """Nobody waits for it any more."""
        request.stopped = True
        request.model.drop(request)
        with self._lock:
            if request.tab is not None and self._tabs.get(request.tab) is request:
                del self._tabs[request.tab]

    def close(self) -> None:
        """End all requests, each with a word."""
        for each in self.models.values():
            each.close()

    def vocabulary(self) -> bytes:
        """What can be asked, as JSON; waits until the questions are there. Raises what keeps them from being there."""
        self.imported.wait()
        if self.fault is not None:
            raise self.fault

        from cutaway.serve.vocabulary import vocabulary_value

        return json_bytes(vocabulary_value())

    def models_value(self) -> list[Mapping[str, object]]:
        """What is known of every model, as JSON has it."""
        found: list[Mapping[str, object]] = []
        for each in self.models.values():
            error = {} if each.error is None else {"error": error_value(each.error)["message"]}
            found.append({"id": each.id, "name": each.id, "state": each.state, **error, **each.facts})
        return found


def _outdated() -> Refusal:
    return Refusal("busy", say("a newer request of the same page took its place"))
