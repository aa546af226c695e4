"""What a head does on this text, as measured scores: never one label a head."""

# Shapes: l layers and h heads that were asked for, T queries, S keys, M measures.

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.inspection.attention.patterns import place
from cutaway.inspection.pages.attention import head_scores_page
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import Side
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit


@dataclass(frozen=True)
class Measures:
    """Averages over the queries t of one text; p(t, s) is the weight of key s, and every mass lies in 0 to 1.

    They say what the weights are on this text, not what the head is for, nor what depends on it. None where a
    measure has no meaning: positions of cross-attention (its queries and keys are two texts), `entropy_share` where
    no query sees two keys, `previous` and `next` of a single token, `induction` where nothing repeats.
    """

    entropy: Tensor  # -Σ_s p ln p, in nats
    entropy_share: (
        Tensor | None
    )  # that by ln n, over the queries that see n ≥ 2 keys; nan in a layer without one
    special: Tensor  # mass on control tokens
    first: Tensor  # mass on the first key, whatever it is (attention sinks: Xiao et al. 2024, §3.1)
    punctuation: Tensor  # mass on pieces of nothing but punctuation
    distance: Tensor | None  # Σ_s p |t - s|, in tokens
    previous: Tensor | None  # p(t, t-1), over t ≥ 1
    same: Tensor | None  # p(t, t)
    next: Tensor | None  # p(t, t+1), over t < T-1; 0 in a decoder, whose mask hides it
    induction: Tensor | None
    """Mass on the tokens right after earlier occurrences of token t: Σ p(t, j+1) over all j with the same id and
    j + 1 < t, averaged over the t that have such a j (prefix matching: Olsson et al. 2022, "Measuring induction
    heads", there on random repeated text). Control tokens do not count as repeated."""


@dataclass(frozen=True, repr=False)
class HeadScores(Drawn):
    """`scores` of every head (l, h), and `uniform` (l,): what a head of that layer would measure if it weighed all keys
    that a query sees alike. Short texts raise many scores by themselves; compare with it."""

    side: Side
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: Measures
    uniform: Measures
    queries: Tokens
    keys: Tokens
    special_keys: tuple[int, ...]  # places of the control tokens among the keys
    repeated: tuple[int, ...]  # the queries that `induction` is averaged over

    def page(self) -> Page:
        return head_scores_page(self)


def head_scores(
    run: Run,
    side: Side | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> HeadScores:
    """Measure every head asked for (`side`, `layers` and `heads` as in `patterns.place`); each layer's weights are let
    go once they are measured.

    Raises CutawayError for a side, layer or head that there is not.
    """
    where = place(run, side, layers, heads)
    frame = _Frame(run, where.side, where.queries, where.keys)
    watch: dict[str, Edit] = {}
    for masked, pattern in zip(where.taps("masked"), where.taps("pattern"), strict=True):
        layer = _Layer(frame, list(where.heads))
        watch[masked], watch[pattern] = layer.see, layer.measure
    _, trace = run.hidden(watch)
    found = torch.stack([trace[name] for name in where.taps("pattern")])  # (l, 1 + h, M)
    return HeadScores(
        where.side,
        where.layers,
        where.heads,
        frame.named(found[:, 1:]),
        frame.named(found[:, 0]),
        where.queries,
        where.keys,
        tuple(frame.special.nonzero()[:, 0].tolist()),
        tuple(frame.after.any(dim=1).nonzero()[:, 0].tolist()),
    )


class _Frame:
    """What the tokens alone decide: which keys are which, and which measures have a meaning."""

    def __init__(self, run: Run, side: Side, queries: Tokens, keys: Tokens):
        tokenizer = run.loaded.require_tokenizer()
        device = next(run.model.parameters()).device
        control = [tokenizer.is_control(id) for id in keys.ids]
        marks = [_is_punctuation(piece) for piece in keys.pieces]
        self.special = torch.tensor(control, device=device)
        self.punctuation = torch.tensor(marks, device=device) & ~self.special
        self.n_queries, self.n_keys, self.one_text = len(queries), len(keys), side != "cross"
        self.after = torch.zeros(self.n_queries, self.n_keys, dtype=torch.bool, device=device)
        if self.one_text:
            ids = torch.tensor(keys.ids, device=device)
            same = (ids[:, None] == ids[None]) & ~self.special
            self.after[:, 1:] = same[:, :-1]
            self.after &= torch.ones_like(self.after).tril(-1)

    def measures(self, p: Tensor, visible: Tensor) -> Tensor:
        """p (n, T, S) of some heads, visible (T, S) -> (n, M), in the order of the fields of `Measures`."""
        entropy = -torch.xlogy(p, p).sum(dim=-1)  # (n, T)
        seen = visible.sum(dim=-1)
        open_rows = seen >= 2
        share = entropy[:, open_rows] / seen[open_rows].double().log()
        values = [
            entropy.mean(dim=1),
            share.mean(dim=1),
            p[..., self.special].sum(dim=-1).mean(dim=1),
            p[..., 0].mean(dim=1),
            p[..., self.punctuation].sum(dim=-1).mean(dim=1),
        ]
        if self.one_text:
            at = torch.arange(self.n_keys, device=p.device)
            distance = (at[:, None] - at[None]).abs()
            repeated = self.after.any(dim=1)
            values += [
                (p * distance).sum(dim=-1).mean(dim=1),
                p.diagonal(-1, 1, 2).mean(dim=1),
                p.diagonal(0, 1, 2).mean(dim=1),
                p.diagonal(1, 1, 2).mean(dim=1),
                (p * self.after).sum(dim=-1)[:, repeated].mean(dim=1),
            ]
        return torch.stack(values, dim=1)

    def named(self, values: Tensor) -> Measures:
        """(..., M) -> the measures that have a meaning here, each (...)."""
        columns = list(values.unbind(dim=-1))
        entropy, share, special, first, punctuation = columns[:5]
        distance, previous, same, following, induction = columns[5:] if self.one_text else (None,) * 5
        single = self.n_queries == 1
        return Measures(
            entropy,
            None if self.n_keys == 1 else share,
            special,
            first,
            punctuation,
            distance,
            None if single else previous,
            same,
            None if single else following,
            induction if self.after.any() else None,
        )


class _Layer:
    """The reducers of one layer: what is visible comes first, then the pattern is measured."""

    def __init__(self, frame: _Frame, heads: list[int]):
        self._frame, self._heads = frame, heads

    def see(self, masked: Tensor) -> Tensor:
        """masked (1, H, T, S) -> (T, S): which keys a query may see; masks are the same for every head."""
        self._visible = masked[0, 0] > float("-inf")
        return self._visible

    def measure(self, pattern: Tensor) -> Tensor:
        """pattern (1, H, T, S) -> (1 + h, M), a uniform head first."""
        visible = self._visible
        uniform = visible.double() / visible.sum(dim=-1, keepdim=True).clamp(min=1)
        rows = [self._frame.measures(uniform[None], visible)]
        for head in self._heads:  # one at a time: in float64 they would take twice the model's own memory
            rows.append(self._frame.measures(pattern[0, head].double()[None], visible))
        return torch.cat(rows)


def _is_punctuation(piece: str) -> bool:
    bare = piece.replace("▁", "")
    return bool(bare) and all(unicodedata.category(character).startswith("P") for character in bare)
