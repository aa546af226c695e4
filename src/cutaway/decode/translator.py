"""Texts in, translations out: which language into which, how the model is told, and the encoder-decoder with its
tokenizer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import opencc
import torch

from cutaway.checkpoint.folder import Loaded
from cutaway.decode import text_model
from cutaway.decode.generation import generate, stream
from cutaway.decode.own_settings import own_settings
from cutaway.decode.search import GREEDY, Limits, Search
from cutaway.decode.stepping import batches, pad_right
from cutaway.errors import CutawayError, nearest
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.cache import Cache
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, Text, listed, say

Language = str  # "en" or "zh"
OURS = {"en": ">>eng<<", "zh": ">>zho<<"}
# What names a language before the source (OPUS-MT), the best name first.
_BEFORE_SOURCE = {
    "en": (OURS["en"], ">>en<<"),
    "zh": (OURS["zh"], ">>cmn_Hans<<", ">>cmn<<", ">>zh<<", ">>zh_CN<<", ">>zh_cn<<"),
}
# What names a language where a text of it begins, source and target alike (M2M100; NLLB; mBART-50).
_BEFORE_BOTH = {"en": ("__en__", "eng_Latn", "en_XX"), "zh": ("__zh__", "zho_Hans", "zh_CN")}

_HAN = re.compile("[〇㐀-䶿一-鿿豈-﫿\U00020000-\U0003347f]")

BEAM = Search(beam=4)
_ONE = say("the text")
_EMPTY = text_model.Hypothesis("", [], [], [], 0.0, "stop", [])


@dataclass(frozen=True)
class Source:
    """A text made ready for the encoder. Of a blank text there are no ids, else the language token if the model has
    one, the text's, and the end token."""

    text: str  # as it was given
    to: Language | None  # None for a model of one direction
    ids: list[int]
    pieces: list[str]  # as a reader sees them
    notes: tuple[Phrase, ...]  # what was done to the text on the way
    cut: bool  # whether its end was left out


@dataclass(frozen=True)
class Translation:
    """A source and what became of it, the best first."""

    source: Source
    hypotheses: list[text_model.Hypothesis]

    @property
    def best(self) -> text_model.Hypothesis:
        return self.hypotheses[0]


