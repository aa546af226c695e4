"""What heads weigh on this text: their patterns, and what these measure; never one label a head."""

# Shapes: l layers and h heads that were asked for, T queries, S keys, M measures.

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from cutaway.inspection.asked import AttentionSide, OneHead, OneLayer
from cutaway.inspection.options import Option
from cutaway.inspection.page_parts import greatest
from cutaway.inspection.patterns import (
    Heads,
    Patterns,
    Stage,
    head_maps,
    heads_of,
    only,
    patterns,
    patterns_in,
)
from cutaway.inspection.question import question
from cutaway.inspection.runs import Run
from cutaway.inspection.terms import ATTENTIONS, HEAD, left, one_head, right
from cutaway.page.blocks import Block, Heading, Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit
from cutaway.words import Phrase, Text, listed, say


@dataclass(frozen=True)
class Measures:
    """Averages over the queries t of one text; p(t, s) is the weight of key s, and every mass lies in 0 to 1.

    They say what the weights are on this text, not what the head is for, nor what depends on it. None where a
    measure has no meaning: positions of cross-attention (its queries and keys are two texts), `entropy_share` where
    no query sees two keys, `previous` and `next` of a single token, `induction` where nothing repeats.
    """

    entropy: Tensor  # -Σ_s p ln p, in nats
    # That by ln n, over the queries that see n ≥ 2 keys; nan in a layer without one.
    entropy_share: Tensor | None
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
class Attention(Drawn):
    """The patterns (l, h, T, S) of heads, and what each measures: `scores` of every head (l, h), and `uniform` (l,),
    what a head of that layer would measure if it weighed all keys that a query sees alike. Short texts raise many
    scores by themselves; compare with it. Of another stage than "pattern" there are `patterns` alone."""

    patterns: Patterns
    scores: Measures | None
    uniform: Measures | None
    special_keys: tuple[int, ...]  # places of the control tokens among the keys
    repeated: tuple[int, ...]  # the queries that `induction` is averaged over

    def page(self) -> Page:
        return _page(self)


@question(say("What heads weigh on this text, and what their patterns measure."), "attention")
def attention(
    run: Run,
    *,
    side: AttentionSide = None,
    layer: OneLayer = None,
    head: OneHead = None,
    stage: Annotated[Stage, Option(say("The step of attention that is shown."))] = "pattern",
) -> Attention:
    """Every head that is asked for, from one forward pass.

    Raises CutawayError for a side, layer, head or stage that there is not.
    """
    if stage != "pattern":
        return Attention(patterns(run, side, layer, head, stage), None, None, (), ())
    where = heads_of(run, side, layer, head)
    frame = Frame(run, where)
    watch: dict[str, Edit] = dict.fromkeys(where.taps("masked"), lambda masked: masked[0, 0] > float("-inf"))
    watch |= dict.fromkeys(where.taps("pattern"), only(where.heads))
    trace = run.seen(watch)
    values = torch.stack([trace[name] for name in where.taps("pattern")])
    # Masks are the same for every head: (T, S), which keys a query may see.
    visible = [trace[name] for name in where.taps("masked")]
    found = torch.stack([frame.measured(*each) for each in zip(values, visible, strict=True)])
    return Attention(
        patterns_in(where, values),
        frame.named(found[:, 1:]),
        frame.named(found[:, 0]),
        tuple(frame.special.nonzero()[:, 0].tolist()),
        tuple(frame.after.any(dim=1).nonzero()[:, 0].tolist()),
    )


class Frame:
    """What the tokens alone decide: which keys are which, and which measures have a meaning."""

    def __init__(self, run: Run, where: Heads):
        keys, tokenizer = where.keys, run.loaded.require_tokenizer()
        device = next(run.model.parameters()).device
        self.special = torch.tensor([tokenizer.is_control(id) for id in keys.ids], device=device)
        marks = [_is_punctuation(piece) for piece in keys.pieces]
        self.punctuation = torch.tensor(marks, device=device) & ~self.special
        self.n_queries, self.n_keys, self.one_text = len(where.queries), len(keys), where.side != "cross"
        self.after = torch.zeros(self.n_queries, self.n_keys, dtype=torch.bool, device=device)
        if self.one_text:
            ids = torch.tensor(keys.ids, device=device)
            same = (ids[:, None] == ids[None]) & ~self.special
            self.after[:, 1:] = same[:, :-1]
            self.after &= torch.ones_like(self.after).tril(-1)

    def measured(self, pattern: Tensor, visible: Tensor) -> Tensor:
        """pattern (h, T, S), visible (T, S) -> (1 + h, M), a uniform head first."""
        uniform = visible.double() / visible.sum(dim=-1, keepdim=True).clamp(min=1)
        rows = [self.measures(uniform[None], visible)]
        # One head at a time: in float64 they would take twice the model's own memory.
        rows += [self.measures(head.double()[None], visible) for head in pattern]
        return torch.cat(rows)

    def measures(self, p: Tensor, visible: Tensor) -> Tensor:
        """p (n, T, S) of some heads, visible (T, S) -> (n, M), in the order of the fields of `Measures`."""
        entropy, seen = -torch.xlogy(p, p).sum(dim=-1), visible.sum(dim=-1)  # (n, T), (T,)
        several = seen >= 2
        values = [
            entropy.mean(dim=1),
            (entropy[:, several] / seen[several].double().log()).mean(dim=1),
            p[..., self.special].sum(dim=-1).mean(dim=1),
            p[..., 0].mean(dim=1),
            p[..., self.punctuation].sum(dim=-1).mean(dim=1),
        ]
        if self.one_text:
            at = torch.arange(self.n_keys, dtype=p.dtype, device=p.device)
            repeated = self.after.any(dim=1)
            values.append(torch.linalg.vecdot(p, (at[:, None] - at[None]).abs()).mean(dim=1))
            values += [p.diagonal(offset, 1, 2).mean(dim=1) for offset in (-1, 0, 1)]  # previous, same, next
            values.append(torch.linalg.vecdot(p, self.after.to(p.dtype))[:, repeated].mean(dim=1))
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


