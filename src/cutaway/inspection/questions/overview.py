"""A text at a glance: its tokens, what the model makes of them, and the heads that this depends on most."""

# Shapes: T tokens, D width, V vocabulary, K best tokens.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from typing import Annotated

import torch
from torch import Tensor

from cutaway.decode.sentence_settings import Pooling
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.outcome import forced_tokens, masked_positions
from cutaway.inspection.page_parts import folded
from cutaway.inspection.question import Suggesting, Suggestion, question
from cutaway.inspection.questions.sweep import HeadEffect, HeadSweep, Stored, effect_atlas, ranking
from cutaway.inspection.runs import Run, Tokens, piece_of
from cutaway.inspection.sentences import POOLINGS, sentence_settings, sentence_vectors
from cutaway.inspection.terms import PROBABILITY, SOURCE, TOKENS
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Block, Heading, Line, Page, Prose, Tinted, page
from cutaway.page.numbers import number, share
from cutaway.words import Phrase, say

EXPECTED = 5  # tokens listed at a place


@dataclass(frozen=True)
class Expected:
    """The most probable tokens at a position of the output, K of them, best first."""

    position: int
    tokens: Tokens
    log_probs: Tensor  # (K,)


@dataclass(frozen=True)
class Vector:
    """A text's vector (D,), made as `cutaway.embed` makes it."""

    values: Tensor
    pooling: Pooling
    normalised: bool


@dataclass(frozen=True, repr=False)
class Overview(Suggesting):
    """What a run comes to. Logarithms are natural.

    `source` and `target` are the tokens of both sides: of a translation what was read and what was written, else what
    the model reads on the side that it has. `text` is what was written; empty but for a translation. `outcome` are the
    tokens that the output is judged by (see `outcome.Forced`), `log_probs` (T,) their log-probabilities. `expected`
    holds the most probable tokens where they tell most: of a translation at its least probable token, of a decoder-only
    model after the text, of a masked one in each gap. `sweep` is what the output loses without each head (Michel et al.
    2019, §3.2).

    A model without output head gives no words: `log_probs` and `expected` are empty, and `vector` is what it makes of
    the text, which is None for every other model.
    """

    model: str  # the name of its folder
    source: Tokens | None
    target: Tokens | None
    text: str
    outcome: Tokens
    log_probs: Tensor
    expected: tuple[Expected, ...]
    sweep: HeadSweep
    vector: Vector | None = None

    @property
    def heads(self) -> tuple[HeadEffect, ...]:
        """The heads that the output depends on most."""
        return self.sweep.heads

    def page(self) -> Page:
        return _page(self)

    def suggestions(self) -> Iterator[Suggestion]:
        return _suggestions(self)


@question(say("A text at a glance: what the model makes of it, and the heads that this depends on."), "text")
def overview(
    run: Run,
    *,
    top: Annotated[int, Option(say("Heads that are listed."), at_least=1)] = 5,
    progress: Progress | None = None,
) -> Overview:
    """Look at a run as a whole: one pass, and `sweep`'s from each block on. `progress` is `sweep`'s."""
    translating = isinstance(run.model, EncoderDecoder)
    name, target = run.loaded.name, run.outcome if translating else run.target
    stored = Stored(run)
    effects = stored.sweep(top, progress)
    if stored.logits is None:
        settings = sentence_settings(run.loaded)
        (values,) = sentence_vectors(run.loaded, stored.states[None])
        vector = Vector(values.cpu(), settings.pooling, settings.normalise)
        nothing = torch.empty(0)
        return Overview(name, run.source, target, "", Tokens([], []), nothing, (), effects, vector)
    scores = stored.logits.float().log_softmax(dim=-1)
    forced = forced_tokens(run, stored.logits)
    ids = torch.tensor(forced.ids, device=scores.device)
    log_probs = scores.gather(1, ids[:, None])[:, 0].cpu()
    if translating:
        positions = [int(log_probs.argmin())]
    else:
        positions = [len(scores) - 1] if isinstance(run.model, DecoderOnly) else masked_positions(run)
    return Overview(
        model=name,
        source=run.source,
        target=target,
        text=run.loaded.require_tokenizer().decode(run.outcome.ids) if translating else "",
        outcome=Tokens(forced.ids, [piece_of(run, id) for id in forced.ids]),
        log_probs=log_probs,
        expected=tuple(_expected(run, scores[position], position) for position in positions),
        sweep=effects,
    )


def _expected(run: Run, scores: Tensor, position: int) -> Expected:
    best = scores.topk(min(EXPECTED, len(scores)))
    ids: list[int] = best.indices.tolist()
    return Expected(position, Tokens(ids, [piece_of(run, id) for id in ids]), best.values.cpu())