class Translator:
    """Translates with an encoder-decoder checkpoint. Models with language tokens translate into what those name (see
    `route`); others do the one thing they were trained for.

    Raises CutawayError when the checkpoint is of another family or lacks what translating needs.
    """

    def __init__(self, loaded: Loaded):
        self.tokenizer = text_model.tokenizer_for(loaded, "encoder-decoder")
        assert isinstance(loaded.model, EncoderDecoder)
        self.model, self.config = loaded.model.eval(), loaded.config
        self.end_ids = text_model.end_ids_of(loaded)
        start = text_model.id_of(loaded, "decoder_start_token_id", self.config.decoder_start_id)
        if not self.end_ids or start is None:
            missing = "decoder_start_token_id" if self.end_ids else "eos_token_id"
            raise CutawayError(
                "{path}: config.json lacks {missing}, which translating needs",
                path=loaded.path,
                missing=missing,
            )
        self._forbidden = text_model.unwanted_ids(loaded, self.tokenizer)
        self._route = route(self.tokenizer, self.end_ids[0])
        forced = text_model.id_of(loaded, "forced_bos_token_id")
        self.own = own_settings(loaded)
        # what the decoder reads before it writes: its start token, and what is forced on it as the first word
        self._start = start
        self._forced = [] if forced is None else [forced]

    @property
    def languages(self) -> list[Language]:
        """What `to` may be; empty for a model of one direction."""
        return list(self._route.ways)

    def translate(
        self,
        texts: Sequence[str],
        *,
        to: Language | None = None,
        search: Search | None = None,
        limits: Limits | None = None,
        truncate: bool = False,
        batch_size: int = 32,
        numbered_from: int = 1,
    ) -> list[Translation]:
        """One translation a text, in order; a blank text gives an empty one.

        `to` is "en" or "zh"; None decides by the text. `search` and `limits` are the model's `own` unless given, and
        where it has none a beam of 4, and at most twice the source's tokens and 20; never more than the model's
        positions. What a `search` leaves open, its `rules`, is the model's.
        `truncate` cuts a text that is too long for the model (and notes it) instead of refusing it.
        Raises CutawayError for a language that the model cannot be asked for, and for texts beyond the position limit,
        which it names by their number, counted from `numbered_from`.
        """
        search, limits = self.own.settled(search, BEAM), limits or self.own.limits()
        several = len(texts) > 1 or numbered_from > 1
        sources = [
            self.prepare(
                text,
                to=to,
                limits=limits,
                truncate=truncate,
                name=say("text {number}", number=number) if several else _ONE,
            )
            for number, text in enumerate(texts, start=numbered_from)
        ]
        found = [Translation(source, [_EMPTY]) for source in sources]
        for places in batches([source.ids for source in sources], batch_size):
            if not (batch := [i for i in places if sources[i].ids]):
                continue
            results = generate(
                self.model,
                self._begin([sources[i].ids for i in batch]),
                [self.start(sources[i]) for i in batch],
                search=search,
                limits=[self._limits(sources[i], limits) for i in batch],
                eos_id=self.end_ids,
                forbidden=self._forbidden,
                places=batch,
            )
            for i, result in zip(batch, results, strict=True):
                source, full = sources[i], search.attention == "full"
                hypotheses = [
                    text_model.readable(self.tokenizer, each, len(source.ids), full) for each in result
                ]
                found[i] = Translation(source, hypotheses)
        return found

    def stream(
        self,
        text: str,
        *,
        to: Language | None = None,
        search: Search | None = None,
        limits: Limits | None = None,
        truncate: bool = False,
    ) -> Iterator[text_model.StreamedToken]:
        """Translate one text greedily or by sampling, token by token; a blank text gives none. `prepare` tells
        the source pieces. Arguments and errors as in `translate`; errors are raised at once."""
        search, limits = self.own.settled(search, GREEDY, beam=1), limits or self.own.limits()
        source = self.prepare(text, to=to, limits=limits, truncate=truncate)
        if not source.ids:
            return iter(())
        steps = stream(
            self.model,
            self._begin([source.ids]),
            [self.start(source)],
            search=search,
            limits=self._limits(source, limits),
            eos_id=self.end_ids,
            forbidden=self._forbidden,
        )
        return text_model.read_stream(self.tokenizer, steps)

    def prepare(
        self,
        text: str,
        *,
        to: Language | None = None,
        limits: Limits | None = None,
        truncate: bool = False,
        name: Text = _ONE,
    ) -> Source:
        """What the encoder will read for `text`; `name` is what messages call it. Errors as in `translate`."""
        to = self._direction(text, to)
        notes: list[Phrase] = []
        plain = simplified(text) if self._route.simplified else text
        if plain != text:
            notes.append(say("traditional Chinese characters were converted to simplified ones"))
        if to == "zh" and has_han(text):
            notes.append(
                say("the text has Chinese characters already, and was translated into Chinese as asked")
            )
        encoding = self.tokenizer.encode(plain)
        if not encoding.ids or not text.strip():
            return Source(text, to, [], [], (), False)
        before, after = self._route.around(to)
        room = self.config.max_len - len(before) - len(after)
        whole = kept = len(encoding.ids)
        if whole > room:
            if not truncate:
                raise CutawayError(
                    "{name} has {count} tokens, but this model reads at most {room} at a time ({max_len} "
                    "positions); translate it sentence by sentence, or cut it (truncate)",
                    name=name,
                    count=whole,
                    room=room,
                    max_len=self.config.max_len,
                )
            kept = max((group[-1] + 1 for group in encoding.characters if group[-1] < room), default=0)
            notes.append(
                say(
                    "only the first {kept} of the text's {count} tokens were translated",
                    kept=kept,
                    count=whole,
                )
            )
        notes += (limits or self.own.limits()).shortened(self._begun(to), self.config.max_len)
        ids = [*before, *encoding.ids[:kept], *after]
        named = self.tokenizer.readable
        pieces = [*map(named, before), *encoding.pieces[:kept], *map(named, after)]
        return Source(text, to, ids, pieces, tuple(notes), kept < whole)

    def _direction(self, text: str, to: Language | None) -> Language | None:
        if to is not None and to not in OURS:
            raise CutawayError(
                "to is {to!r}{hint}, expected one of {languages}",
                to=to,
                hint=nearest(to, OURS),
                languages=listed(OURS),
            )
        if to is not None and not self._route.ways:
            raise CutawayError(
                "this model has no language token for {to!r}: it translates one way only, so leave out "
                "the target language",
                to=to,
            )
        if not self._route.ways:
            return None
        to = to or target_of(text)
        if to not in self._route.ways:
            raise CutawayError(
                "this model does not translate into {to!r}, only into {languages}",
                to=to,
                languages=listed(self._route.ways),
            )
        return to

    def start(self, source: Source) -> list[int]:
        """What the decoder reads before it writes: its start token, and what is forced on it as the first word."""
        return self._begun(source.to)

    def _begun(self, to: Language | None) -> list[int]:
        return [self._start, *(self._route.start(to) or self._forced)]

    def _limits(self, source: Source, limits: Limits) -> Limits:
        return limits.within(self.config.max_len, usual=2 * len(source.ids) + 20)

    def _begin(self, sources: Sequence[Sequence[int]]) -> Cache:
        ids, mask = pad_right(sources, self.config.pad_id or 0, next(self.model.parameters()).device)
        with torch.inference_mode():
            return self.model.begin(ids, mask)


