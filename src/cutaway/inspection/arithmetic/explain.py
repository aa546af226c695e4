"""Why this number? Every value of a run with its formula, its operands, and the same worked out again in float64."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from cutaway.decode.search import LengthPenalty
from cutaway.decode.text_model import Hypothesis
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.arithmetic.blocks import stack_steps
from cutaway.inspection.arithmetic.output import Settings, head_steps, output_steps
from cutaway.inspection.arithmetic.record import Operand, Record, Steps
from cutaway.inspection.arithmetic.sentence import sentence_steps
from cutaway.inspection.arithmetic.snippet import snippet
from cutaway.inspection.pages.explanation import explanation_page
from cutaway.inspection.runs import Run
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit
from cutaway.words import Phrase, say


@dataclass(frozen=True, repr=False)
class Explanation(Drawn):
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
    formula: str
    operands: tuple[Operand, ...]
    result: float
    recorded: float
    tolerance: float
    note: Phrase | None = None
    _code: str = field(default="", repr=False)

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
        if not self._code:
            raise CutawayError(
                "a run with edits has no snippet: an edit is a function, and cannot be written as text"
            )
        return self._code

    def page(self) -> Page:
        return explanation_page(self, self._code)


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
        self._steps = _all_steps(self._record, self._settings)

    @property
    def names(self) -> tuple[str, ...]:
        """All names but those of parameters and fixed tables, which can be explained too."""
        return self._record.names

    def tensor(self, name: str) -> Tensor:
        """The whole value of that name. Raises CutawayError where this run has none."""
        value = self._record.tensor(name)
        if value is None:
            known = (*self._record.names, *self._record.parameters, *self._record.tables)
            idle = "; that expert was given no token in this run" if ".experts." in name else ""
            raise CutawayError(
                "this run has no value {name!r}{hint}{idle}", name=name, hint=nearest(name, known), idle=idle
            )
        return value

    def explain(self, name: str, index: tuple[int, ...] = ()) -> Explanation:
        """The number at `index` of the value `name`; negative places count from the end, as in Python.

        Raises CutawayError for a name that this run does not have and for an index that does not fit its shape.
        """
        tensor = self.tensor(name)
        index = _place(name, tensor, index)
        recorded = float(tensor[index])
        code = "" if self._edited else snippet(self._record, self._settings, name, index)
        if name not in self._steps:
            return Explanation(name, index, "", (), recorded, recorded, 0.0, self._origin(name), code)
        sheet = self._record.sheet()
        formula, result = self._steps[name](sheet, index)
        return Explanation(
            name=name,
            index=index,
            formula=formula,
            operands=tuple(sheet.operands),
            result=float(result.value),
            recorded=recorded,
            tolerance=float(result.error),
            note=sheet.note,
            _code=code,
        )

    def _origin(self, name: str) -> Phrase:
        if name in self._record.parameters:
            return say("a parameter: learned, and read from the model's file")
        if name in self._record.tables:
            return say("a fixed table: computed when the model was built, not learned")
        return say("a token's id: what the model was given")


def explain(run: Run, name: str, index: tuple[int, ...] = ()) -> Explanation:
    """Why the number at `index` of the value `name` is what it is, in this run.

    `name` is any full tap name (`decoder.layers.3.self_attn.pattern`; the index is into the tap's tensor, the batch of
    1 included), the name of a parameter or fixed table, of the ids (`ids`, or `source` and `target`), or one of these:

    * after the logits: `probabilities`, `log_probabilities` (1, T, V); `token_loss` (1, T) and `loss` (), the
      training loss of the run's outcome with label smoothing 0.1 (Szegedy et al. 2016, §7; Vaswani et al. 2017, §5.4);
      `score` (), the outcome's log-probability divided by the length penalty (Wu et al. 2016, §7). `Arithmetic` takes
      other settings, and the hypothesis of a search.
    * of a model without output head, what `cutaway.embed` makes of its last hidden states: `pooled` (1, D), and
      `sentence_vector` (1, D) where the model's folder wants vectors of length 1.
    * between taps, where the model has such a value: `….self_attn.q_proj` and `k_proj` before a head's norm, `….mlp.up`
      of a gated network, `….self_residual.sum` before a post-norm, `….self_residual.out_norm`, `embed.sum` before the
      embedding's norm, `head.dense` and `head.norm` of a masked model, `decoder.rotary.cos` and `.sin` (T, E).

    The run's values are recorded at the first call and kept as long as `run` is; after a change of the model's
    parameters make another Run. Raises CutawayError for names and indices that this run does not have.
    """
    kept = _kept.get(id(run))
    if kept is None:
        kept = _kept[id(run)] = Arithmetic(run)
        weakref.finalize(run, _kept.pop, id(run), None)
    return kept.explain(name, index)


_kept: dict[int, Arithmetic] = {}  # by the id of a living Run, which an Arithmetic does not hold


def _all_steps(record: Record, settings: Settings) -> Steps:
    if isinstance(record.model, EncoderDecoder):
        steps = stack_steps(record, "encoder", "source_embed", "source", None)
        steps |= stack_steps(record, "decoder", "target_embed", "target", "encoder.normed")
        hidden = "decoder.normed"
    else:
        stack = "encoder" if record.target is None else "decoder"
        steps = stack_steps(record, stack, "embed", "ids", None)
        hidden = f"{stack}.normed"
    steps |= head_steps(record, hidden) | output_steps(record, settings)
    return steps | sentence_steps(record, hidden)


def _place(name: str, tensor: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    """The index with its negative places resolved."""
    shape = tuple(tensor.shape)
    if len(index) != len(shape):
        raise CutawayError(
            "{name}: index {index} has {count} places, expected {count2}: its shape is {shape}",
            name=name,
            index=index,
            count=len(index),
            count2=len(shape),
            shape=shape,
        )
    for place, size in zip(index, shape, strict=True):
        if not -size <= place < size:
            raise CutawayError(
                "{name}: {place} in index {index} is outside: its shape is {shape}",
                name=name,
                place=place,
                index=index,
                shape=shape,
            )
    return tuple(place % size for place, size in zip(index, shape, strict=True))
