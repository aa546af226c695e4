"""A word covered: what the model writes without it, and where it looked while it wrote each word."""

# Shapes: T written tokens, S tokens read, N target units, M source units, H heads.

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import pad

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.complete import prepare_prompt
from cutaway.decode.text_model import mask_id_of
from cutaway.decode.translator import Translator
from cutaway.errors import CutawayError
from cutaway.inspection.changes.lists import ChangeList, edits, read_changes
from cutaway.inspection.changes.writing import decoder_start, write
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import filled_gaps, masked_positions
from cutaway.inspection.page_parts import array
from cutaway.inspection.question import WORDS, Suggesting, Suggestion, Translating, question
from cutaway.inspection.questions.diff import token_edits
from cutaway.inspection.runs import Beam, GivenTarget, Run, Tokens, ToLanguage, position_in, run, tokens_of
from cutaway.inspection.terms import ATTENTIONS, SOURCE, TOKENS, WEIGHT
from cutaway.inspection.units import Unit, units, units_of
from cutaway.inspection.wiring import Side, places
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Edit, Edited, Heading, Line, Matrix, Page, Prose, Tinted, page
from cutaway.page.numbers import share
from cutaway.tap import Trace
from cutaway.words import Phrase, Text, listed, say, say_in

NEW_TOKENS = 24  # that a decoder-only model writes, unless given
HALF = 0.5  # of the weight: what a sentence about a word must account for, if a few units can
NAMED = 3  # units that such a sentence names at most

Words = tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """What is written with nothing covered."""

    target: tuple[Unit, ...]
    text: str


@dataclass(frozen=True, repr=False)
class Cover(Suggesting, Translating):
    """What a model writes while some of what it reads is covered, and where it looked.

    `source` and `target` are the units of what it reads and of what it writes now, `text` what that says, `base` the
    same with nothing covered, and `edits` lead from its words to those of now (Python's difflib). `hidden` are the
    positions of the tokens that are covered.

    `weights` (N, M): attention, the mean of all heads of all layers, summed over the tokens of a source unit and
    averaged over those of a target unit. Of an encoder-decoder cross-attention, in whose rows nothing is missing; of a
    decoder-only model self-attention from the position that wrote the token, in whose rows the weight on what was
    written before is left out; of an encoder-only model self-attention of the gap. It says where the model read, not
    what a word depends on. `told` says each row in a sentence. `light` is the target unit to look at first; None where
    no word was written. `sentence` says what covering did, or what to do where there is nothing to write.

    The sentences that are told name the source units of the greatest weight, as few as have half of it together, three
    at most. `light` is chosen among words, control tokens and punctuation left out: of those with half of the weight on
    one or two source words (of all words where none is like that), the one with the greatest weight times tokens, its
    own and those of these source words, since there a reader sees most of how pieces become words; and of several
    written from the same source words, the first.
    """

    family: str
    source: tuple[Unit, ...]
    target: tuple[Unit, ...]
    weights: Tensor
    told: tuple[Phrase, ...]
    light: int | None
    hidden: tuple[int, ...]
    base: Written
    text: str
    edits: tuple[tuple[Edit, Words, Words], ...]
    sentence: Phrase | None

    def page(self) -> Page:
        return _page(self)

    @property
    def output(self) -> str:
        return self.text

    def suggestions(self) -> Iterator[Suggestion]:
        if self.family == "encoder-decoder":
            yield Suggestion(say("where each word looked, and what it depends on"), "align", {})
            yield Suggestion(say("what else the search weighed, and why it was dropped"), "tree", {})
        yield Suggestion(
            say("what else might stand there, with temperature, top-k and top-p"), "candidates", {}
        )
        yield Suggestion(say("one token's whole way through the model"), "flow", {})


