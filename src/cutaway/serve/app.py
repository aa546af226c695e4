"""The routes: what is known of the models, what can be asked, answers, files, and the page itself.

Importing this module imports no torch; the engine does so in a thread, once it is started. The event loop computes
nothing: what takes more than a moment is done by a model's thread or by another one.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from functools import partial
from html import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import cutaway
from cutaway.errors import CutawayError, TooLong, brief
from cutaway.serve.answering import LINES, Answering, error_response
from cutaway.serve.engine import Engine, Served, as_told
from cutaway.serve.refusal import Refusal, json_bytes
from cutaway.words import LOCALES, Locale, Text, listed, said, say

if TYPE_CHECKING:
    from cutaway.inspection.answers import Session, VectorSession
    from cutaway.inspection.options import Progress

UI = Path(__file__).with_name("_ui")
API = "/api/v1"
MOST_TEXT = 20_000  # characters
Name = Annotated[str, Field(max_length=200)]
FOREVER = "public, max-age=31536000, immutable"  # for files whose name holds a hash of them
MEDIA = {
    "svg": "image/svg+xml",
    "html": "text/html",
    "json": "application/json",
    "safetensors": "application/octet-stream",
    "npz": "application/octet-stream",
    "csv": "text/csv",
}


class Body(BaseModel):
    """What a request says: nothing more, nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TokenizeBody(Body):
    """A text to cut into the tokens that a model reads; `to` is the language that it is to be translated into."""

    model: Name
    text: str
    to: Name | None = None


class AskBody(Body):
    """A question's model, text and options, as its command has them. Of the requests of one `tab` one waits at most,
    the one of the highest `generation`."""

    model: Name
    text: str | None = None
    options: dict[str, Any] = {}
    tab: Name | None = None
    generation: int = Field(0, ge=0)
    want: list[Literal["page", "result"]] = ["page"]


class ExportBody(Body):
    """An answer as a file."""

    model: Name
    text: str | None = None
    question: Name
    options: dict[str, Any] = {}
    format: Literal["svg", "html", "json", "safetensors", "npz", "csv"]
    locale: Locale = "en"
    tab: Name | None = None


def application(engine: Engine, ui: Path = UI) -> FastAPI:
    """The server of an engine's models; `ui` is the folder of the built page."""
    app = FastAPI(
        title="cutaway", version=cutaway.__version__, openapi_url=f"{API}/openapi.json", docs_url=None,
        redoc_url=None, redirect_slashes=False,
    )  # fmt: skip

    @app.get(f"{API}/health")
    def health() -> dict[str, Any]:
        """Whether the server is there, and what it does."""
        models = engine.models.values()
        return {
            "state": "ok",
            "models": {each.id: each.state for each in models},
            "running": sum(each.running is not None for each in models),
            "waiting": sum(each.waiting for each in models),
        }

    @app.get(f"{API}/models")
    def models() -> dict[str, Any]:
        """The models; what is known of one is there as soon as its config was read."""
        return {"version": cutaway.__version__, "models": engine.models_value()}

    @app.get(f"{API}/vocabulary")
    async def vocabulary() -> Response:
        """What can be asked and changed, and what the words mean."""
        return Response(await asyncio.to_thread(engine.vocabulary), media_type="application/json")

    @app.get(f"{API}/palette.css")
    def palette() -> Response:
        """The colours of pages, as CSS."""
        from cutaway.serve.palette import palette_css

        return Response(palette_css(), media_type="text/css")

    @app.post(f"{API}/tokenize")
    def tokenize(body: TokenizeBody) -> dict[str, Any]:
        """A text as the tokens that a model reads of it."""
        _check_length("text", body.text)
        loaded = engine.model(body.model).loaded

        from cutaway.serve.tokens import tokens_value

        return tokens_value(loaded, body.text, body.to)

    @app.post(f"{API}/answers/{{question}}")
    async def answers(question: str, body: AskBody) -> Response:
        """Lines of JSON: any number of `progress`, then one `answer` or one `error`. Who closes the connection ends
        the work."""
        model = await asyncio.to_thread(_checked, engine, body, question)
        key = json.dumps(["answer", question, body.text, body.options, body.want], sort_keys=True)
        make = partial(_answer, model.id, question, body)
        return Answering(engine, model, key, make, body.tab, body.generation)

    @app.post(f"{API}/export")
    async def export(body: ExportBody) -> Response:
        """An answer as a file, with what it came from."""
        model = await asyncio.to_thread(_checked, engine, body, body.question)
        given = [body.question, body.text, body.options, body.format, body.locale]
        name = f"cutaway_{model.id}_{body.question}.{body.format}"
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
        make, key = partial(_file, *given), json.dumps(["file", *given], sort_keys=True)
        return Answering(engine, model, key, make, body.tab, media_type=MEDIA[body.format], headers=headers)

    @app.exception_handler(Exception)
    @app.exception_handler(CutawayError)
    def told(_: Request, error: Exception) -> Response:
        return error_response(as_told(error))

    @app.exception_handler(RequestValidationError)
    def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(_mistake(error))

    @app.exception_handler(HTTPException)
    def unknown(request: Request, error: Exception) -> Response:
        words = say("there is nothing at {path}", path=brief(request.url.path))
        response = error_response(Refusal("not_found", words))
        if isinstance(error, HTTPException) and error.status_code == 405:
            response.status_code = 405
        return response

    if (ui / "index.html").is_file():
        app.mount("/", Page(directory=ui))
    else:
        app.add_api_route("/", _no_page, include_in_schema=False)
    app.add_middleware(
        GZipMiddleware, minimum_size=1000, compresslevel=6,
        exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, LINES, MEDIA["npz"]),
    )  # fmt: skip
    return app


