"""The process that renders chat templates, which are programs by strangers: `process` starts and ends it.

It is run as a script, without this package: one line of JSON in, one line of JSON out, until its input ends. Jinja's
sandbox keeps a template from Python's insides; the limits set here keep it from the machine's memory and files.
"""

import datetime as dt
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

if __name__ == "__main__":
    # Ctrl-C is for the parent, which decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # after Python's own places: where the parent finds jinja2
    sys.path.extend(sys.argv[1:])

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

# which has no such limits; there the parent's clock alone holds
if sys.platform != "win32":
    import resource

MEMORY = 256 * 2**20  # bytes of address space; a render of 4 MB needs about 80 MiB
GRACE = 1.0  # seconds; the parent's own clock comes first


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model is trained on; here it changes nothing."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> Scope:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class PlainNamespace(Namespace):
    """Jinja's `namespace`, without names that Python gives a meaning to."""

    def __init__(self, /, *given: Any, **attributes: Any) -> None:
        named = dict(*given, **attributes)
        for name in named:
            _refuse_underscore(name)
        super().__init__(named)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not hold {name!r}")


class Refusal(jinja2.TemplateError):
    """What `raise_exception` in a template raises."""


def raise_exception(message: object) -> None:
    raise Refusal(str(message))


def strftime_now(layout: str) -> str:
    return dt.datetime.now().astimezone().strftime(layout)


def tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: Jinja's own filter escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment() -> ImmutableSandboxedEnvironment:
    """What a template finds when `transformers` renders it."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=PlainNamespace)
    return made


def render(template: jinja2.Template, values: Mapping[str, object], most: int) -> dict[str, str]:
    """`text`, or `error` and `detail`. `most` bytes of UTF-8 may come out."""
    pieces: list[str] = []
    size = 0
    for piece in template.generate(values):
        size += len(piece.encode("utf-8", "surrogatepass"))
        if size > most:
            return {"error": "output", "detail": ""}
        pieces.append(piece)
    return {"text": "".join(pieces)}


def answer(
    made: ImmutableSandboxedEnvironment, known: dict[str, jinja2.Template], request: Mapping[str, Any]
) -> dict[str, str]:
    """`render` of the request's template, which stays in `known`; every way to fail has its own `error`."""
    try:
        source = request["template"]
        if source not in known:
            known.clear()
            known[source] = made.from_string(source)
        return render(known[source], request["values"], request["most"])
    except Refusal as error:
        return {"error": "refused", "detail": str(error)[:1000]}
    except SecurityError as error:
        return {"error": "forbidden", "detail": str(error)[:1000]}
    except jinja2.TemplateSyntaxError as error:
        return {"error": "syntax", "detail": f"line {error.lineno}: {error.message}"[:1000]}
    except MemoryError:
        return {"error": "memory", "detail": ""}
    except RecursionError:
        return {"error": "recursion", "detail": ""}
    # a template can raise whatever Python can
    except Exception as error:
        return {"error": "failed", "detail": f"{type(error).__name__}: {error}"[:1000]}


def limit_memory_and_files() -> None:
    """For good: this much memory, no file written, no core dumped. macOS takes the first but does not keep it."""
    if sys.platform != "win32":
        for kind, limit in (
            (resource.RLIMIT_AS, MEMORY),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ):
            hardest = resource.getrlimit(kind)[1]
            limit = limit if hardest == resource.RLIM_INFINITY else min(limit, hardest)
            resource.setrlimit(kind, (limit, limit))


def end_after(seconds: float) -> None:
    """The system ends this process then, whatever it does, should the parent not be there to do so; 0 never."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main() -> None:
    lines, out = sys.stdin.buffer, sys.stdout.buffer
    made = environment()
    known: dict[str, jinja2.Template] = {}
    # What Python reads on first use, it reads before the limits.
    made.from_string("{{ strftime_now('%c') }}").render()
    limit_memory_and_files()
    out.write(b"ready\n")
    out.flush()
    for line in lines:
        request = json.loads(line)
        end_after(request["seconds"] + GRACE)
        out.write(json.dumps(answer(made, known, request)).encode() + b"\n")
        out.flush()
        end_after(0)


if __name__ == "__main__":
    main()
