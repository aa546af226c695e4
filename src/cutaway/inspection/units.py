"""A text's pieces grouped as a reader sees words, and what its control tokens are called."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.translator import Translator
from cutaway.inspection.runs import Run, Tokens, stack_named
from cutaway.inspection.wiring import StackName
from cutaway.inspection.word_alignment import WORD, characters
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.text.display import clusters
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, Text, say, say_in

LANGUAGES = {"en": say("English"), "zh": say("Chinese")}
_START, _END = say_in("control token", "start"), say_in("control token", "end")
_ROLES: dict[str, Phrase] = {
    "bos": _START,
    "cls": _START,
    "eos": _END,
    "sep": _END,
    "mask": say_in("control token", "gap"),
    "pad": say_in("control token", "padding"),
}


@dataclass(frozen=True)
class Unit:
    """A smallest run of pieces and words that cuts neither: two Chinese characters that are one piece, or a word that
    is four.

    Words are those of `split_words`. All bytes of a character belong to one unit, and so do the parts of what a reader
    takes for one character (an emoji with its joiners). A space belongs to the word after it, and a control token is a
    unit by itself, as a line's end is where it has a piece of its own.
    """

    text: str  # as a reader sees it, without spaces around it
    tokens: tuple[int, int]  # the first of its tokens, and the one after the last
    control: bool
    name: Text  # what a control token is called; of others the text
    pieces: tuple[str, ...]


def units(run: Run, side: StackName | None = None) -> tuple[Unit, ...]:
    """The units of what a stack reads, or of an encoder-decoder's decoder of what it writes (`run.outcome`); None: the
    output stack. CutawayError for a stack that the model lacks, and for a model without a tokenizer."""
    stack = stack_named(run, side)
    writes = stack.name == "decoder" and isinstance(run.model, EncoderDecoder)
    return units_of(run.loaded, run.outcome if writes else stack.tokens, source=stack.name == "encoder")


def units_of(loaded: Loaded, tokens: Tokens, *, source: bool) -> tuple[Unit, ...]:
    """The units of tokens, cut as those of a source are, or as those of what is written."""
    tokenizer = loaded.require_tokenizer()
    tokenizer = tokenizer if source else tokenizer.target
    text, owners = characters(tokenizer, tokens.ids)
    runs = _runs(tokenizer, tokens, text, owners)
    unit_of = {place: number for number, (first, end) in enumerate(runs) for place in range(first, end)}
    spelled = [""] * len(runs)
    for character, pieces in zip(text, owners, strict=True):
        if pieces:
            spelled[unit_of[pieces[0]]] += character
    found: list[Unit] = []
    for shown, (first, end) in zip(spelled, runs, strict=True):
        pieces, id = tuple(tokens.pieces[first:end]), tokens.ids[first]
        if tokenizer.is_silent(id):
            found.append(Unit(pieces[0], (first, end), True, _name(loaded, id, source=source), pieces))
            continue
        shown = shown.strip()
        # bytes that are no character, and what shows nothing, are seen as pieces
        if not shown or "\ufffd" in shown:
            shown = "".join(pieces)
        found.append(Unit(shown, (first, end), False, shown, pieces))
    return tuple(found)


def _runs(
    tokenizer: Tokenizer, tokens: Tokens, text: str, owners: Sequence[tuple[int, ...]]
) -> list[tuple[int, int]]:
    """The first piece of each unit, and the one after its last, of all pieces in order."""
    joined = [False] * (len(tokens) + 1)  # whether a piece is of the same unit as the one before it
    spells = [False] * len(tokens)
    for start, end in _wholes(text):
        pieces = [piece for owner in owners[start:end] for piece in owner]
        for piece in pieces:
            spells[piece] = True
        if pieces:
            joined[min(pieces) + 1 : max(pieces) + 1] = [True] * (max(pieces) - min(pieces))
    for place, (id, after) in enumerate(pairwise(tokens.ids)):
        space = not spells[place] and not tokenizer.is_silent(id)
        if space and not tokenizer.is_silent(after) and not {"⏎", "␍"} & {*tokens.pieces[place]}:
            joined[place + 1] = True
    firsts = [place for place in range(len(tokens)) if not joined[place]]
    return list(pairwise([*firsts, len(tokens)]))


def _wholes(text: str) -> Iterator[tuple[int, int]]:
    """What must not be cut: words, and what a reader takes for one character; no spaces."""
    yield from (word.span() for word in WORD.finditer(text))
    ends = list(accumulate(map(len, clusters(text)), initial=0))
    yield from ((start, end) for start, end in pairwise(ends) if not text[start:end].isspace())


def _name(loaded: Loaded, id: int, *, source: bool) -> Text:
    """What a control token tells the model; its piece where nothing is known of it."""
    tokenizer = loaded.require_tokenizer()
    role = next((role for role, its in tokenizer.roles.items() if its == id), None)
    if role in _ROLES:
        return _ROLES[role]
    translator = Translator(loaded) if isinstance(loaded.model, EncoderDecoder) else None
    if translator is None or id not in translator.marks:
        return tokenizer.readable(id)
    language = LANGUAGES.get(translator.marks[id], translator.marks[id])
    if source and not translator.marks_target:
        return say("from {language}", language=language)
    return say("into {language}", language=language)
