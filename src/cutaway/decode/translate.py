"""Texts in, translations out: the encoder-decoder with its tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.generate import Finish, Limits, stream
from cutaway.decode.half_stored import store_in_half
from cutaway.decode.languages import OURS, Language, has_han, route, simplified, target_of
from cutaway.decode.length_penalty import LengthPenalty
from cutaway.decode.padding import pad_right
from cutaway.decode.parts import (
    Alternative,
    Hypothesis,
    StreamedToken,
    end_ids_of,
    read_stream,
    readable,
    tokenizer_for,
    unwanted_ids,
)
from cutaway.decode.sampling import Sampling
from cutaway.decode.search import Search
from cutaway.decode.stepping import Attention
from cutaway.errors import CutawayError, nearest
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.cache import Cache
from cutaway.words import Phrase, say


@dataclass(frozen=True)
class Source:
    """A text made ready for the encoder."""

    text: str  # as it was given
    to: Language | None  # None for a model of one direction
    ids: list[
        int
    ]  # empty for a blank text; else the language token if the model has one, the text, the end token
    pieces: list[str]  # as a reader sees them
    notes: tuple[Phrase, ...]  # what was done to the text on the way
    cut: bool  # whether its end was left out


@dataclass(frozen=True)
class Translation:
    """A source and what became of it; `hypotheses` are sorted, and the short names speak of the best one."""

    source: str
    to: Language | None
    source_ids: list[int]
    source_pieces: list[str]
    hypotheses: list[Hypothesis]
    notes: tuple[Phrase, ...]
    cut: bool  # whether the end of the source was left out

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        return self.best.text

    @property
    def target_pieces(self) -> list[str]:
        return self.best.pieces

    @property
    def score(self) -> float:
        return self.best.score

    @property
    def log_probs(self) -> list[float]:
        return self.best.log_probs

    @property
    def finish(self) -> Finish:
        return self.best.finish

    @property
    def alternatives(self) -> list[list[Alternative]]:
        return self.best.alternatives

    @property
    def alignment(self) -> Tensor | None:
        return self.best.alignment


class Translator:
    """Translates with an encoder-decoder checkpoint. Models with language tokens translate into what those name (see
    `languages.route`); others do the one thing they were trained for.

    Raises CutawayError when the checkpoint is of another family or lacks what translating needs.
    """

    def __init__(self, loaded: Loaded):
        self.tokenizer = tokenizer_for(loaded, "encoder-decoder")
        assert isinstance(loaded.model, EncoderDecoder)
        self.model, self.config = loaded.model.eval(), loaded.config
        store_in_half(self.model)
        self.end_ids = end_ids_of(loaded)
        if not self.end_ids or self.config.decoder_start_id is None:
            missing = "decoder_start_token_id" if self.end_ids else "eos_token_id"
            raise CutawayError(
                "{path}: config.json lacks {missing}, which translating needs",
                path=loaded.path,
                missing=missing,
            )
        self._forbidden = unwanted_ids(loaded, self.tokenizer)
        self._route = route(self.tokenizer, self.end_ids[0])
        forced = loaded.generation.get("forced_bos_token_id")
        if forced is not None and not (isinstance(forced, int) and 0 <= forced < self.config.vocab_size):
            raise CutawayError(
                "{path}: forced_bos_token_id is {forced!r}, expected an id of the model",
                path=loaded.path,
                forced=forced,
            )
        self._start = [self.config.decoder_start_id, *([forced] if isinstance(forced, int) else [])]

    @property
    def languages(self) -> list[Language]:
        """What `to` may be; empty for a model of one direction."""
        return list(self._route.ways)

    def translate(
        self,
        texts: Sequence[str],
        *,
        to: Language | None = None,
        beam: int = 4,
        n_best: int = 1,
        length_penalty: LengthPenalty | None = None,
        sampling: Sampling | None = None,
        max_new_tokens: int | None = None,
        min_new_tokens: int = 0,
        alternatives: int = 0,
        attention: Attention = None,
        truncate: bool = False,
        batch_size: int = 32,
        numbered_from: int = 1,
    ) -> list[Translation]:
        """One translation a text, in order; a blank text gives an empty one.

        `to` is "en" or "zh"; None decides by the text. `beam` 1 is greedy, or samples when `sampling` has a
        temperature. `max_new_tokens` is twice the source's tokens and 20 unless given, and never beyond the
        model's limit. `truncate` cuts a text that is too long for the model (and notes it) instead of refusing it.
        `attention` "mean" gives each hypothesis its alignment, "full" every layer and head as well.
        Raises CutawayError for values out of range and for texts beyond the position limit, which it names by
        their number, counted from `numbered_from`.
        """
        search = Search(
            beam=beam,
            n_best=n_best,
            length_penalty=length_penalty or LengthPenalty(),
            sampling=sampling or Sampling(),
            alternatives=alternatives,
            attention=attention,
        )
        if batch_size < 1:
            raise CutawayError("batch_size is {batch_size}, expected at least 1", batch_size=batch_size)
        sources = [
            self.prepare(
                text,
                to=to,
                truncate=truncate,
                name=f"text {i}" if len(texts) > 1 or numbered_from > 1 else "the text",
            )
            for i, text in enumerate(texts, start=numbered_from)
        ]
        results = [[_EMPTY]] * len(texts)
        order = sorted(
            (i for i, source in enumerate(sources) if source.ids), key=lambda i: len(sources[i].ids)
        )
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            found = search.run(
                self.model,
                self._begin([sources[i].ids for i in batch]),
                [self.start(sources[i]) for i in batch],
                rows=batch,
                limits=[self._limits(sources[i], max_new_tokens, min_new_tokens) for i in batch],
                eos_id=self.end_ids,
                forbidden=self._forbidden,
            )
            for i, generated in zip(batch, found, strict=True):
                results[i] = [
                    readable(self.tokenizer, each, len(sources[i].ids), attention == "full")
                    for each in generated
                ]
        return [
            Translation(
                source.text, source.to, source.ids, source.pieces, hypotheses, source.notes, source.cut
            )
            for source, hypotheses in zip(sources, results, strict=True)
        ]

    def stream(
        self,
        text: str,
        *,
        to: Language | None = None,
        sampling: Sampling | None = None,
        max_new_tokens: int | None = None,
        min_new_tokens: int = 0,
        alternatives: int = 0,
        attention: Attention = None,
        truncate: bool = False,
    ) -> Iterator[StreamedToken]:
        """Translate one text greedily or by sampling, token by token; a blank text gives none. `prepare` tells
        the source pieces. Arguments and errors as in `translate`; errors are raised at once."""
        source = self.prepare(text, to=to, truncate=truncate)
        if not source.ids:
            return iter(())
        steps = stream(
            self.model,
            self._begin([source.ids]),
            [self.start(source)],
            limits=self._limits(source, max_new_tokens, min_new_tokens),
            eos_id=self.end_ids,
            sampling=sampling,
            forbidden=self._forbidden,
            alternatives=alternatives,
            attention=attention,
        )
        return read_stream(self.tokenizer, steps)

    def prepare(
        self, text: str, *, to: Language | None = None, truncate: bool = False, name: str = "the text"
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
                    "{name} has {whole} tokens, but this model reads at most {room} at a time ({max_len} "
                    "positions); translate it sentence by sentence, or cut it (truncate)",
                    name=name,
                    whole=whole,
                    room=room,
                    max_len=self.config.max_len,
                )
            ends = [group[-1] + 1 for group in encoding.characters if group[-1] < room]
            kept = ends[-1] if ends else 0
            notes.append(
                say(
                    "only the first {kept} of the text's {whole} tokens were translated",
                    kept=kept,
                    whole=whole,
                )
            )
        return Source(
            text,
            to,
            [*before, *encoding.ids[:kept], *after],
            [
                *map(self.tokenizer.readable, before),
                *encoding.pieces[:kept],
                *map(self.tokenizer.readable, after),
            ],
            tuple(notes),
            kept < whole,
        )

    def _direction(self, text: str, to: Language | None) -> Language | None:
        if to is not None and to not in OURS:
            raise CutawayError(
                "to is {to!r}{hint}, expected one of {ours}",
                to=to,
                hint=nearest(to, OURS),
                ours=", ".join(OURS),
            )
        if not self._route.ways:
            if to is not None:
                raise CutawayError(
                    "this model has no language token for {to!r}: it translates one way only, so leave out "
                    "the target language",
                    to=to,
                )
            return None
        to = to or target_of(text)
        if to not in self._route.ways:
            raise CutawayError(
                "this model does not translate into {to!r}, only into {ways}",
                to=to,
                ways=", ".join(self._route.ways),
            )
        return to

    def start(self, source: Source) -> list[int]:
        """What the decoder reads before it writes: its start token, and what is forced on it as the first word."""
        return [*self._start[:1], *(self._route.start(source.to) or self._start[1:])]

    def _limits(self, source: Source, most: int | None, least: int) -> Limits:
        most = max(2 * len(source.ids) + 20, least) if most is None else most
        return Limits(most, least, self.config.max_len)

    def _begin(self, sources: Sequence[Sequence[int]]) -> Cache:
        ids, mask = pad_right(sources, self.config.pad_id or 0, next(self.model.parameters()).device)
        with torch.inference_mode():
            return self.model.begin(ids, mask)


_EMPTY = Hypothesis("", [], [], [], 0.0, "stop", [])
