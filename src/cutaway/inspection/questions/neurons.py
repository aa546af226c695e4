"""What a feed-forward network looks up at one token: a memory of keys and values (Geva et al. 2021, 2022)."""

# Shapes: T tokens, N neurons that are listed, A networks at work on a token (1, or its experts), F width, D width of
# the stream, V vocabulary.

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.asked import LogitToken, Position, position_asked
from cutaway.inspection.frozen_path import FrozenPath, frozen_path
from cutaway.inspection.neuron_firing import fired, firing_taps, neuron_name
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import written_token
from cutaway.inspection.page_parts import array, to_keep_in_mind
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run, Tokens, piece_of, stack_named, token_id
from cutaway.inspection.terms import SIDES, WEIGHT, left, right
from cutaway.inspection.wiring import Place, Side, StackName, output_stack, places
from cutaway.nn.head import Head
from cutaway.page.blocks import Atlas, Heading, Line, Matrix, Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import share
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say


@dataclass(frozen=True)
class ScoredToken:
    """A token of the vocabulary with a number beside it; its owner says which."""

    id: int
    piece: str  # as a reader sees it
    value: float


@dataclass(frozen=True)
class Neuron:
    """One key with its value: row n of `up` (with `gate` where there is one) and column n of `down`. Where the
    coefficient is negative, the neuron writes the opposite of its value: it lowers what `promotes` names."""

    expert: int | None
    number: int  # n
    pre: float  # before the activation function; of a gated network the gate's
    activation: float  # `hidden`: after the activation function, times `up` where it is gated
    coefficient: float  # what multiplies the value vector: the activation, times the expert's weight
    strength: float  # |coefficient| · ‖value vector‖, the length of what it writes
    # Tokens with the highest logits per unit of coefficient, and those logits.
    promotes: tuple[ScoredToken, ...]
    suppresses: tuple[ScoredToken, ...]  # the lowest ones
    logit: float | None  # coefficient times the value vector's part of the chosen token's logit


@dataclass(frozen=True, repr=False)
class Neurons(Drawn):
    """What the feed-forward network of one layer looks up at one token: out = Σ_n m_n · v_n + bias, with m the
    activations and v_n the columns of `down` (Geva et al. 2021, "Transformer Feed-Forward Layers Are Key-Value
    Memories", §2; gated networks: m = activation(gate) · up).

    A value vector is read as words by U · J · v_n (Geva et al. 2022, "Transformer Feed-Forward Layers Build Predictions
    by Promoting Concepts in the Vocabulary Space", §3, who leave J out). U is the output matrix times the model's
    logit scale. J are the norms between this layer and U, their scale held at this run's value at this token; without
    J the words would be ranked by a space that U does not read. So `promotes` are logits per unit of coefficient that
    reach the output directly; what later layers make of them is not in them, nor is a soft cap on logits.
    """

    side: Side  # the stack: "encoder" or "decoder"
    layer: int
    position: int
    tokens: Tokens  # T, that the stack reads
    outcome: str | None  # the token written after the one at the position; None where nothing is written
    experts: tuple[int, ...]  # chosen ones, best first; () for a plain network
    coefficients: Tensor  # (A, F): of every neuron
    strengths: Tensor  # (A, F)
    neurons: tuple[Neuron, ...]  # the N of greatest strength, greatest first
    activations: Tensor  # (N, T) fp32: of these at every token, NaN where their expert was not at work
    listed: Tensor  # (D,): what these neurons write together
    written: Tensor  # (D,): what the whole network writes, the tap `out`
    token_id: int | None  # whose logit `Neuron.logit` is about
    token: str | None
    # Log-probabilities of the stream before the network and after the block, each by the model's own norm and head.
    before: tuple[ScoredToken, ...]
    after: tuple[ScoredToken, ...]
    approximate: Phrase | None  # what to keep in mind about the words, in a sentence

    def page(self) -> Page:
        return _page(self)


