"""A run under changes beside the same run without: what is written, how probable it is, where the two part."""

# Shapes: T tokens, D width, V vocabulary, L layers.

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from cutaway.decode.sentence_settings import Pooling
from cutaway.errors import CutawayError
from cutaway.inspection.asked import stream_taps
from cutaway.inspection.changes.change import Change, as_it_is
from cutaway.inspection.changes.lists import SomeChanges, edits, read_changes, write_change
from cutaway.inspection.changes.writing import Output, filled, write
from cutaway.inspection.options import Option, OtherText
from cutaway.inspection.outcome import divergence, forced_tokens
from cutaway.inspection.page_parts import array, numbers_to
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run, Tokens, piece_of, stacks
from cutaway.inspection.sentences import POOLINGS, cosine_distance, sentence_settings, sentence_vectors
from cutaway.inspection.terms import SIDES, TOKEN, left, right
from cutaway.inspection.wiring import Side
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.head import Head
from cutaway.page.blocks import Block, Edited, Heading, Line, Matrix, Page, Prose, Table, Tinted, page
from cutaway.page.drawn import Drawn
from cutaway.page.numbers import nats, share
from cutaway.tap import Edit
from cutaway.text.display import truncate
from cutaway.words import Phrase, Text, say, say_in

_ROWS = 64  # positions whose distributions are compared at a time, in float64


@dataclass(frozen=True)
class TokenEdit:
    """One step from the base output to the changed one: tokens `base[0]` to `base[1]` - 1 of the one stand against
    `changed[0]` to `changed[1]` - 1 of the other."""

    kind: Literal["equal", "insert", "delete", "replace"]
    base: tuple[int, int]
    changed: tuple[int, int]
    base_pieces: tuple[str, ...]
    changed_pieces: tuple[str, ...]


@dataclass(frozen=True)
class Departure:
    """How far a stack's residual stream has moved: ‖x' - x‖₂ / ‖x‖₂ (L + 1, T), x' under the changes. Row 0 is what
    enters the first block, row n what leaves block n - 1. `tokens` are what the stack reads, T of them. `told` says
    where it parts."""

    side: Side
    relative: Tensor
    tokens: Tokens
    told: Phrase

    def first(self, tolerance: float = 0.0) -> int | None:
        """The first row where a token's stream has moved by more than `tolerance`; None where none has."""
        return _first(self.relative, tolerance)


@dataclass(frozen=True)
class VectorChange:
    """What becomes of a text's sentence vector, made as `cutaway.embed` makes it (see `SentenceSettings`).

    `distance` is 1 - cos of the angle between `base` and `changed`: 0 where they point the same way, 1 at a right
    angle, 2 where they are opposed; without unit.
    """

    pooling: Pooling
    base: Tensor  # (D,)
    changed: Tensor  # (D,)
    distance: float


@dataclass(frozen=True, repr=False)
class Comparison(Drawn):
    """The effect of `changes` on a run. Logarithms are natural; base and changed passes compute attention the same way,
    so that no difference is one of rounding. `told` says in a sentence what they do, `caveats` what a reader must know.

    `ids` and `pieces` (T,) are the tokens that both passes are asked about: the run's outcome (an encoder-only model's
    text with its gaps filled by the unchanged model). `base_log_probs`, `changed_log_probs`, `difference` (T,): log
    p(token | what stands before it) in forced decoding, and changed minus base. `divergence` (T,): KL(base ‖ changed) =
    Σ_v p_v (log p_v - log q_v) in nats, infinite where a changed model cannot say what the base can. `base` and
    `changed` are what each writes on its own, and `token_edits` lead from one to the other (a longest-match alignment
    of pieces, Python's difflib); None and empty where nothing was to be written.

    A model without output head gives no words. It is asked about no token (T is 0), it writes nothing, and `vector`
    says how its sentence vector changes, which is None for every other model.

    A trained model meets the changes out of distribution: the differences show dependence, not purpose (causal
    mediation: Vig et al. 2020, §3; Meng et al. 2022, §2.1; KL: Kullback & Leibler 1951).
    """

    changes: tuple[Change, ...]
    ids: list[int]
    pieces: list[str]
    base_log_probs: Tensor
    changed_log_probs: Tensor
    difference: Tensor
    divergence: Tensor
    departures: tuple[Departure, ...]
    base: Output | None
    changed: Output | None
    token_edits: tuple[TokenEdit, ...]
    told: Phrase
    caveats: tuple[Phrase, ...]
    vector: VectorChange | None = None

    def page(self) -> Page:
        return page(say("The same text without and with the changes"), _blocks(self))


