"""A number as a few lines of Python that make it again through the library."""

from pprint import pformat
from textwrap import indent

import torch

from cutaway import zoo
from cutaway.decode.search import LengthPenalty
from cutaway.inspection.arithmetic.output_rules import Settings
from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.runs import Tokens
from cutaway.nn.head import Head


def snippet(record: Record, settings: Settings, name: str, index: tuple[int, ...]) -> str:
    """Lines that make `value`, the number at that place, and print it."""
    opening, penalty = _open(record), settings.length_penalty
    place = ", ".join(map(str, index)) or "()"
    if name == "score" and settings.hypothesis is not None:
        lines = [
            f"log_probs = {_listed(settings.hypothesis.log_probs)}",
            f"penalty = {penalty!r}",
            "value = sum(log_probs) / penalty.divisor(len(log_probs))",
        ]
    elif name in record.parameters or name in record.tables:
        kind = "parameter" if name in record.parameters else "buffer"
        lines = [*opening, f"value = loaded.model.get_{kind}({name!r})[{place}].item()"]
    elif name in record.taps:
        method = "" if isinstance(record.model.head, Head) else ".hidden"
        lines = [
            *opening,
            *(f"{key} = torch.tensor({_listed(ids.tolist())})" for key, ids in record.inputs.items()),
            f"with torch.no_grad(), Trace(loaded.model, watch=['*.pattern', {name!r}]) as trace:",
            f"    loaded.model{method}({', '.join(f'{key}={key}' for key in record.inputs)})",
            f"value = trace[{name!r}][{place}].item()",
        ]
    else:
        asked = f"explain(run, {name!r}, {index!r})"
        if settings.smoothing != Settings.smoothing:
            asked = f"Arithmetic(run, smoothing={settings.smoothing!r}).explain({name!r}, {index!r})"
        if name == "score" and penalty != LengthPenalty():
            asked = f"Arithmetic(run, length_penalty={penalty!r}).explain({name!r})"
        read = [_tokens(tokens) for tokens in (record.source, record.target, record.outcome)]
        lines = [*opening, "run = Run(", "    loaded,", *read, ")", f"value = {asked}.recorded"]
    text = "\n".join([*lines, "print(value)"])
    imports = {line for word, line in _IMPORTS.items() if word in text}
    if "load(" in text:
        imports.add("from cutaway import Trace, load" if "Trace(" in text else "from cutaway import load")
    order = sorted(imports, key=lambda line: (line.startswith("from"), line))
    return "\n".join([*order, "", text, ""])


_IMPORTS = {
    "torch.": "import torch",
    "= Run(\n": "from cutaway.inspection.runs import Run, Tokens",
    "= explain(": "from cutaway.inspection import explain",
    "Arithmetic(": "from cutaway.inspection.arithmetic.explanation import Arithmetic",
    "LengthPenalty(": "from cutaway.decode.search import LengthPenalty",
    "find(": "from cutaway.zoo import find",
}


def _listed(values: object) -> str:
    """A list, over several lines where it is long; Chinese characters are two columns wide."""
    return pformat(values, width=56, compact=True)


def _tokens(tokens: Tokens | None) -> str:
    """An argument of its own line, or lines."""
    if tokens is None:
        return "    None,"
    inner = indent(f"{_listed(tokens.ids)},\n{_listed(tokens.pieces)},", "    ")
    return indent(f"Tokens(\n{inner}\n),", "    ")


def _open(record: Record) -> list[str]:
    """Lines that open the model as this run has it."""
    folder, dtype = record.loaded.path, next(record.model.parameters()).dtype
    # A bundled model is named, so that the lines run on another machine too.
    path = f"find({folder.name!r})" if folder in zoo.bundled() else repr(str(folder))
    return [f"loaded = load({path})" if dtype == torch.float32 else f"loaded = load({path}, dtype={dtype})"]
