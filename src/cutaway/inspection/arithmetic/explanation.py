"""Why this number? Every value of a run with its formula, its operands, and the same worked out again in float64."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cutaway.decode.search import LengthPenalty
from cutaway.decode.text_model import Hypothesis
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.arithmetic.formula import Operand, Rules, Sheet
from cutaway.inspection.arithmetic.output_rules import Settings, head_rules, output_rules, sentence_rules
from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.arithmetic.snippet import snippet
from cutaway.inspection.arithmetic.stack_rules import stack_rules
from cutaway.inspection.runs import Run
from cutaway.inspection.terms import SIDES
from cutaway.inspection.wiring import layer_in, output_stack, sides, stack_result
from cutaway.nn.head import Head
from cutaway.tap import Edit
from cutaway.text.tokens.named_token import piece_label
from cutaway.words import Phrase, Text, listed, say


@dataclass(frozen=True)
class Explanation:
    """One number of one run, and where it comes from.

    `result` is `formula` worked out in float64 from `operands`, which are the numbers that this run really had, rounded
    as it had them. `recorded` is what the run itself got. They may differ by `tolerance`, which is not chosen but
    computed: it follows the formula and bounds what rounding to the model's type can do to each product and sum, given
    how many there are and how large (see `rounding.Rounded`; Higham 2002, §3.3 and §4.2; Higham & Mary
    2019). A greater difference means that the number was changed, or that the model computes something else than the
    formula says.

    An input, a learned parameter, and a fixed table without a formula have neither formula nor operands: the way back
    ends there, and `note` says what it is.
    """

    name: str
    index: tuple[int, ...]
    meaning: Text  # of the whole value
    where: Text  # the index in words: layer, head, tokens
    formula: str
    operands: tuple[Operand, ...]
    result: float
    recorded: float
    tolerance: float
    note: Phrase | None = None
    python: str = ""  # lines that make the same number; none for a run with edits

    @property
    def difference(self) -> float:
        """|result - recorded|; 0 where both are the same infinity."""
        return 0.0 if self.result == self.recorded else abs(self.result - self.recorded)

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def parents(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and index of every number that went in, each of which can be explained in turn."""
        return [parent for operand in self.operands for parent in operand.parents]

    def as_python(self) -> str:
        """Lines that make `value`, this very number, with cutaway and nothing else. Raises CutawayError for a run with
        edits, which are functions and cannot be written down."""
        if not self.python:
            raise CutawayError(
                "a run with edits has no snippet: an edit is a function, and cannot be written as text"
            )
        return self.python


@dataclass(frozen=True)
class Link:
    """One step of a chain: a number, and as what the number before it read it."""

    symbol: str  # "" of the first
    number: Explanation


