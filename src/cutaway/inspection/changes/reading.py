"""A list of changes read from JSON or Python, strictly, and written back."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from cutaway.config import parse
from cutaway.errors import CutawayError, brief, nearest
from cutaway.inspection.changes.schema import KINDS, OPS, Change

Changes = Sequence[Mapping[str, object] | Change] | str  # objects, or their JSON text


def read_changes(changes: Changes) -> tuple[Change, ...]:
    """A list of JSON objects or of changes, or its JSON text, as checked values.

    Raises CutawayError that names the change by its place in the list, the key, and what was expected there.
    """
    try:
        listed: Sequence[Mapping[str, object] | Change] = (
            json.loads(changes) if isinstance(changes, str) else changes
        )
    except (json.JSONDecodeError, RecursionError) as error:
        raise CutawayError("changes: no JSON: {error}", error=error) from error
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise CutawayError("changes is {listed}, expected a list", listed=brief(listed))
    return tuple(_read(change, f"changes[{i}]") for i, change in enumerate(listed))


def write_change(change: Change) -> dict[str, object]:
    """The JSON object of a change, without what is as it would be anyway."""
    written: dict[str, object] = {"op": change.op}
    for field in dataclasses.fields(change):
        value = getattr(change, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            written[_SPELLED.get(field.name, field.name)] = json.loads(json.dumps(value))
    return written


_SPELLED = {"from_run": "from"}  # a word that Python keeps to itself
_SHORT: dict[object, str] = {"enc": "encoder", "dec": "decoder"}


def _read(given: Mapping[str, object] | Change, where: str) -> Change:
    values = write_change(given) if isinstance(given, KINDS) else given
    if not isinstance(values, Mapping):
        raise CutawayError(
            '{where} is {values}, expected an object such as {{"op": "head", …}}',
            where=where,
            values=brief(values),
        )
    op = values.get("op")
    if not isinstance(op, str) or op not in OPS:
        hint = nearest(op, OPS) if isinstance(op, str) else ""
        raise CutawayError(
            "{where}.op is {op}{hint}, expected one of {ops}",
            where=where,
            op=brief(op),
            hint=hint,
            ops=", ".join(OPS),
        )
    back = {json_name: name for name, json_name in _SPELLED.items()}
    kind = OPS[op]
    names = {field.name for field in dataclasses.fields(kind)}
    rest = {
        back[key] if back.get(key) in names else key: value for key, value in values.items() if key != "op"
    }
    side = rest.get("side")
    if isinstance(side, str):
        rest["side"] = _SHORT.get(side, side)
    return parse(kind, rest, f"{where} ({op})")