@question(say("What a feed-forward network looks up at one token, neuron by neuron."), "layers")
def neurons(
    run: Run,
    *,
    at: Position = None,
    side: Annotated[
        StackName | None,
        Option(say("encoder or decoder; the output stack unless given.")),
    ] = None,
    layer: Annotated[int, Option(say("One layer, from 0; -1 is the last."))] = -1,
    top: Annotated[int, Option(say("Neurons that are listed."), at_least=1)] = 10,
    words: Annotated[int, Option(say("Tokens that each neuron is read as."), at_least=1)] = 5,
    token: LogitToken = None,
) -> Neurons:
    """The neurons that write the longest vectors at a token, and the words that these stand for, from one forward pass.

    `token` is an id, a piece, or a text of one token; None: the one that was written at this position, in a gap the one
    that the model puts there. What the encoder of an encoder-decoder writes is not read by the output matrix, and a
    model without output head has none: such neurons have no words and no logit, and `approximate` says so.
    Raises CutawayError for a layer, position, side or token that is not there, and for a `token` where there are no
    words.
    """
    stack = stack_named(run, side)
    wordless = _wordless(run, stack.name)
    position = position_asked(run, stack.tokens, at)
    (place,) = places(run.model, stack.name, layer)
    chosen = None if token is None else token_id(run, token)
    if wordless is not None and chosen is not None:
        raise CutawayError(
            "token is {token!r}, but {wordless}; leave `token` out", token=token, wordless=wordless
        )
    watch, path = firing_taps(place, position), None
    if wordless is None:
        path = frozen_path(run, position, watch)
        trace = path.trace
        chosen = written_token(run, path.logits, position) if chosen is None else chosen
    else:
        trace = run.seen(watch)
    state = fired(place, position, trace)
    strongest = state.strengths.flatten().topk(min(top, state.strengths.numel())).indices.tolist()
    cells = [divmod(flat, state.strengths.shape[1]) for flat in strongest]
    values = torch.stack([state.networks[a].down.weight[:, n].detach() for a, n in cells])  # (N, D)
    coefficients = torch.stack([state.coefficients[a, n] for a, n in cells])  # (N,)
    read: list[_Reading] = [((), (), None)] * len(cells)
    before, after = (), ()
    if path is not None and chosen is not None:
        read = _read(run, path, place.layer, values, words, chosen)
        before = _says(run, path, place, place.before(place.sublayer("ffn")), words)
        after = _says(run, path, place, f"{place.path}.resid_post", words)
    writes = stack.name == "decoder" and run.target is not run.outcome
    return Neurons(
        side=stack.name,
        layer=place.layer,
        position=position,
        tokens=stack.tokens,
        outcome=run.outcome.pieces[position] if writes else None,
        experts=state.experts,
        coefficients=state.coefficients,
        strengths=state.strengths,
        neurons=tuple(
            Neuron(
                expert=state.experts[a] if state.experts else None,
                number=n,
                pre=float(state.pre[a, n]),
                activation=float(state.hidden[a, n]),
                coefficient=float(state.coefficients[a, n]),
                strength=float(state.strengths[a, n]),
                promotes=promotes,
                suppresses=suppresses,
                logit=None if unit is None else unit * float(state.coefficients[a, n]),
            )
            for (a, n), (promotes, suppresses, unit) in zip(cells, read, strict=True)
        ),
        activations=torch.stack([state.over_text(a, n, len(stack.tokens)) for a, n in cells]),
        listed=coefficients @ values.to(coefficients.dtype),
        written=state.written,
        token_id=chosen,
        token=None if chosen is None else piece_of(run, chosen),
        before=before,
        after=after,
        approximate=wordless or _reason(run),
    )


# What a unit of a value vector promotes, what it suppresses, and its part of the chosen token's logit.
_Reading = tuple[tuple[ScoredToken, ...], tuple[ScoredToken, ...], float | None]


def _read(run: Run, path: FrozenPath, layer: int, values: Tensor, words: int, chosen: int) -> list[_Reading]:
    """values (N, D) as words: the logits that a unit of each adds directly."""
    carried = path.carry(values, layer, "mlp")  # (N, D)
    matrix, scale = path.head.unembed.weight.detach(), path.head.scale
    logits = (carried.to(matrix.dtype) @ matrix.T).float() * scale  # (N, V)
    exact: list[float] = (carried @ matrix[chosen].double() * scale).tolist()
    return [
        (_extreme(run, row, words), _extreme(run, row, words, largest=False), part)
        for row, part in zip(logits, exact, strict=True)
    ]


def _extreme(run: Run, scores: Tensor, words: int, *, largest: bool = True) -> tuple[ScoredToken, ...]:
    """The tokens of the highest or lowest scores (V,)."""
    found = scores.topk(min(words, len(scores)), largest=largest)
    pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return tuple(ScoredToken(id, piece_of(run, id), value) for id, value in pairs)


def _says(run: Run, path: FrozenPath, place: Place, tap: str, words: int) -> tuple[ScoredToken, ...]:
    """The stream at the position, read by the model's own norm and head."""
    with torch.no_grad():
        logits = path.head(place.stack.norm(path.trace[tap][None]))[0, 0]
    return _extreme(run, logits.float().log_softmax(dim=-1), words)