class Arithmetic:
    """The numbers of one run, recorded once: one traced forward of everything, kept as long as this is.

    `edit` changes taps on the way, as in `Trace`: the numbers are then those of the changed run, and a changed tap is
    where recorded and recomputed part. `smoothing` is that of the loss, `length_penalty` that of the score;
    `hypothesis` makes `score` the one that a beam search gave it, which must be this run's outcome.
    """

    def __init__(
        self,
        run: Run,
        *,
        edit: Mapping[str, Edit] | None = None,
        smoothing: float = 0.1,
        length_penalty: LengthPenalty | None = None,
        hypothesis: Hypothesis | None = None,
    ):
        self._settings = Settings(smoothing, length_penalty or LengthPenalty(), hypothesis)
        self._record = Record(run, edit)
        self._edited = bool(edit)
        self._rules = _all_rules(self._record, self._settings)
        for name, rule in self._rules.items():
            if rule.made is not None:
                self._record.add(name, rule.made)

    @property
    def names(self) -> tuple[str, ...]:
        """All names but those of parameters and fixed tables, which can be explained too."""
        return self._record.names

    def tensor(self, name: str) -> Tensor:
        """The whole value of that name. Raises CutawayError where this run has none."""
        value = self._record.tensor(name)
        if value is None:
            known = (*self._record.names, *self._record.parameters, *self._record.tables)
            idle = say("; that expert was given no token in this run") if ".experts." in name else ""
            raise CutawayError(
                "this run has no value {name!r}{hint}{idle}; cutaway inspect anatomy lists them",
                name=name,
                hint=nearest(name, known),
                idle=idle,
            )
        return value

    def explain(self, name: str, index: tuple[int, ...] = ()) -> Explanation:
        """The number at `index` of the value `name`; negative places count from the end, as in Python.

        Raises CutawayError for a name that this run does not have and for an index that does not fit its shape.
        """
        found, _ = self._explained(name, _place(name, self.tensor(name), index))
        return found

    def chain(self, name: str, index: tuple[int, ...] = ()) -> Iterator[Link]:
        """The number and what it comes from, step by step, down to a token's id, a position or a constant.

        Each step goes on from the value of this run, no parameter, that counts most: where the formula takes one
        element of a line (a softmax, a norm), that one; otherwise the one whose value times the formula's slope there
        is greatest, in a sum of products the greatest product.
        """
        symbol, at = "", (name, _place(name, self.tensor(name), index))
        while True:
            found, sheet = self._explained(*at, slopes=True)
            yield Link(symbol, found)
            onward = None if sheet is None else self._onward(sheet)
            if onward is None:
                return
            symbol, at = onward

    def _explained(
        self, name: str, index: tuple[int, ...], slopes: bool = False
    ) -> tuple[Explanation, Sheet | None]:
        recorded = float(self.tensor(name)[index])
        code = "" if self._edited else snippet(self._record, self._settings, name, index)
        rule = self._rules.get(name)
        if rule is None:
            origin, where = self._record.origin(name), _where_read(self._record, name, index)
            return Explanation(name, index, "", where, "", (), recorded, recorded, 0.0, origin, code), None
        sheet = Sheet(self._record, rule, index, slopes)
        meaning, where = self._record.about(name), _where(self._record, name, rule.letters, sheet)
        operands = tuple(
            replace(each, values=each.values.detach(), labels=_labels(self._record, each))
            for each in sheet.operands
        )
        left = (name, index, meaning, where, sheet.formula, operands)
        result, tolerance = sheet.result.value.item(), sheet.result.error.item()
        return Explanation(*left, result, recorded, tolerance, sheet.note, code), sheet

    def _onward(self, sheet: Sheet) -> tuple[str, tuple[str, tuple[int, ...]]] | None:
        """As what, and where, the number that counts most is read; None where only parameters and constants are."""
        best, most = None, -1.0
        for operand in sheet.operands:
            if operand.name not in self._record.names:
                continue
            values, slope = operand.values.detach().flatten(), operand.values.grad
            shares = torch.zeros_like(values) if slope is None else (values * slope.flatten()).abs()
            at = int(shares.nan_to_num(0.0).argmax())
            symbol, share = operand.symbol, float(shares.nan_to_num(0.0)[at])
            if operand.element is not None:
                (symbol, at), share = operand.element, math.inf
            # Of two equal factors the later one: what is weighed, not how much.
            if share >= most * (1 - 1e-9):
                best, most = (symbol, list(operand.parents)[at]), share
        return best


def _all_rules(record: Record, settings: Settings) -> Rules:
    rules: Rules = {}
    for side in sides(record.model):
        if side != "cross":
            rules |= stack_rules(record, side, stack_result("encoder"))
    hidden = stack_result(output_stack(record.model))
    if not isinstance(record.model.head, Head):
        return rules | sentence_rules(record, hidden)
    return rules | head_rules(record, hidden) | output_rules(record, settings)


