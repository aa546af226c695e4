"""A run under changes beside the same run without: what is written, how probable it is, where the ways part."""

# Shapes: T tokens, D width, V vocabulary, L layers.

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import torch
from torch import Tensor

from cutaway.decode.sentence_settings import Pooling
from cutaway.inspection.changes.edits import as_it_is
from cutaway.inspection.changes.making import edits
from cutaway.inspection.changes.output import Output, write
from cutaway.inspection.changes.places import STACKS, Places
from cutaway.inspection.changes.reading import Changes, read_changes, write_change
from cutaway.inspection.changes.schema import Change
from cutaway.inspection.outcome import divergence, forced_tokens
from cutaway.inspection.pages.changes import comparison_page
from cutaway.inspection.runs import Run, Tokens, piece_of, stacks
from cutaway.inspection.sentences import cosine_distance, sentence_settings, sentence_vectors
from cutaway.inspection.wiring import Side, output_head
from cutaway.nn.head import Head
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit, Trace

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
    enters the first block, row n what leaves block n - 1. `tokens` are what the stack reads, T of them."""

    side: Side
    relative: Tensor
    tokens: Tokens

    def first(self, tolerance: float = 0.0) -> int | None:
        """The first row where a token's stream has moved by more than `tolerance`; None where none has."""
        moved = (self.relative > tolerance).any(dim=1).nonzero()
        return int(moved[0, 0]) if len(moved) else None


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
    so that no difference is one of rounding.

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
    divergence: Tensor
    departures: tuple[Departure, ...]
    base: Output | None
    changed: Output | None
    token_edits: tuple[TokenEdit, ...]
    vector: VectorChange | None = None

    @property
    def difference(self) -> Tensor:
        return self.changed_log_probs - self.base_log_probs

    def page(self) -> Page:
        return comparison_page(self, [write_change(change) for change in self.changes])


def compare(
    run: Run,
    changes: Changes,
    *,
    runs: Mapping[str, Run] | None = None,
    writing: bool = True,
    beam: int | None = None,
    max_new_tokens: int | None = None,
) -> Comparison:
    """Run once with `changes` (see `making.edits`) and once without.

    With `writing` each also writes freely, as `output.write` does with `beam` and `max_new_tokens`; in an
    encoder-decoder that is a translation of the source, which a run's own outcome need not be. A model without output
    head is not asked to write.
    Raises CutawayError for a change that this model cannot be given, such as one of words to a model without words.
    """
    listed = read_changes(changes)
    changing = edits(listed, run, runs)
    borders = _borders(run)
    if not isinstance(run.model.head, Head):
        if beam is not None or max_new_tokens is not None:
            output_head(run.model)
        return _vectors_compared(run, listed, changing, borders)
    logits, trace = run.forward(list(borders), dict.fromkeys(changing, as_it_is))
    watched: dict[str, Edit] = {name: _relative_to(trace[name]) for name in borders}
    changed_logits, changed_trace = run.forward(watched, changing)
    forced = forced_tokens(run, logits)
    ids = torch.tensor(forced.ids, device=logits.device)
    base, changed = (
        write(run, each, runs=runs, beam=beam, max_new_tokens=max_new_tokens) if writing else None
        for each in ((), listed)
    )
    base_log_probs, changed_log_probs, moved = _compared(logits, changed_logits, ids)
    return Comparison(
        listed,
        forced.ids,
        [piece_of(run, id) for id in forced.ids],
        base_log_probs,
        changed_log_probs,
        moved,
        _departures(run, changed_trace, borders),
        base,
        changed,
        () if base is None or changed is None else token_edits(base.pieces, changed.pieces),
    )


def _vectors_compared(
    run: Run, changes: tuple[Change, ...], changing: Mapping[str, Edit], borders: Mapping[str, Side]
) -> Comparison:
    states, trace = run.hidden(list(borders), dict.fromkeys(changing, as_it_is))
    changed_states, changed_trace = run.hidden(
        {name: _relative_to(trace[name]) for name in borders}, changing
    )
    base, changed = sentence_vectors(run.loaded, torch.stack([states, changed_states]))
    nothing = torch.empty(0, dtype=torch.float64, device=states.device)
    pooling, distance = sentence_settings(run.loaded).pooling, cosine_distance(base, changed[None])
    return Comparison(
        changes,
        ids=[],
        pieces=[],
        base_log_probs=nothing,
        changed_log_probs=nothing,
        divergence=nothing,
        departures=_departures(run, changed_trace, borders),
        base=None,
        changed=None,
        token_edits=(),
        vector=VectorChange(pooling, base, changed, float(distance)),
    )


def token_edits(base: list[str], changed: list[str]) -> tuple[TokenEdit, ...]:
    """Steps from one list of pieces to another, which together cover both."""
    steps = SequenceMatcher(None, base, changed, autojunk=False).get_opcodes()
    return tuple(
        TokenEdit(kind, (i, j), (m, n), tuple(base[i:j]), tuple(changed[m:n])) for kind, i, j, m, n in steps
    )


def _borders(run: Run) -> dict[str, Side]:
    """The taps of the residual stream between blocks, in order, and the side that each belongs to."""
    places, found = Places(run), dict[str, Side]()
    for side in STACKS:
        if side in places.stacks:
            blocks = list(places.places(side, "*", (side,), "the residual stream"))
            found[f"{blocks[0].path}.resid_pre"] = side
            for block in blocks:
                found[f"{block.path}.resid_post"] = side
    return found


def _departures(run: Run, relative: Trace, borders: Mapping[str, Side]) -> tuple[Departure, ...]:
    """From what `_relative_to` made of each border's stream under the changes."""
    return tuple(
        Departure(
            side,
            torch.stack([relative[name] for name, here in borders.items() if here == side]),
            stacks(run)[side].tokens,
        )
        for side in dict.fromkeys(borders.values())
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
    base_log_probs, changed_log_probs, moved = torch.cat(parts, dim=1)
    return base_log_probs, changed_log_probs, moved