def _wordless(run: Run, side: Side) -> Phrase | None:
    """Why what a stack writes cannot be read as words; None where it can."""
    if side != output_stack(run.model):
        return say(
            "the encoder's stream is read by cross-attention and not by the output matrix: there are no words"
        )
    if not isinstance(run.model.head, Head):
        return say(
            "this model has no output head: it gives vectors and not words, so its neurons stand for no words"
        )
    return None


def _reason(run: Run) -> Phrase | None:
    masked = run.model.config.head == "masked"
    if run.model.config.norm_order == "post":
        return say(
            "post-norm: the stream passes a norm after every later sublayer{gate}; all are held at "
            "their values in this run",
            gate=say(", and the gate of the masked head") if masked else "",
        )
    if masked:
        return say("the gate of the masked head is held at its value in this run")
    return None


# Its page.

NEURON = say("neuron")
ACROSS = 64  # neurons in a row of the picture of all


def _page(found: Neurons) -> Page:
    words = bool(found.before)
    columns = [left(NEURON), right(WEIGHT), right(say("length"))]
    about = say("weight: what multiplies the neuron's value vector, length: of what it writes.")
    if words:
        columns += [right("logit"), left(say("promotes (suppresses, where weight < 0)"))]
        about = say(
            "weight: what multiplies the neuron's value vector, length: of what it writes, logit: its direct part "
            "in the logit of '{token}'. promotes: the tokens that one unit of it favours on the direct path to "
            "the output; later layers are not in it.",
            token=found.token,
        )
    every = say("Every neuron of the layer at this token")
    if found.experts:
        every = say("Every neuron of the experts at work at this token, expert by expert")
    return page(
        _title(found),
        [
            Table(columns, [_row(each, words) for each in found.neurons]),
            about,
            to_keep_in_mind(found.approximate),
            Heading(say("What the model would say here")) if words else None,
            Line(say("before"), _said(found.before)) if words else None,
            Line(say("after"), _said(found.after)) if words else None,
            Heading(every),
            _all(found),
            Heading(say("The listed neurons over the text")),
            _over_text(found),
        ],
    )


def _title(found: Neurons) -> Phrase:
    side, read = SIDES[found.side], found.tokens.pieces[found.position]
    if found.outcome is None:
        return say(
            "The strongest neurons of {side} layer {layer} at position {position}, '{read}'",
            side=side, layer=found.layer, position=found.position, read=read,
        )  # fmt: skip
    return say(
        "The strongest neurons of {side} layer {layer} when '{written}' was written "
        "(position {position}, after '{read}')",
        side=side, layer=found.layer, written=found.outcome, position=found.position, read=read,
    )  # fmt: skip


def _row(each: Neuron, words: bool) -> list[Text]:
    name = neuron_name(each.expert, each.number)
    row: list[Text] = [name, f"{each.coefficient:#.4g}", f"{each.strength:#.4g}"]
    if words:
        assert each.logit is not None
        row += [f"{each.logit:+.3f}", "  ".join(truncate(word.piece, 12) for word in each.promotes)]
    return row


def _said(words: Sequence[ScoredToken]) -> list[str]:
    return [f"{truncate(word.piece, 12)} {share(exp(word.value))} " for word in words]


def _all(found: Neurons) -> Matrix | Atlas:
    """What multiplies each value vector, in rows of 64; where the last row is not full, nothing."""
    coefficients = array(found.coefficients)  # (A, F)
    width = coefficients.shape[1]
    across = min(ACROSS, width)
    padded = np.pad(coefficients, ((0, 0), (0, -width % across)), constant_values=-np.inf)
    firsts, offsets = [str(n) for n in range(0, width, across)], [f"+{n}" for n in range(across)]
    first, weight = say("number of the first"), say("weight of the value vector")
    maps = [
        Matrix(each.reshape(-1, across), firsts, offsets, first, NEURON, weight, "signed", drawn=True)
        for each in padded
    ]
    if len(maps) == 1:
        return maps[0]
    return Atlas([str(expert) for expert in found.experts], maps, len(maps))


def _over_text(found: Neurons) -> Matrix:
    values = array(found.activations)  # (N, T)
    values = np.where(np.isnan(values), -np.inf, values)  # an expert that was not at work is shown as hidden
    names, pieces = [neuron_name(each.expert, each.number) for each in found.neurons], found.tokens.pieces
    return Matrix(values, names, pieces, NEURON, say("token read"), say("activation"), "signed", drawn=True)