def _place(name: str, tensor: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    """The index with its negative places resolved."""
    shape = tuple(tensor.shape)
    if not index and shape:
        raise CutawayError(
            "{name} has the shape {shape}: name one number of it by its index, such as {example}",
            name=name,
            shape=" × ".join(map(str, shape)),
            example=",".join(["0"] * (len(shape) - 1) + [str(shape[-1] - 1)]),
        )
    if len(index) != len(shape):
        raise CutawayError(
            "{name}: index {index} has {count} places, expected {expected}: its shape is {shape}",
            name=name,
            index=index,
            count=len(index),
            expected=len(shape),
            shape=shape,
        )
    for place, size in zip(index, shape, strict=True):
        if not -size <= place < size:
            raise CutawayError(
                "{name}: {place} in index {index} is outside: its shape is {shape}; places are counted from 0",
                name=name,
                place=place,
                index=index,
                shape=shape,
            )
    return tuple(place % size for place, size in zip(index, shape, strict=True))


# Where a number stands, in words.

WORDS = 12  # of a line of the vocabulary that are labelled, the greatest


def _labels(record: Record, operand: Operand) -> dict[int, str]:
    """What places of an operand that is one line stand for: all tokens of a text; of the vocabulary the words of the
    greatest numbers and the one that the formula takes before all."""
    lines = [place for place, each in enumerate(operand.index) if isinstance(each, slice)]
    letters = () if operand.name is None else record.dims(operand.name)
    if operand.name is None or len(lines) != 1 or len(letters) != len(operand.index):
        return {}
    letter, line = letters[lines[0]], operand.index[lines[0]]
    if letter in ("T", "S") and isinstance(line, slice):
        pieces = record.tokens_of(operand.name, keys=letter == "S").pieces[line.start or 0 :]
        return dict(enumerate(pieces[: len(operand.values)]))
    if letter != "V":
        return {}
    best: list[int] = operand.values.topk(min(WORDS, len(operand.values))).indices.tolist()
    taken = [] if operand.element is None else [operand.element[1]]
    return {id: piece_label(id, record.loaded.tokenizer) for id in dict.fromkeys([*taken, *best])}


_COUNTED = {
    "h": lambda n: say("head {n}", n=n),
    "g": lambda n: say("key/value head {n}", n=n),
    "f": lambda n: say("neuron {n}", n=n),
    "a": lambda n: say("choice {n}", n=n + 1),
    "j": lambda n: say("expert {n}", n=n),
}


def _where(record: Record, name: str, letters: tuple[str, ...], sheet: Sheet) -> Text:
    """Of a number with a rule, by the places of its left side: layer, expert, head, tokens."""
    found: list[Text] = []
    for letter in letters:
        number = sheet["t" if letter == "n" else letter]
        if letter in "tsn":
            read = record.tokens_of(name, keys=letter == "s").pieces
            piece = read[number] if number < len(read) else str(number)
            told = say("query {piece}", piece=piece) if "s" in letters else say("at {piece}", piece=piece)
            found.append(say("key {piece}", piece=piece) if letter == "s" else told)
        elif letter == "v":
            found.append(say("word {piece}", piece=piece_label(number, record.loaded.tokenizer)))
        else:
            named = _COUNTED.get(letter, lambda n: say("coordinate {n}", n=n))
            found.append(named(number))
    return _in_block(name, found)


def _where_read(record: Record, name: str, index: tuple[int, ...]) -> Text:
    """Of an input or a parameter: the token that it is about, where it is about one."""
    if name in record.inputs:
        return record.tokens_of(name).pieces[index[1]]
    if index and name.endswith(("tokens.weight", "unembed.weight", "unembed.bias")):
        return say("word {piece}", piece=piece_label(index[0], record.loaded.tokenizer))
    return _in_block(name, [])


def _in_block(name: str, found: list[Text]) -> Text:
    """Places with the layer and the expert before them."""
    layer, parts = layer_in(name), name.split(".")
    if "experts" in parts:
        found = [say("expert {n}", n=parts[parts.index("experts") + 1]), *found]
    if layer is not None:
        found = [say("{side} layer {layer}", side=SIDES[parts[0]], layer=layer), *found]
    return listed(found) if found else ""