@question(
    say(
        "What is written with words of the text covered, and where the model looked while it wrote each word."
    ),
    "text",
    WORDS,
)
def cover(
    loaded: Loaded,
    text: Annotated[str, Option(say("The text that the model reads."), positional=True)],
    *,
    hide: Annotated[tuple[int, ...], Option(say("Positions of the tokens to cover, from 0."))] = (),
    target: GivenTarget = None,
    to: ToLanguage = None,
    beam: Beam = None,
    max_new_tokens: Annotated[
        int | None,
        Option(say("Tokens that a decoder-only model writes after the text, 24 unless given."), at_least=1),
    ] = None,
) -> Cover:
    """Write with some tokens of the text covered, and without, and look where the model looked.

    An encoder-decoder translates a source whose covered tokens are hidden (op `hide`). A decoder-only model goes on
    writing after a text whose covered tokens no later one sees; covered ones at the text's end are left out. An
    encoder-only model finds `[MASK]` in the place of each covered token, and fills all gaps.
    Raises CutawayError for a text that is empty, too long or not of this model's kind, a position that it has not, and
    where nothing is left to read.
    """
    if target is not None and hide:
        raise CutawayError(
            "target and hide are given: a given translation is looked at as it is, and nothing is written; "
            "leave one of them out"
        )
    length = NEW_TOKENS if max_new_tokens is None else max_new_tokens
    base = run(loaded, text, target=target, to=to, beam=beam, max_new_tokens=length)
    if isinstance(loaded.model, EncoderDecoder):
        return _translated(base, hide, beam)
    if isinstance(loaded.model, DecoderOnly):
        return _continued(base, prepare_prompt(loaded, text).ids, hide, length)
    return _filled(base, hide)


def _translated(base: Run, hide: Sequence[int], beam: int | None) -> Cover:
    assert base.source is not None
    hidden, now = _places(base.source, hide), base
    before = after = Written(units(base, "decoder"), _text(base.loaded, base.outcome.ids))
    if hidden:
        start = decoder_start(base, Translator(base.loaded))
        ids = [*start, *write(base, _hiding(hidden), beam=beam).ids]
        now = _writing(base.loaded, base.source, ids)
        after = Written(units(now, "decoder"), _text(now.loaded, now.outcome.ids))
    weights = _attention(now, "cross", _hiding(hidden))
    return _found(base.loaded, units(base, "encoder"), before, after, weights, hidden)


def _continued(base: Run, prompt: list[int], hide: Sequence[int], length: int) -> Cover:
    assert base.target is not None
    loaded, read = base.loaded, tokens_of(base.loaded, prompt)
    hidden = _places(read, hide)
    ids = [*base.target.ids[:1], *base.outcome.ids]
    before = after = _continuation(loaded, ids[len(prompt) :])
    kept = max(place for place in range(len(prompt)) if place not in hidden) + 1
    changes = _hiding([place for place in hidden if place < kept])
    if hidden:
        asked = Run(
            loaded, None, tokens_of(loaded, prompt[: kept - 1]), tokens_of(loaded, prompt[kept - 1 : kept])
        )
        ids = [*prompt[:kept], *write(asked, changes, max_new_tokens=length).ids]
        after = _continuation(loaded, ids[kept:])
    seen = _attention(_writing(loaded, None, ids), "decoder", changes)[kept - 1 :, :kept]
    weights = pad(seen, (0, len(prompt) - kept))
    return _found(loaded, units_of(loaded, read, source=True), before, after, weights, hidden)


def _continuation(loaded: Loaded, ids: list[int]) -> Written:
    return Written(units_of(loaded, tokens_of(loaded, ids), source=False), _text(loaded, ids))


def _filled(base: Run, hide: Sequence[int]) -> Cover:
    assert base.source is not None
    loaded, ids = base.loaded, base.source.ids
    tokenizer, hidden = loaded.require_tokenizer(), _places(base.source, hide)
    mask = mask_id_of(loaded)
    if mask is None:
        mask = tokenizer.require("mask")
    for place in hidden:
        if ids[place] != mask and tokenizer.is_control(ids[place]):
            raise CutawayError(
                "position {place} is {piece}, a control token, and no word belongs there; cover words",
                place=place,
                piece=base.source.pieces[place],
            )
    read = tokens_of(loaded, [mask if place in hidden else id for place, id in enumerate(ids)])
    now = Run(loaded, read, None, read)
    gaps, taps = masked_positions(now), _taps(now, "encoder")
    logits, trace = now.forward(taps)

    def written(ids: list[int]) -> tuple[tuple[Unit, ...], Written]:
        """All units of the text, and what fills its gaps."""
        whole = units_of(loaded, tokens_of(loaded, ids), source=True)
        of_gaps = (each for each in whole if not gaps or any(place in gaps for place in range(*each.tokens)))
        return whole, Written(tuple(of_gaps), _text(loaded, ids))

    whole, after = written(filled_gaps(now, logits))
    before_whole, before = whole, after
    if hidden:
        unfilled = not masked_positions(base)
        before_whole, before = written(ids if unfilled else filled_gaps(base, base.forward()[0]))
    found = _found(loaded, units(base), before, after, _mean_of(trace, taps), hidden, gaps=bool(gaps))
    return replace(found, edits=_edits(before_whole, whole))