def _is_punctuation(piece: str) -> bool:
    bare = piece.replace("▁", "")
    return bool(bare) and all(unicodedata.category(character).startswith("P") for character in bare)


# Its page.


@dataclass(frozen=True)
class Measure:
    """A field of `Measures` in words: its column in a table, its part of a sentence, its name, and what it means."""

    field: str
    column: Phrase
    what: Phrase
    name: Phrase
    about: Phrase


# fmt: off
MEASURES = (
    Measure("entropy", say("entropy"), say("entropy in nats"), say("entropy"), say(
        "How spread out the weights of a query are, in nats: 0 where it reads a single key, log n where n keys share "
        "its weight evenly.")),
    Measure("first", say("first"), say("the first token"), say("first token"), say(
        "The weight on the first key, whatever token stands there; a head that puts most of it there on every text is "
        "called an attention sink.")),
    Measure("special", say("ctrl"), say("control tokens (ctrl)"), say("control tokens"), say(
        "The weight on control tokens, such as the end of the text or the language to write.")),
    Measure("punctuation", say("punct"), say("punctuation"), say("punctuation"), say(
        "The weight on tokens that are nothing but punctuation.")),
    Measure("distance", say("dist."), say("dist. in tokens"), say("distance"), say(
        "How many tokens lie between a query and what it reads: the mean by weight.")),
    Measure("previous", say("prev"), say("the token before (prev)"), say("token before"), say(
        "The weight that a query gives the token right before its own.")),
    Measure("same", say("same"), say("the same"), say("own token"), say(
        "The weight that a query gives its own token.")),
    Measure("next", say("next"), say("the next"), say("next token"), say(
        "The weight that a query gives the token right after its own; 0 in a decoder, whose mask hides it.")),
    Measure("induction", say("induct"), say("those after earlier copies of it (induct)"), say("induction"), say(
        "The weight that a query gives what came right after earlier copies of its token, where its text has some: "
        "looking up how it went on the last time.")),
)
# fmt: on
COUNTED = ("entropy", "distance")  # the others are weights
STAGES = {
    "scores": say("scores q·k"),
    "scaled": say("scaled scores"),
    "masked": say("scores after mask and position bias"),
    "pattern": say("attention"),
}


def measured(scores: Measures) -> list[Measure]:
    """Those that have a meaning here."""
    return [each for each in MEASURES if getattr(scores, each.field) is not None]


def _page(found: Attention) -> Page:
    shown, what = found.patterns, ATTENTIONS[found.patterns.side]
    layers, heads, one = shown.layers, shown.heads, shown.values.shape[:2] == (1, 1)
    maps = partial(head_maps, shown.values, layers, heads, shown.rows, shown.keys.pieces)
    if shown.stage != "pattern":
        stage = STAGES[shown.stage]
        title = one_head(say("{what}: {stage}", what=what, stage=stage), layers, heads)
        return page(title, [maps(scale="signed", unit=stage), _MEANS if one else _ONE])
    title, table = say("What the heads of {what} measure on this text", what=what), _measured(found)
    if one:
        return page(one_head(what, layers, heads), [maps(), _MEANS, Heading(title), *table])
    looks = Heading(say("Where each head looks"))
    return page(title, [*table, _ONE, looks, _most_weight(shown), maps(), _MEANS])


_MEANS = say(
    "A row is one query: what it weighs. In a decoder the query at a token predicts the next one. Weights say "
    "where a head reads, not what it takes from there, nor what depends on it."
)
_ONE = say("The weights of one head, token by token: give its layer and head.")


def _most_weight(found: Patterns) -> Table:
    """The keys that each head weighs most."""
    names = [f"{layer}.{head}" for layer in found.layers for head in found.heads]
    means = found.values.float().mean(dim=2).flatten(0, 1)  # (l·h, S)
    rows = [
        (name, "  ".join(greatest(found.keys.pieces, weights, 3)))
        for name, weights in zip(names, means, strict=True)
    ]
    return Table([left(HEAD), left(say("weighs most (mean over the queries)"))], rows)


def _measured(found: Attention) -> list[Block | Text]:
    scores, uniform = found.scores, found.uniform
    assert scores is not None and uniform is not None, "measured wherever the pattern is shown"
    there = measured(scores)
    fields = [each.field for each in there]
    rows: list[list[Text]] = []
    for i, layer in enumerate(found.patterns.layers):
        for j, head in enumerate(found.patterns.heads):
            rows.append([f"{layer}.{head}", *_row(scores, fields, i, j)])
        rows.append([say("{layer} uniform", layer=layer), *_row(uniform, fields, i)])
    counted = listed(each.what for each in there if each.field in COUNTED)
    weights = listed(each.what for each in there if each.field not in COUNTED)
    about = say(
        "Means over the text: {counted}; the rest is weight from 0 to 1 on: {weights}. uniform: a head that weighs all "
        "keys it sees alike. Scores of this text, not what a head is for.",
        counted=counted,
        weights=weights,
    )
    return [Table([left(HEAD), *(right(each.column) for each in there)], rows), about]


def _row(measures: Measures, fields: Sequence[str], *place: int) -> list[str]:
    return [f"{float(getattr(measures, field)[place]):.2f}" for field in fields]
