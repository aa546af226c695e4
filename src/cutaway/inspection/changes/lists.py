"""A list of changes: read from JSON or Python, strictly and once, written back, and made into edits of taps.

    [{"op": "head", "side": "decoder", "layer": 3, "head": 5}]

One object is one change: `op` names its kind, the other keys are the fields of that class; "enc" and "dec" are short
for encoder and decoder. Where two changes meet in the same value, the later one works on what the earlier one left; of
two changes that tell a side other positions (`pos`, `hide`) the later one counts. `norm`, `dropout` and `mask` come
first wherever they stand: they make the values that the others change (see `Change.turn`).

Positions count the tokens of the encoder's or the decoder's input from 0, start tokens included, in a forward pass and
in cached decoding alike. A run is one text without padding. A trained model meets changes out of distribution: an
effect shows that the output depends on what was changed, not what that is for.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Annotated

from cutaway.config import parse
from cutaway.errors import CutawayError, about, brief, nearest
from cutaway.files import json_value
from cutaway.inspection.changes import attention_changes, position_changes, stream_changes, token_changes
from cutaway.inspection.changes.change import Building, Change, errors_of_changes
from cutaway.inspection.options import Repeated
from cutaway.inspection.runs import Run
from cutaway.tap import Edit
from cutaway.words import Phrase, names_of, say

Changes = Sequence[Mapping[str, object] | Change] | str  # objects, or their JSON text

# The files of the kinds, in the order of the reference page.
KINDS: tuple[tuple[Phrase, ModuleType], ...] = (
    (say("Attention"), attention_changes),
    (say("Positions"), position_changes),
    (say("Blocks, norms, neurons, experts"), stream_changes),
    (say("Tokens and output"), token_changes),
)


def kinds_in(module: ModuleType) -> list[type[Change]]:
    """The kinds of change that a file declares."""
    there = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Change)]
    return [kind for kind in there if "op" in vars(kind)]


OPS: dict[str, type[Change]] = {kind.op: kind for _, module in KINDS for kind in kinds_in(module)}


class ChangeList(tuple[Change, ...]):
    """Changes that were read."""


@errors_of_changes()
def read_changes(changes: Changes) -> ChangeList:
    """A list of JSON objects or of changes, or its JSON text, as checked values; what was read already as it is.

    Raises CutawayError that names the change by its place in the list, the key, and what was expected there.
    """
    if isinstance(changes, ChangeList):
        return changes
    with about("changes"):
        listed: object = json_value(changes) if isinstance(changes, str) else changes
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise CutawayError("changes is {value}, expected a list", value=brief(listed))
    return ChangeList(_read(change, f"changes[{i}]") for i, change in enumerate(listed))


# An option that lists changes.
SomeChanges = Annotated[
    Changes,
    Repeated(
        say(
            "A change, such as {example}. Kinds of change, each with its own keys (docs/changes.md): {ops}.",
            example=json.dumps({"op": "head", **OPS["head"].example.change}),
            ops=names_of(OPS),
        ),
        each="change",
        read=read_changes,
    ),
]


def write_change(change: Change) -> dict[str, object]:
    """The JSON object of a change, without what is as it would be anyway."""
    written: dict[str, object] = {"op": change.op}
    for field in dataclasses.fields(change):
        value = getattr(change, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            written[spelled(field.name)] = json.loads(json.dumps(value))
    return written


def spelled(field: str) -> str:
    """A field as JSON has it: `from` is a word that Python keeps to itself."""
    return "from" if field == "from_run" else field


def _read(given: object, where: str) -> Change:
    values = write_change(given) if isinstance(given, Change) else given
    if not isinstance(values, Mapping):
        raise CutawayError(
            '{where} is {value}, expected an object such as {{"op": "head", …}}',
            where=where,
            value=brief(values),
        )
    op = values.get("op")
    if not isinstance(op, str) or op not in OPS:
        raise CutawayError(
            "{where}.op is {op}{hint}, expected one of {known}",
            where=where,
            op=brief(op),
            hint=nearest(op, OPS) if isinstance(op, str) else "",
            known=names_of(OPS),
        )
    kind = OPS[op]
    names = {spelled(field.name): field.name for field in dataclasses.fields(kind)}
    rest = {names.get(key, key): value for key, value in values.items() if key != "op"}
    if rest.get("side") in ("enc", "dec"):
        rest["side"] = {"enc": "encoder", "dec": "decoder"}[str(rest["side"])]
    return parse(kind, rest, f"{where} ({op})")


@errors_of_changes()
def edits(changes: Changes, run: Run, runs: Mapping[str, Run] | None = None) -> dict[str, Edit]:
    """The edits of taps, by full name, that carry out `changes` in the model of `run`; `runs` are those that `resid`
    changes name in `from`. An empty list gives no edits.

    They serve one forward pass, `run.forward(watch, edits(changes, run))`, or one decoding of the run's text in a
    cache, under `Trace(run.model, edit=edits(changes, run))`: make them anew for the next. Several rows of the text,
    such as a beam's hypotheses, are all changed alike. Changes to patterns let attention take the explicit product in
    the place of the fused kernel, which rounds otherwise (differences of about 1e-6 of a value's size).

    Raises CutawayError for a change that this model cannot be given, naming it and the reason, before anything has
    run; what `mean` and `from` need is then measured.
    """
    listed = read_changes(changes)
    if not listed:
        return {}
    building = Building(run, runs or {}, listed)
    for place, change in sorted(enumerate(listed), key=lambda each: each[1].turn):
        with about(f"changes[{place}] ({change.op})"):
            change.check(building)
            change.edit(building)
    return building.built()