def _hiding(hidden: Sequence[int]) -> ChangeList:
    return read_changes([{"op": "hide", "token": list(hidden)}] if hidden else [])


def _places(read: Tokens, hide: Sequence[int]) -> tuple[int, ...]:
    """The positions that are covered, in order. CutawayError for one that the text has not, and where none is left."""
    hidden = tuple(sorted({position_in(read, place) for place in hide}))
    if len(hidden) == len(read):
        raise CutawayError(
            "hide names all {n} tokens of the text, so nothing is left to read; leave one uncovered",
            n=len(read),
        )
    return hidden


def _writing(loaded: Loaded, source: Tokens | None, ids: list[int]) -> Run:
    """A run whose decoder reads these ids but for the last, and writes them but for the first."""
    return Run(loaded, source, tokens_of(loaded, ids[:-1]), tokens_of(loaded, ids[1:]))


def _text(loaded: Loaded, ids: Sequence[int]) -> str:
    return loaded.require_tokenizer().decode(ids)


def _attention(asked: Run, side: Side, changes: ChangeList) -> Tensor:
    """The mean of all heads of all layers (T, S) under changes, by one pass."""
    taps = _taps(asked, side)
    return _mean_of(asked.hidden(taps, edits(changes, asked))[1], taps)


def _taps(asked: Run, side: Side) -> dict[str, Callable[[Tensor], Tensor]]:
    return {f"{place.attention_path}.pattern": _mean_of_heads for place in places(asked.model, side)}


def _mean_of_heads(pattern: Tensor) -> Tensor:
    """(1, H, T, S) -> (T, S)."""
    return pattern[0].float().mean(dim=0)


def _mean_of(trace: Trace, taps: Iterable[str]) -> Tensor:
    return torch.stack([trace[name] for name in taps]).mean(dim=0).cpu()


def _found(
    loaded: Loaded,
    source: tuple[Unit, ...],
    before: Written,
    after: Written,
    weights: Tensor,
    hidden: tuple[int, ...],
    *,
    gaps: bool = True,
) -> Cover:
    """The answer; weights (T, S) are those between tokens. Without `gaps` nothing was written."""
    target, family = after.target, loaded.config.family
    weights = _between_units(weights, target, source)
    looked = [_looked(row, range(len(source)), NAMED) for row in weights.tolist()]
    told = tuple(
        _told(
            each,
            [_named(source[place], hidden) for place in at],
            sum(row[place] for place in at),
            family,
            gaps,
        )
        for each, at, row in zip(target, looked, weights.tolist(), strict=True)
    )
    sentence = _sentence(_covered(source, hidden), before.text, after.text) if hidden else None
    if not gaps:
        sentence = say(
            "The text has no gap that the model could fill: cover a word, or write [MASK] in its place."
        )
    return Cover(
        family=family,
        source=source,
        target=target,
        weights=weights,
        told=told,
        light=_light(target, source, weights.tolist()),
        hidden=hidden,
        base=before,
        text=after.text,
        edits=_edits(before.target, after.target),
        sentence=sentence,
    )


def _between_units(weights: Tensor, target: Sequence[Unit], source: Sequence[Unit]) -> Tensor:
    """(T, S) -> (N, M): summed over the tokens of a source unit, the mean of those of a target unit."""
    summed = torch.stack([weights[:, slice(*each.tokens)].sum(dim=1) for each in source], dim=1)  # (T, M)
    means = [summed[slice(*each.tokens)].mean(dim=0) for each in target]
    return torch.stack(means) if means else summed[:0]


def _edits(before: Sequence[Unit], after: Sequence[Unit]) -> tuple[tuple[Edit, Words, Words], ...]:
    words = ([each.text for each in whole if not each.control] for whole in (before, after))
    return tuple((each.kind, each.base_pieces, each.changed_pieces) for each in token_edits(*words))


def _looked(row: Sequence[float], among: Iterable[int], most: int) -> list[int]:
    """Places of the greatest weights, in order: as few as have half of all together, and at most so many."""
    found: list[int] = []
    for place in sorted(among, key=lambda place: -row[place]):
        if len(found) == most or sum(row[each] for each in found) >= HALF:
            break
        found.append(place)
    return sorted(found)