def _suggestions(found: Overview) -> Iterator[Suggestion]:
    first = found.heads[0]
    position = found.expected[0].position if found.expected else 0
    if found.source is not None and found.target is not None:
        yield Suggestion(say("where each word looked, and what it depends on"), "align", {})
    if found.vector is None:
        yield Suggestion(say("what is written with a word covered"), "cover", {})
        piece = found.outcome.pieces[position]
        about = say("'{piece}': where every head looked there", piece=piece)
        yield Suggestion(about, "word", {"at": position})
        about = say("what else might stand there, with temperature, top-k and top-p")
        yield Suggestion(about, "candidates", {"at": position})
    yield Suggestion(say("one token's whole way through the model"), "flow", {})
    where = f"{first.layer}.{first.head}"
    head = {"side": first.side, "layer": first.layer, "head": first.head}
    about = say("the strongest head, {where}: which token weighs which", where=where)
    yield Suggestion(about, "attention", head)
    if found.vector is None:
        yield Suggestion(say("what each layer would say, were it the last"), "lens", {})
        yield Suggestion(say("which tokens it depends on, by gradients"), "gradients", {})
    without = {"changes": [{"op": "head", **head}]}
    yield Suggestion(say("the same without head {where}", where=where), "diff", without)
    if found.vector is None:
        name, index = "head.logits", [0, position, found.outcome.ids[position]]
    else:
        name, index = "sentence_vector" if found.vector.normalised else "pooled", [0, 0]
    about = say("one number with its formula, worked out again")
    yield Suggestion(about, "explain", {"name": name, "index": index})


# Its page.

SHOWN = 4  # numbers of a vector


def _page(found: Overview) -> Page:
    effect = say("by how many nats the log-probability of the output falls with this head switched off")
    numbers: list[Block] = []
    if found.vector is not None:
        effect = say(
            "1 minus the cosine between the vector and what it is with this head switched off, in thousandths"
        )
        values = folded(found.vector.values, "v", say("coordinate"))
        numbers = [Heading(say("The vector, number by number")), values]
    output = found.sweep.output
    return page(
        say("What {model} makes of this text", model=found.model),
        [
            *_tokens(found),
            Heading(say("The heads that this output depends on most")),
            ranking(found.heads, found.sweep.unit),
            say(
                "effect: {effect} (the output: {output}); dependence, not purpose.",
                effect=effect,
                output=output,
            ),
            *numbers,
            Heading(say("What the output loses without each head")),
            effect_atlas(found.sweep),
        ],
    )


def _tokens(found: Overview) -> list[Block]:
    """What the model read, and what it made of it."""
    probabilities: list[float] = found.log_probs.exp().tolist()
    if found.source is not None and found.target is not None:
        least = found.expected[0]
        written, p = found.outcome.pieces[least.position], probabilities[least.position]
        others = _words(least, without=found.outcome.ids[least.position])
        return [
            Line(SOURCE, found.source.pieces),
            Line(say("writes"), _tinted(found.outcome.pieces, probabilities), tint=PROBABILITY),
            Prose(say("translation"), found.text),
            Prose(PROBABILITY, _mean(found.log_probs.tolist())),
            Line(say("least sure"), [Tinted(f"{written} {share(p)}", p), say("or"), *others[:4]]),
        ]
    read = found.source or found.target
    assert read is not None
    if found.vector is not None:
        return [Line(TOKENS, read.pieces), Prose(say("gives"), _made(found.vector))]
    if found.source is not None:
        gaps = [Line(say("gap {position}", position=each.position), _words(each)) for each in found.expected]
        return [Line(TOKENS, read.pieces), *gaps]
    # What stands before position t is read there, so the first token has no probability and the last is not read.
    given = probabilities[: len(read) - 1]
    whole = [Prose(PROBABILITY, _mean(found.log_probs.tolist()[: len(given)]))] if given else []
    return [
        Line(TOKENS, [read.pieces[0], *_tinted(read.pieces[1:], given)], tint=PROBABILITY),
        *whole,
        *(Line(say("next token"), _words(each)) for each in found.expected),
    ]


def _words(expected: Expected, without: int | None = None) -> list[Tinted]:
    pairs = zip(expected.tokens.ids, expected.tokens.pieces, expected.log_probs.exp().tolist(), strict=True)
    return [Tinted(f"{piece} {share(p)}", p) for id, piece, p in pairs if id != without]


def _tinted(pieces: Sequence[str], probabilities: Sequence[float]) -> list[Tinted]:
    return [Tinted(piece, p, hint=share(p)) for piece, p in zip(pieces, probabilities, strict=True)]


def _mean(log_probs: Sequence[float]) -> Phrase:
    """All tokens' probability together, and that of each in the mean."""
    total = sum(log_probs)
    each = share(exp(total / len(log_probs)))
    return say("e^{total:.2f}, {each} a token (geometric mean)", total=total, each=each)


def _made(vector: Vector) -> Phrase:
    return say(
        "a vector of {size:,} numbers, {first} …: {pooling}{length}. This model has no output "
        "head, so it gives no words.",
        size=len(vector.values),
        first=" ".join(map(number, vector.values[:SHOWN].tolist())),
        pooling=POOLINGS[vector.pooling],
        length=say(", made 1 long") if vector.normalised else "",
    )
