"""Feed-forward networks as memories of keys and values (Geva et al. 2021, 2022)."""

# Shapes: T tokens, N neurons that are listed, A networks at work on a token (1, or its experts), F width, D width of
# the stream, V vocabulary.

from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.attribution.frozen_path import FrozenPath, frozen_path
from cutaway.inspection.layers.network import fired
from cutaway.inspection.outcome import written_token
from cutaway.inspection.pages.feed_forward import memory_page
from cutaway.inspection.runs import Run, piece_of, position_in, stack_named, token_id
from cutaway.inspection.wiring import at_least_one, one_of
from cutaway.nn.head import Head
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, say


@dataclass(frozen=True)
class Word:
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
    promotes: tuple[Word, ...]  # tokens with the highest logits per unit of coefficient, and those logits
    suppresses: tuple[Word, ...]  # the lowest ones
    logit: float | None  # coefficient times the value vector's part of the chosen token's logit


@dataclass(frozen=True, repr=False)
class Memory(Drawn):
    """What the feed-forward network of one layer looks up at one token: out = Σ_n m_n · v_n + bias, with m the
    activations and v_n the columns of `down` (Geva et al. 2021, "Transformer Feed-Forward Layers Are Key-Value
    Memories", §2; gated networks: m = activation(gate) · up).

    A value vector is read as words by U · J · v_n (Geva et al. 2022, "Transformer Feed-Forward Layers Build Predictions
    by Promoting Concepts in the Vocabulary Space", §3, who leave J out). U is the output matrix times the model's
    logit scale. J are the norms between this layer and U, their scale held at this run's value at this token; without
    J the words would be ranked by a space that U does not read. So `promotes` are logits per unit of coefficient that
    reach the output directly; what later layers make of them is not in them, nor is a soft cap on logits.
    """

    side: str
    layer: int
    position: int
    piece: str  # that the stack reads there
    pieces: tuple[str, ...]  # T: that it reads everywhere
    experts: tuple[int, ...]  # chosen ones, best first; () for a plain network
    coefficients: Tensor  # (A, F): of every neuron
    strengths: Tensor  # (A, F)
    neurons: tuple[Neuron, ...]  # the N of greatest strength, greatest first
    activations: Tensor  # (N, T) fp32: of these at every token, NaN where their expert was not at work
    listed: Tensor  # (D,): what these neurons write together
    written: Tensor  # (D,): what the whole network writes, the tap `out`
    token_id: int | None  # whose logit `Neuron.logit` is about
    token: str | None
    before: tuple[
        Word, ...
    ]  # log-probabilities: the stream before the network, by the model's own norm and head
    after: tuple[Word, ...]  # likewise after the block
    approximate: Phrase | None  # what to keep in mind about the words, in a sentence

    def page(self) -> Page:
        return memory_page(self)