def _light(target: Sequence[Unit], source: Sequence[Unit], weights: list[list[float]]) -> int | None:
    """The target unit to look at first; see `Cover`."""
    words = [place for place, each in enumerate(source) if _is_word(each)]
    ranked: list[tuple[bool, float, list[int], int]] = []
    for place, (each, row) in enumerate(zip(target, weights, strict=True)):
        looked = _looked(row, words, 2)
        weight = sum(row[at] for at in looked)
        tokens = sum(unit.tokens[1] - unit.tokens[0] for unit in (each, *(source[at] for at in looked)))
        if _is_word(each):
            ranked.append((weight >= HALF, weight * tokens, looked, place))
    if not ranked:
        return None
    enough, _, read, _ = max(ranked, key=lambda each: each[:2])
    return next(place for half, _, looked, place in ranked if (half, looked) == (enough, read))


def _is_word(unit: Unit) -> bool:
    return not unit.control and any(map(str.isalnum, unit.text))


# What is said about it.


_BETWEEN = say_in("list", ", ")


def _told(word: Unit, looked: Sequence[Text], weight: float, family: str, gaps: bool) -> Phrase:
    """Where the model looked while it wrote a unit."""
    attention = ATTENTIONS["cross" if family == "encoder-decoder" else "self"]
    values = {
        "word": _named(word) if word.control else say("“{text}”", text=word.text),
        "percent": f"{100 * weight:.0f}",
        "attention": attention,
        "places": _together(looked),
    }
    if family != "encoder-only":
        return say(
            "While it wrote {word}, {percent} % of the {attention} (mean of all heads) lay on {places}.",
            **values,
        )
    if gaps:
        return say(
            "Where it put {word}, {percent} % of the {attention} (mean of all heads) lay on {places}.",
            **values,
        )
    return say("At {word}, {percent} % of the {attention} (mean of all heads) lay on {places}.", **values)


def _named(unit: Unit, hidden: Sequence[int] = ()) -> Text:
    """A unit in a sentence; in brackets where it is covered."""
    if unit.control:
        return say("the mark “{name}”", name=unit.name)
    name = _spelled(unit.text)
    return say("[{name}]", name=name) if {*range(*unit.tokens)} & {*hidden} else name


def _spelled(text: str) -> Phrase:
    """A word as it stands in a sentence, in quotation marks where English needs them, too."""
    if any(map(str.isalnum, text)):
        return say_in("a word named", "{text}", text=text)
    return say("“{text}”", text=text)


def _together(names: Sequence[Text]) -> Text:
    """One name, or several with "and" before the last."""
    *others, last = names
    return say("{names} and {last}", names=listed(others, _BETWEEN), last=last) if others else last


def _covered(source: Sequence[Unit], hidden: Sequence[int]) -> Phrase:
    """What is covered: units, or pieces where not all of a unit is."""
    found: list[Text] = []
    for each in source:
        pieces = [
            each.pieces[place - each.tokens[0]]
            for place in hidden
            if each.tokens[0] <= place < each.tokens[1]
        ]
        found += [_named(each)] if len(pieces) == len(each.pieces) else map(_spelled, pieces)
    return listed(found, _BETWEEN)


def _sentence(covered: Phrase, before: str, after: str) -> Phrase:
    if not after:
        return say("With {covered} covered, the model writes nothing.", covered=covered)
    if after == before:
        return say("With {covered} covered, the model writes the same: {text}", covered=covered, text=after)
    return say("With {covered} covered, the model writes: {text}", covered=covered, text=after)


# Its page.


def _page(found: Cover) -> Page:
    lit, sentences = found.light, found.told
    weights = [0.0] * len(found.source) if lit is None else found.weights[lit].tolist()
    read = [
        Tinted(
            say("[{name}]", name=each.name) if {*range(*each.tokens)} & {*found.hidden} else each.name,
            weight,
            hint=share(weight),
        )
        for each, weight in zip(found.source, weights, strict=True)
    ]
    names, columns = ([each.name for each in side] for side in (found.target, found.source))
    covered = [found.sentence, Edited(found.edits)] if found.hidden else [found.sentence]
    return page(
        say("What is written, and where the model looked"),
        [
            Line(
                SOURCE if found.family == "encoder-decoder" else TOKENS,
                read,
                tint=None if lit is None else say("weight at {word}", word=names[lit]),
            ),
            Prose(say("writes"), found.text),
            None if lit is None else sentences[lit],
            *covered,
            Heading(say("Where it looked, word by word")),
            Matrix(array(found.weights), names, columns, say("written"), say("read"), WEIGHT)
            if names
            else None,
            say(
                "Attention, the mean of all heads and layers, summed over a word's tokens on the reading side and "
                "averaged on the writing side. It says where the model read, not what a word depends on: cover a word "
                "to see that (option hide; covered words stand in brackets)."
            ),
        ],
    )