@question(say("The same text with changes and without: what is written, and how probable it is."), "changes")
def diff(
    run: Run,
    changes: SomeChanges,
    *,
    other: Annotated[
        Run | None, OtherText(say('Another text, which changes take from: op resid with "from": "other".'))
    ] = None,
    writing: Annotated[bool, Option(say("Whether the model also writes by itself."))] = True,
) -> Comparison:
    """Run once with `changes` (see `changes.lists`) and once without.

    With `writing` each also writes freely (see `changes.writing.write`); in an encoder-decoder that is a translation of
    the source, which a run's own outcome need not be; the unchanged text is kept with the run, for the next
    comparison. A model without output head is not asked to write.
    Raises CutawayError for a change that this model cannot be given, such as one of words to a model without words, and
    for an `other` that no change takes from.
    """
    listed = read_changes(changes)
    runs = {} if other is None else {"other": other}
    taken = any(each.source == "other" for each in listed)
    if runs and not taken:
        raise CutawayError('other has no effect: no change takes from it (op resid with "from": "other")')
    if taken and not runs:
        raise CutawayError('a change takes from "other", a run of another text: give that text as other')
    changing = edits(listed, run, runs)
    words = isinstance(run.model.head, Head)
    ask = run.forward if words else run.hidden
    borders: dict[Side, list[str]] = {side: stream_taps(stack) for side, stack in stacks(run).items()}
    taps = [name for names in borders.values() for name in names]
    result, trace = ask(taps, dict.fromkeys(changing, as_it_is))
    watch: dict[str, Edit] = {name: _relative_to(trace[name]) for name in taps}
    changed_result, moved = ask(watch, changing)
    departures = tuple(
        _departure(side, torch.stack([moved[name] for name in names]), stacks(run)[side].tokens)
        for side, names in borders.items()
    )
    if not words:
        return _vectors(run, listed, departures, result, changed_result)
    forced = forced_tokens(run, result)
    base = changed = None
    if writing and isinstance(run.model, EncoderOnly):
        base, changed = filled(run, result), filled(run, changed_result)
    elif writing:
        base, changed = run.kept(write), write(run, listed, runs=runs)
    before, after, moved_by = _compared(
        result, changed_result, torch.tensor(forced.ids, device=result.device)
    )
    difference = after - before
    return Comparison(
        changes=listed,
        ids=forced.ids,
        pieces=[piece_of(run, id) for id in forced.ids],
        base_log_probs=before,
        changed_log_probs=after,
        difference=difference,
        divergence=moved_by,
        departures=departures,
        base=base,
        changed=changed,
        token_edits=() if base is None or changed is None else token_edits(base.pieces, changed.pieces),
        told=_told(listed, float(difference.sum()), base, changed),
        caveats=_caveats(listed),
    )


def _vectors(
    run: Run, changes: tuple[Change, ...], departures: tuple[Departure, ...], base: Tensor, changed: Tensor
) -> Comparison:
    """Of a model without output head, by its last hidden states (T, D)."""
    first, second = sentence_vectors(run.loaded, torch.stack([base, changed]))
    nothing = torch.empty(0, dtype=torch.float64, device=base.device)
    distance = float(cosine_distance(first, second[None]))
    turned = f"{distance:.4g}"
    return Comparison(
        changes=changes,
        ids=[],
        pieces=[],
        base_log_probs=nothing,
        changed_log_probs=nothing,
        difference=nothing,
        divergence=nothing,
        departures=departures,
        base=None,
        changed=None,
        token_edits=(),
        told=say("The text's vector turns: 1 − cosine is {turned}.", turned=turned) if changes else UNCHANGED,
        caveats=_caveats(changes),
        vector=VectorChange(sentence_settings(run.loaded).pooling, first, second, distance),
    )


def token_edits(base: Sequence[str], changed: Sequence[str]) -> tuple[TokenEdit, ...]:
    """Steps from one list of pieces to another, which together cover both."""
    steps = SequenceMatcher(None, base, changed, autojunk=False).get_opcodes()
    return tuple(
        TokenEdit(kind, (i, j), (m, n), tuple(base[i:j]), tuple(changed[m:n])) for kind, i, j, m, n in steps
    )


def _relative_to(base: Tensor) -> Edit:
    """(1, T, D) -> (T,): how far it is from `base`, as a part of its length."""
    length = base[0].norm(dim=-1)
    return lambda x: (x[0] - base[0]).norm(dim=-1) / length.clamp(min=torch.finfo(length.dtype).tiny)


