"""Texts in, translations out: the encoder-decoder with its tokenizer."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from cutaway.checkpoint.folder import Loaded
from cutaway.decode import text_model
from cutaway.decode.generation import generate, stream
from cutaway.decode.own_settings import own_settings
from cutaway.decode.route import Language, route, simplified
from cutaway.decode.search import GREEDY, Limits, Search
from cutaway.decode.stepping import batches, pad_right
from cutaway.decode.translation import Sentence, Source, Translation, put_together
from cutaway.errors import CutawayError, TooLong
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.cache import Cache
from cutaway.text.display import has_han
from cutaway.text.folding import edges, folded, is_blank, trimmed
from cutaway.text.sentence_ends import ADDRESS, AFTER_ADDRESS, sentences
from cutaway.text.tokens.encoding import Encoding
from cutaway.words import Phrase, Text, names_of, say

BEAM = Search(beam=4)
_ONE = say("the text")
_NUMBER = re.compile("[0-9]{2,}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_LATIN_END = "\u0250"  # where the letters of Latin end that European languages use


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
                "{path}: config.json lacks {missing}, which translating needs; add it, as the model's makers have it",
                path=loaded.path,
                missing=missing,
            )
        self._forbidden = text_model.unwanted_ids(loaded, self.tokenizer)
        forced = text_model.id_of(loaded, "forced_bos_token_id")
        starts = [] if forced is None else [forced]
        self._route = route(self.tokenizer, self.end_ids[0], start, starts)
        self.own = own_settings(loaded)
        self._unsure_below = _unsure_below(loaded)

    @property
    def languages(self) -> list[Language]:
        """What `to` may be; empty for a model of one direction."""
        return list(self._route.ways)

    @property
    def marks(self) -> dict[int, Language]:
        """The control tokens that name a language, by id."""
        return {mark.id: language for language, mark in self._route.ways.items()}

    @property
    def marks_target(self) -> bool:
        """Whether a mark beside a source names the language to write, and not the source's own."""
        return self._route.names_target

    def translate(
        self,
        texts: Sequence[str],
        *,
        to: Language | None = None,
        search: Search | None = None,
        limits: Limits | None = None,
        truncate: bool = False,
        split: bool = True,
        batch_size: int = 32,
        names: Sequence[Text] | None = None,
        on_too_long: Callable[[int, TooLong], None] | None = None,
    ) -> list[Translation]:
        """One translation a text, in order; a blank text gives an empty one.

        `to` names a language that the model has a mark for, in any spelling (see `route.Route.named`); None: what the
        model usually writes, else en or zh by the text. `search` and `limits` are the model's `own` unless given, and
        where it has none a beam of 4, and at most twice the source's tokens and 20; at least one token, and never more
        than the model's positions. What a `search` leaves open, its `rules`, is the model's. A text is translated
        sentence by sentence, or in one piece without `split`. Our own models leave as it is what has no letters and
        what is in the wanted language already; so is whatever a model has no words for. `truncate` cuts a sentence that
        is too long for the model (and notes it) instead of refusing it.
        Raises CutawayError for a language that the model cannot be asked for, and TooLong for a text beyond the
        position limit, which it calls by its name of `names` ("text 2"); `on_too_long` hears of each such text, by its
        place, in the place of the first being raised, and their translations are empty.
        """
        search, limits = self.own.settled(search, BEAM), limits or self.own.limits()
        if names is None:
            numbered = (say("text {number}", number=number) for number in range(1, len(texts) + 1))
            names = [_ONE] if len(texts) == 1 else list(numbered)
        read: list[list[Sentence]] = []
        for place, (text, name) in enumerate(zip(texts, names, strict=True)):
            try:
                read.append(self._read(text, to, limits, truncate, split, name))
            except TooLong as error:
                if on_too_long is None:
                    raise
                on_too_long(place, error)
                read.append([])
        sources = [each.source for parts in read for each in parts]
        written = iter(self.write(sources, search=search, limits=limits, batch_size=batch_size))
        return [
            put_together(
                text,
                self._route.direction(text, to),
                [_judged(each, next(written), self._unsure_below) for each in parts],
            )
            for text, parts in zip(texts, read, strict=True)
        ]

    def write(
        self,
        sources: Sequence[Source],
        *,
        search: Search | None = None,
        limits: Limits | None = None,
        batch_size: int = 32,
    ) -> list[list[text_model.Hypothesis]]:
        """What the model writes for each source that `prepare` made, the best first; nothing for one without ids.
        Arguments as in `translate`."""
        search = self.own.settled(search, BEAM)
        found = [[text_model.NOTHING] for _ in sources]
        for places in batches([each.ids for each in sources], batch_size):
            if not (batch := [i for i in places if sources[i].ids]):
                continue
            results = generate(
                self.model,
                self._begin([sources[i].ids for i in batch]),
                [self.start(sources[i]) for i in batch],
                search=search,
                limits=[self.limits(sources[i].ids, limits) for i in batch],
                eos_id=self.end_ids,
                forbidden=self._forbidden,
                places=batch,
            )
            full = search.attention == "full"
            for i, result in zip(batch, results, strict=True):
                n_source = len(sources[i].ids)
                found[i] = [text_model.readable(self.tokenizer, each, n_source, full) for each in result]
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
        """Translate one text in one piece, greedily or by sampling, token by token; a blank text gives none. `prepare`
        tells the source pieces. Arguments and errors as in `translate`; errors are raised at once."""
        search, limits = self.own.settled(search, GREEDY, beam=1), limits or self.own.limits()
        source = self.prepare(text, to=to, limits=limits, truncate=truncate)
        if not source.ids:
            return iter(())
        steps = stream(
            self.model,
            self._begin([source.ids]),
            [self.start(source)],
            search=search,
            limits=self.limits(source.ids, limits),
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
        """What the encoder reads for `text` in one piece; `name` is what messages call it. Errors as in `translate`.

        What cannot be seen at the edges of the text is left out. For our own models, which were taught simplified
        characters, the rest is brought to what they know too (see `folded`)."""
        to = self._route.direction(text, to)
        if is_blank(text):
            return Source(text, to, [], [], [], (), False)
        notes: list[Phrase] = []
        plain = folded(text, self._knows) if self._route.ours else trimmed(text)
        if self._route.ours and (simple := simplified(plain.text)) != plain.text:
            # of as many characters, in the same places
            plain = replace(plain, text=simple)
            notes.append(say("traditional Chinese characters were converted to simplified ones"))
        if to == "zh" and has_han(text):
            notes.append(
                say("the text has Chinese characters already, and was translated into Chinese as asked")
            )
        if mark := self._route.spelled(text):
            notes.append(
                say(
                    "{mark} in the text was read as letters: a language is named apart from it (to)",
                    mark=mark,
                )
            )
        encoding = self.tokenizer.encode(plain.text)
        if not encoding.ids:
            return Source(text, to, [], [], [], (), False)
        before, after = self._route.around(text, to)
        room = self.config.max_len - len(before) - len(after)
        whole = kept = len(encoding.ids)
        if whole > room:
            if not truncate:
                raise TooLong(
                    "{name} has {count} tokens, but this model reads at most {room} at a time ({max_len} "
                    "positions); make shorter sentences of it, or cut it (truncate)",
                    name=name,
                    count=whole,
                    room=room,
                    max_len=self.config.max_len,
                )
            kept = _fitting(encoding, room)
            notes.append(
                say(
                    "only the first {kept} of the text's {count} tokens were translated",
                    kept=kept,
                    count=whole,
                )
            )
        notes += (limits or self.own.limits()).shortened(self._route.begin(to), self.config.max_len)
        ids = [*before, *encoding.ids[:kept], *after]
        named = self.tokenizer.readable
        pieces = [*map(named, before), *encoding.pieces[:kept], *map(named, after)]
        offsets = plain.traced(encoding.offsets[:kept])
        first, last = edges(text) if kept == whole else (edges(text)[0], offsets[-1][1])
        around = [(first, first)] * len(before), [(last, last)] * len(after)
        return Source(text, to, ids, pieces, [*around[0], *offsets, *around[1]], tuple(notes), kept < whole)

    def start(self, source: Source) -> list[int]:
        """What the decoder reads before it writes: its start token, and what is forced on it as the first word."""
        return self._route.begin(source.to)

    def limits(self, source: Sequence[int], limits: Limits | None = None) -> Limits:
        """How long what is written for these source ids may be: nothing only if that is asked for, and at most twice as
        long and 20."""
        limits = limits or self.own.limits()
        least = 0 if limits.max_new_tokens == 0 else max(1, limits.min_new_tokens)
        return replace(limits, min_new_tokens=least).within(self.config.max_len, usual=2 * len(source) + 20)

    def _read(
        self, text: str, to: Language | None, limits: Limits, truncate: bool, split: bool, name: Text
    ) -> list[Sentence]:
        """The sentences of a text, not yet translated."""
        direction = self._route.direction(text, to)
        places = sentences(text) if split else [edges(text)] * (not is_blank(text))
        read: list[Sentence] = []
        for number, (start, end) in enumerate(places, start=1):
            part = text[start:end]
            called = say("sentence {number} of {name}", number=number, name=name) if len(places) > 1 else name
            left = self._untranslatable(part, direction)
            source = Source(part, direction, [], [], [], (), False)
            if left is None:
                source = self.prepare(part, to=direction, limits=limits, truncate=truncate, name=called)
            read.append(Sentence(start, end, source, [], () if left is None else (left,)))
        return read

    def _untranslatable(self, text: str, to: Language | None) -> Phrase | None:
        """Why our own models leave a sentence as it is, if they do."""
        if not self._route.ours:
            return None
        letters = [each for each in ADDRESS.sub("", text) if each.isalpha()]
        if not letters:
            return say("there are no words in it; it was left as it is")
        if to == "en" and all(each < _LATIN_END for each in letters):
            return say("it is in English already; it was left as it is")
        if to == "zh" and all(map(has_han, letters)):
            return say("it is in Chinese already; it was left as it is")
        return None

    def _knows(self, character: str) -> bool:
        return self.tokenizer.id(character) is not None

    def _begin(self, sources: Sequence[Sequence[int]]) -> Cache:
        ids, mask = pad_right(sources, self.config.pad_id or 0, next(self.model.parameters()).device)
        with torch.inference_mode():
            return self.model.begin(ids, mask)


def _judged(
    sentence: Sentence, written: Sequence[text_model.Hypothesis], unsure_below: float | None
) -> Sentence:
    """The sentence with its translations, and what is to be said of them. One in which nothing is to be seen comes
    last; where there is no other, the sentence stands in its place as it is."""
    ranked, notes = sorted(written, key=lambda each: is_blank(each.text)), list(sentence.notes)
    best = ranked[0]
    n = len(best.ids)
    if best.finish == "length" and not (n and is_blank(best.text)):
        notes.append(say("the translation was cut at the limit of {n} tokens", n=n))
    elif is_blank(best.text):
        ranked[0] = replace(best, text=sentence.source.text)
        if not notes:
            notes.append(say("the model has no words for it; it was left as it is"))
    elif missing := lost(sentence.source.text, best.text):
        notes.append(say("the text has {parts}, and the translation has not", parts=names_of(missing)))
    elif unsure_below is not None and sum(best.log_probs) / len(best.ids) < unsure_below:
        notes.append(say("the model is unsure of this translation"))
    return replace(sentence, hypotheses=ranked, notes=tuple(notes))


def lost(source: str, translation: str) -> list[str]:
    """What a translation should have kept of its source and has not: addresses, and numbers of two and more digits,
    each as often as it stands there."""
    addresses = [address.rstrip(AFTER_ADDRESS) for address in ADDRESS.findall(source)]
    numbers, kept = (
        Counter(_NUMBER.findall(_THOUSANDS.sub("", text))) for text in (ADDRESS.sub(" ", source), translation)
    )
    return [*(each for each in addresses if each not in translation), *(numbers - kept).elements()]


def _fitting(encoding: Encoding, room: int) -> int:
    """How many pieces to keep of more than there is room for, so that no character is cut in two. One of so many marks
    that it alone has more pieces is cut between its marks."""
    kept = max((group[-1] + 1 for group in encoding.characters if group[-1] < room), default=0)
    if any(start < end for start, end in encoding.offsets[:kept]):
        return kept
    while room > 1 and encoding.offsets[room] == encoding.offsets[room - 1]:
        room -= 1
    return room


def _unsure_below(loaded: Loaded) -> float | None:
    """The mean log-probability of a token below which a translation of this model is more often wrong than right, where
    its generation_config.json says that it was measured."""
    given = loaded.generation.get("unsure_below")
    if given is not None and not (isinstance(given, int | float) and given <= 0):
        raise CutawayError(
            "{path}: unsure_below is {given!r}, expected a log-probability, 0 or less",
            path=loaded.path,
            given=given,
        )
    return given