@dataclass(frozen=True)
class Route:
    """How a model is told what to do. `ways` are the languages it can be asked for, each with its token, none where
    it only does one thing; `begins_target` says that the token begins the target, and the source's begins it."""

    ways: Mapping[Language, int]
    begins_target: bool
    before: tuple[int, ...]  # what stands around a source whatever the language
    after: tuple[int, ...]
    simplified: bool  # the model was trained on simplified characters only

    def around(self, to: Language | None) -> tuple[list[int], list[int]]:
        """The control tokens before and after a source that is to be translated into `to`."""
        if to is None:
            return list(self.before), list(self.after)
        other = next((id for language, id in self.ways.items() if language != to), None)
        named = other if self.begins_target else self.ways[to]
        return [*([] if named is None else [named]), *self.before], list(self.after)

    def start(self, to: Language | None) -> list[int]:
        """What the decoder reads after its start token before it begins to write."""
        return [self.ways[to]] if to is not None and self.begins_target else []


def route(tokenizer: Tokenizer, end_id: int) -> Route:
    """The route that a model's vocabulary shows: by its language tokens, and by what its tokenizer.json puts around a
    text. Every source ends with the end token."""
    before, after = tokenizer.around
    for names, begins_target in ((_BEFORE_SOURCE, False), (_BEFORE_BOTH, True)):
        found = {language: _first_control(tokenizer, tokens) for language, tokens in names.items()}
        ways = {language: id for language, id in found.items() if id is not None}
        if ways:
            ours = set(ways.values()) == {tokenizer.id(token) for token in OURS.values()}
            return Route(ways, begins_target, (), (end_id,), simplified=ours)
    return Route({}, False, tuple(before), tuple(after or [end_id]), simplified=False)


def _first_control(tokenizer: Tokenizer, tokens: tuple[str, ...]) -> int | None:
    ids = (tokenizer.id(token) for token in tokens)
    return next((id for id in ids if id is not None and tokenizer.is_control(id)), None)


def target_of(text: str) -> Language:
    """The language to translate into when none is given: English when there are Chinese characters, else Chinese."""
    return "en" if has_han(text) else "zh"


def has_han(text: str) -> bool:
    return _HAN.search(text) is not None


def simplified(text: str) -> str:
    """Traditional Chinese characters as simplified ones, by the dictionaries of OpenCC ("t2s")."""
    return _converter().convert(text) if has_han(text) else text


@cache
def _converter() -> opencc.OpenCC:
    return opencc.OpenCC("t2s")