def memory(
    run: Run,
    layer: int,
    position: int,
    *,
    top: int = 10,
    words: int = 10,
    token: int | str | None = None,
    side: str | None = None,
) -> Memory:
    """The neurons that write most at a token, and the words that their value vectors stand for.

    `token` (an id, a piece, or a text of one token) is whose logit their effect is told of; None: the one that was
    written at this position, in a gap the one that the model puts there. `side` is "encoder" or "decoder"; None: the
    one that becomes words. What the encoder of an encoder-decoder writes is not read by the output matrix, and a model
    without output head has none: such neurons have no words and no logit, and `approximate` says so.
    Raises CutawayError for a layer, position, side or token that is not there, and for a `token` where there are no
    words.
    """
    at_least_one(top=top, words=words)
    chosen_side = stack_named(run, side)
    wordless = _wordless(run, chosen_side.name)
    where = position_in(chosen_side.tokens, position)
    number = one_of(say("layer"), layer, len(chosen_side.stack.layers))
    chosen = None if token is None else token_id(run, token)
    if wordless is not None and chosen is not None:
        raise CutawayError(
            "token is {token!r}, but {wordless}; leave `token` out", token=token, wordless=wordless
        )
    state = fired(run, chosen_side, number, where)
    strongest = state.strengths.flatten().topk(min(top, state.strengths.numel())).indices.tolist()
    width = state.strengths.shape[1]
    cells = [divmod(flat, width) for flat in strongest]
    values = torch.stack([state.networks[a].down.weight[:, n].detach() for a, n in cells])  # (N, D)
    coefficients = torch.stack([state.coefficients[a, n] for a, n in cells])  # (N,)
    path = frozen_path(run, where) if wordless is None else None
    if path is not None and chosen is None:
        chosen = written_token(run, path.logits, where)
    read = (
        [_Reading((), (), None)] * len(cells)
        if path is None
        else _read(run, path, number, values, words, chosen)
    )
    neurons = tuple(
        Neuron(
            expert=state.experts[a] if state.experts else None,
            number=n,
            pre=float(state.pre[a, n]),
            activation=float(state.hidden[a, n]),
            coefficient=float(state.coefficients[a, n]),
            strength=float(state.strengths[a, n]),
            promotes=reading.promotes,
            suppresses=reading.suppresses,
            logit=None if reading.logit is None else reading.logit * float(state.coefficients[a, n]),
        )
        for (a, n), reading in zip(cells, read, strict=True)
    )
    before, after = ((), ()) if path is None else _around(run, path, number, words)
    return Memory(
        side=chosen_side.name,
        layer=number,
        position=where,
        piece=chosen_side.tokens.pieces[where],
        pieces=tuple(chosen_side.tokens.pieces),
        experts=state.experts,
        coefficients=state.coefficients,
        strengths=state.strengths,
        neurons=neurons,
        activations=torch.stack([state.over_text(a, n, len(chosen_side.tokens)) for a, n in cells]),
        listed=coefficients @ values.to(coefficients.dtype),
        written=state.written,
        token_id=chosen,
        token=None if chosen is None else piece_of(run, chosen),
        before=before,
        after=after,
        approximate=wordless or _reason(run),
    )


@dataclass(frozen=True)
class _Reading:
    promotes: tuple[Word, ...]
    suppresses: tuple[Word, ...]
    logit: float | None  # per unit of coefficient


def _read(
    run: Run, path: FrozenPath, layer: int, values: Tensor, words: int, chosen: int | None
) -> list[_Reading]:
    """values (N, D) as words: the logits that a unit of each adds directly."""
    assert chosen is not None
    carried = path.carry(values, layer, "mlp")  # (N, D)
    matrix, scale = path.head.unembed.weight.detach(), path.head.scale
    logits = (carried.to(matrix.dtype) @ matrix.T).float() * scale  # (N, V)
    exact = carried @ matrix[chosen].double() * scale  # (N,)
    best, worst = (logits.topk(min(words, logits.shape[1]), dim=1, largest=way) for way in (True, False))
    return [
        _Reading(
            _words(run, best.indices[n], best.values[n]),
            _words(run, worst.indices[n], worst.values[n]),
            float(exact[n]),
        )
        for n in range(len(values))
    ]


def _words(run: Run, ids: Tensor, values: Tensor) -> tuple[Word, ...]:
    return tuple(
        Word(id, piece_of(run, id), value) for id, value in zip(ids.tolist(), values.tolist(), strict=True)
    )


def _around(run: Run, path: FrozenPath, layer: int, words: int) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """The stream at the position before and after the network, each read by the model's own norm and head."""
    side = path.side
    before = "resid_cross" if side.block(layer).cross else "resid_mid"
    found = []
    for name in (before, "resid_post"):
        stream = path.trace[f"{side.name}.layers.{layer}.{name}"]  # (1, D)
        with torch.no_grad():
            scores = path.head(side.stack.norm(stream[None]))[0, 0].float().log_softmax(dim=-1)
        best = scores.topk(min(words, len(scores)))
        found.append(_words(run, best.indices, best.values))
    return found[0], found[1]


def _wordless(run: Run, side: str) -> Phrase | None:
    """Why what a side writes cannot be read as words; None where it can."""
    if side != stack_named(run, None).name:
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