def _compared(logits: Tensor, changed: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logits (T, V) of both, ids (T,) -> log-probabilities of the ids under both, and the divergence: (T,) each."""
    parts: list[Tensor] = []
    for first in range(0, len(ids), _ROWS):
        rows = slice(first, first + _ROWS)
        p, q = (each[rows].double().log_softmax(dim=-1) for each in (logits, changed))
        chosen = ids[rows, None]
        parts.append(torch.stack([p.gather(1, chosen)[:, 0], q.gather(1, chosen)[:, 0], divergence(p, q)]))
    before, after, moved = torch.cat(parts, dim=1)
    return before, after, moved


MOVED = 1e-5  # of its length: how far a residual stream must move to have moved


def _departure(side: Side, relative: Tensor, tokens: Tokens) -> Departure:
    first = _first(relative, MOVED)
    if first is None:
        return Departure(side, relative, tokens, say("residual stream does not move"))
    farthest = f"{100 * float(relative[-1].max()):.3g} %"
    told = say(
        "residual stream first moves {at}; at its end by up to {farthest} of its length",
        at=say("at its input") if first == 0 else say("in layer {first}", first=first - 1),
        farthest=farthest,
    )
    return Departure(side, relative, tokens, told)


def _first(relative: Tensor, tolerance: float) -> int | None:
    """The first row (L + 1, T) where a token's value is more than `tolerance`; None where none is."""
    moved = (relative > tolerance).any(dim=1).nonzero()
    return int(moved[0, 0]) if len(moved) else None


# What is said of the changes.

UNCHANGED = say("Nothing is changed: both are the same run.")
DEPENDENCE = say("A trained model has never met such changes: they show dependence, not purpose.")


def _told(changes: Sequence[Change], total: float, base: Output | None, changed: Output | None) -> Phrase:
    """What the changes do; `total` is what the log-probabilities of the unchanged output change by, in nats."""
    if not changes:
        return UNCHANGED
    tokens = say("the tokens of the unchanged run are as probable as before")
    if not abs(total) < 0.005:
        by = f"{abs(total):.2f}"
        tokens = say("the tokens of the unchanged run are together {by} nats less probable", by=by)
        if total > 0:
            tokens = say("the tokens of the unchanged run are together {by} nats more probable", by=by)
    if base is None or changed is None:
        return say("The model was not asked to write; {tokens}.", tokens=tokens)
    if base.ids == changed.ids:
        return say("The model writes the same, token by token; {tokens}.", tokens=tokens)
    return say("The model writes something else; {tokens}.", tokens=tokens)


def _caveats(changes: Sequence[Change]) -> tuple[Phrase, ...]:
    own = {str(change.caveat): change.caveat for change in changes if change.caveat is not None}
    return (DEPENDENCE, *own.values())


# Its page.


def _blocks(found: Comparison) -> Iterator[Block | Text | None]:
    for change in found.changes:
        yield Prose(say("change"), json.dumps(write_change(change), ensure_ascii=False))
    if found.base is not None and found.changed is not None:
        yield Heading(say("What the model writes"))
        yield Prose(say("without"), found.base.text)
        yield Prose(say("with"), found.changed.text)
        if found.base.ids == found.changed.ids:
            yield say("the same, token by token")
        else:
            yield Edited([(each.kind, each.base_pieces, each.changed_pieces) for each in found.token_edits])
    yield from _fates(found) if found.vector is None else _vector(found.vector)
    yield from found.caveats
    yield from (Prose(SIDES[departure.side], departure.told) for departure in found.departures)
    for departure in found.departures:
        if departure.first(MOVED) is not None:
            yield from _departure_map(departure)


def _fates(found: Comparison) -> Iterator[Block | Text | None]:
    """The tokens of the unchanged output, each before and after."""
    differences: list[float] = found.difference.tolist()
    reach = max((abs(each) for each in differences if math.isfinite(each)), default=0.0) or 1.0
    changes = [Tinted(nats(each), max(-1.0, min(1.0, each / reach)), "signed") for each in differences]
    pieces = [truncate(piece, 20) for piece in found.pieces]
    before, after = (
        map(share, each.exp().tolist()) for each in (found.base_log_probs, found.changed_log_probs)
    )
    moved = (f"{each:.3f}" for each in found.divergence.tolist())
    rows = list(zip(pieces, before, after, changes, moved, strict=True))
    titles = (say("without"), say("with"), say_in("of a number", "change"), "KL")
    given = say("those before it")
    if all(departure.side == "encoder" for departure in found.departures):
        given = say("the whole text")
    yield Heading(say("How the tokens of the unchanged output fare"))
    tint = say("change of log-probability, ±{reach:.3g} nats", reach=reach)
    yield Table((left(TOKEN), *map(right, titles)), rows, tint)
    yield say(
        "without, with: probability, given {given}; change: of its logarithm, in nats, {total} in all; KL: divergence "
        "of the whole distribution, in nats.",
        given=given,
        total=nats(sum(differences)),
    )


def _vector(found: VectorChange) -> Iterator[Block | Text]:
    yield Heading(say("What becomes of the text's vector"))
    yield Line(say("1 − cosine"), [f"{found.distance:.4g}"])
    yield say(
        "The vector of {size:,} numbers is {pooling}. 0: it points the same way; 1: at a right angle.",
        size=len(found.base),
        pooling=POOLINGS[found.pooling],
    )


def _departure_map(departure: Departure) -> Iterator[Block]:
    values, pieces = array(departure.relative), departure.tokens.pieces
    rows, down, across = numbers_to(len(values)), say("layers passed"), say("token read")
    greatest = float(values.max(initial=1.0, where=np.isfinite(values)))
    yield Heading(say("How far the residual stream of the {side} has moved", side=SIDES[departure.side]))
    yield Matrix(values, rows, pieces, down, across, "‖x' − x‖ / ‖x‖", drawn=True, greatest=greatest)