class Page(StaticFiles):
    """The built page. A browser keeps what is named after its content, and asks anew for the rest."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response("index.html" if path == "." else path, scope)
        if Path(path).parts[:1] == ("assets",):
            response.headers["cache-control"] = FOREVER
        return response


def _no_page() -> HTMLResponse:
    """What an installation without the page shows in its place."""
    told = "".join(
        f"<p lang={locale}>{escape(said(words, locale))}</p>" for locale in LOCALES for words in NO_PAGE
    )
    return HTMLResponse(f"<!doctype html><meta charset=utf-8><title>cutaway</title>{told}", 503)


NO_PAGE = (
    say(
        "cutaway is running, but this installation was built without its page. Install it again with the page: in "
        "a copy of the sources by `make serve`, else by `pip install --force-reinstall --no-deps cutaway` without "
        "CUTAWAY_SKIP_UI in the environment."
    ),
    say("Programs can ask all the same: what there is stands at api/v1/models and api/v1/openapi.json."),
)


# What the routes do.


def _checked(engine: Engine, body: AskBody | ExportBody, question: str) -> Served:
    """The model of a request that can be answered, as far as that is known before its turn."""
    model = engine.model(body.model)
    texts = {name: value for name, value in body.options.items() if isinstance(value, str)}
    for name, text in {"text": body.text or "", **texts}.items():
        _check_length(name, text)
    if engine.imported.is_set() and model.error is None:
        model.check(question, body.text, body.options)
    return model


def _check_length(name: str, text: str) -> None:
    if len(text) > MOST_TEXT:
        raise TooLong(
            "{name} has {count:,} characters, expected at most {most:,}; give a shorter text",
            name=name,
            count=len(text),
            most=MOST_TEXT,
        )


def _answer(
    model: str, question: str, body: AskBody, session: "Session | VectorSession", progress: "Progress"
) -> bytes:
    from cutaway.inspection.question import find_question
    from cutaway.serve.wire import answer_value, limited

    begun = perf_counter()
    answer = session.ask(find_question(question), body.text, body.options, progress)
    took = round(1000 * (perf_counter() - begun))
    return limited(json_bytes({"answer": answer_value(answer, model, body.want, took)}) + b"\n")


def _file(
    question: str, text: str | None, options: Mapping[str, object], format: str, locale: Locale,
    session: "Session | VectorSession", progress: "Progress",
) -> bytes:  # fmt: skip
    from cutaway.inspection.question import find_question
    from cutaway.inspection.saving import to_bytes
    from cutaway.page.figures import figures
    from cutaway.page.html import document

    answer = session.ask(find_question(question), text, options, progress)
    match format:
        case "html":
            return document(answer.page(), locale).encode()
        case "svg":
            pictures = [picture for _, picture in figures(answer.page(), locale)]
            if not pictures:
                raise CutawayError("this answer has no figure; take it as a page: html")
            return pictures[0].encode()
        case "json":
            return json_bytes(answer.json())
        case _:
            return to_bytes(f".{format}", answer.about(), answer.result)


KINDS = {
    "string_type": say("a text"),
    "int_type": say("a whole number"),
    "dict_type": say("a table of keys"),
    "list_type": say("a list"),
    "model_attributes_type": say("a table of keys"),
}


def _mistake(error: RequestValidationError) -> CutawayError:
    """The first thing that is wrong with a body, said as every other error is."""
    found = error.errors()[0]
    # a place in a list is no name
    *_, name = (part for part in found["loc"] if isinstance(part, str))
    match found["type"]:
        case "missing":
            return CutawayError("key {key!r} is missing", key=name)
        case "extra_forbidden":
            return CutawayError("unknown key {key!r}", key=name)
        case "string_too_long":
            most = found["ctx"]["max_length"]
            return CutawayError(
                "{name} is too long, expected at most {most} characters", name=name, most=most
            )
        case "literal_error":
            expected: Text = listed(re.findall(r"'([^']*)'", found["ctx"]["expected"]), say(" or "))
        case kind:
            expected = KINDS.get(kind, str(kind))
    value = brief(found["input"])
    return CutawayError("{name} is {value}, expected {expected}", name=name, value=value, expected=expected)
