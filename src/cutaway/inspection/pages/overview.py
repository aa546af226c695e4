"""The page of a text at a glance, which is the first that a reader sees."""

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from cutaway.inspection.pages.changes import POOLINGS, effect_atlas, ranking
from cutaway.inspection.pages.explanation import line_map
from cutaway.inspection.terms import PROBABILITY, SOURCE
from cutaway.page.blocks import Block, Code, Heading, Line, Page, Prose, Remark, Tinted, page
from cutaway.page.numbers import number, share
from cutaway.words import Phrase, Text, say

if TYPE_CHECKING:
    from cutaway.inspection.questions.overview import Expected, Overview, Vector

TOKENS = say("tokens")
SHOWN = 4  # numbers of a vector


def overview_page(found: "Overview", title: Text | None = None, steps: Sequence[Code] = ()) -> Page:
    """`steps`: what to look at next."""
    if title is None:
        title = say("What {model} makes of this text", model=found.model)
    more: list[Block] = []
    if steps:
        more = [Heading(say("What to look at next")), *steps]
    vector = [] if found.vector is None else _numbers(found.vector)
    every = Heading(say("What the output loses without each head"))
    return page(title, [*_tokens(found), *_heads(found), *more, *vector, every, effect_atlas(found.sweep)])


def _tokens(found: "Overview") -> list[Block]:
    """What the model read, and what it made of it."""
    probabilities = found.log_probs.exp().tolist()
    if found.source is not None and found.target is not None:
        least = found.expected[0]
        written = found.outcome.pieces[least.position]
        others = [word for word in least.words if word.id != found.outcome.ids[least.position]]
        doubted = Tinted(f"{written} {share(probabilities[least.position])}", probabilities[least.position])
        return [
            Line(SOURCE, found.source.pieces),
            Line(say("writes"), _tinted(found.outcome.pieces, probabilities), tint=PROBABILITY),
            Prose(say("translation"), found.text),
            Prose(PROBABILITY, _mean(found.log_probs.tolist())),
            Line(
                say("least sure"),
                [doubted, say("or"), *(_word(word.piece, word.value) for word in others[:4])],
            ),
        ]
    read = found.source or found.target
    assert read is not None
    if found.vector is not None:
        return [Line(TOKENS, read.pieces), Prose(say("gives"), _made(found.vector))]
    if found.source is not None:
        return [Line(TOKENS, read.pieces), *(_gap(expected) for expected in found.expected)]
    # What stands before position t is read there, so the first token has no probability and the last is not read.
    given = probabilities[: len(read) - 1]
    whole = [Prose(PROBABILITY, _mean(found.log_probs.tolist()[: len(given)]))] if given else []
    return [
        Line(TOKENS, [read.pieces[0], *_tinted(read.pieces[1:], given)], tint=PROBABILITY),
        *whole,
        *(
            Line(say("next token"), [_word(word.piece, word.value) for word in expected.words])
            for expected in found.expected
        ),
    ]


def _gap(expected: "Expected") -> Line:
    place = say("gap {position}", position=expected.position)
    return Line(place, [_word(word.piece, word.value) for word in expected.words])


def _word(piece: str, log_prob: float) -> Tinted:
    return Tinted(f"{piece} {share(exp(log_prob))}", exp(log_prob))


def _tinted(pieces: Sequence[str], probabilities: Sequence[float]) -> list[Tinted]:
    return [Tinted(piece, p, hint=share(p)) for piece, p in zip(pieces, probabilities, strict=True)]


def _mean(log_probs: Sequence[float]) -> Phrase:
    """All tokens' probability together, and that of each in the mean."""
    total = sum(log_probs)
    each = share(exp(total / len(log_probs)))
    return say("e^{total:.2f}, {each} a token (geometric mean)", total=total, each=each)


def _made(vector: "Vector") -> Phrase:
    pooling, size = POOLINGS[vector.pooling], len(vector.values)
    first = " ".join(map(number, vector.values[:SHOWN].tolist()))
    length = say(", made 1 long") if vector.normalised else ""
    return say(
        "a vector of {size:,} numbers, {first} …: {pooling}{length}. This model has no output "
        "head, so it gives no words.",
        size=size,
        first=first,
        pooling=pooling,
        length=length,
    )


def _heads(found: "Overview") -> list[Block]:
    effect = say("by how many nats the log-probability of the output falls with this head switched off")
    if found.sweep.unit != "nats":
        effect = say(
            "1 minus the cosine between the vector and what it is with this head switched off, in thousandths"
        )
    return [
        Heading(say("The heads that this output depends on most")),
        ranking(found.heads, found.sweep.unit),
        Remark(
            say(
                "effect: {effect} (the output: {output}); dependence, not purpose.",
                effect=effect,
                output=found.sweep.output,
            )
        ),
    ]


def _numbers(vector: "Vector") -> list[Block]:
    name = say("The vector, number by number")
    return [Heading(name), line_map(vector.values.double().numpy(), "v", say("coordinate"))]
