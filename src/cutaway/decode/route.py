"""Which language into which, and how a model is told: by marks that its vocabulary has for languages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import opencc

from cutaway.decode.language_codes import tag
from cutaway.errors import CutawayError, nearest
from cutaway.text.display import has_han
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import names_of

Language = str  # "en", "zh", or as the model's mark spells it: "fra", "cmn_Hant", "ro_RO"
# The two that are told apart by a text's characters, and how marks spell them, the best first.
_KNOWN = {
    "en": ("eng", "en", "eng_Latn", "en_XX"),
    "zh": ("zho", "cmn_Hans", "cmn", "zh", "zh_CN", "zh_cn", "zho_Hans"),
}
# The marks of the models that are trained here, on simplified characters only.
OURS = {"en": ">>eng<<", "zh": ">>zho<<"}

_BEFORE_SOURCE = re.compile(r">>(\S+)<<")  # OPUS-MT: the target's language
# Each text's own language: M2M100, NLLB, mBART.
_OF_TEXT = re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})|([a-z]{2}_[A-Z]{2})")


@dataclass(frozen=True)
class Mark:
    """A control token that names a language; `code` is the name in it, "fra" of ">>fra<<"."""

    id: int
    piece: str
    code: str


@dataclass(frozen=True)
class Route:
    """How a model is told what to do.

    `ways` are the languages that it has marks for, none where it does one thing only. `before` and `after` stand
    around every source, and `start` is what the decoder reads before it writes; None is the place of a mark. A mark
    beside the source is the target's if `names_target`, else the source's own. `usual` is the language the model
    writes unless it is asked for another, and `own` the one its tokenizer takes a source to be in, where the files
    tell.
    """

    ways: Mapping[Language, Mark]
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]
    start: tuple[int | None, ...]
    names_target: bool = True
    usual: Language | None = None
    own: Language | None = None

    @property
    def ours(self) -> bool:
        """Whether it is a model that was trained here: English and Chinese in simplified characters."""
        return {mark.piece for mark in self.ways.values()} == {*OURS.values()}

    def direction(self, text: str, to: str | None) -> Language | None:
        """What to translate a text into: the language that `to` names, in any spelling, or, where it is None, the
        usual one, else English for a text with Chinese characters and Chinese for any other. None for a model
        without marks. Raises CutawayError with the languages there are."""
        if not self.ways:
            if to is None:
                return None
            raise CutawayError(
                "this model has no language token for {to!r}: it translates one way only, so leave out "
                "the target language",
                to=to,
            )
        if to is not None:
            if (found := self.named(to)) is None:
                raise CutawayError(
                    "to is {to!r}{hint}, expected one of {languages}",
                    to=to,
                    hint=nearest(to, self.ways),
                    languages=names_of(self.ways),
                )
            return found
        found = self.usual or self.named(target_of(text))
        if found is None and len(self.ways) > 1:
            raise CutawayError(
                "this model does not translate into {guess!r}; name the language to translate into (to), one of "
                "{languages}",
                guess=target_of(text),
                languages=names_of(self.ways),
            )
        return found or next(iter(self.ways))

    def named(self, to: str) -> Language | None:
        """The language that `to` means: by its name here, as its mark spells it, or by any code of that language."""
        if to in self.ways:
            return to
        plain = to.lower().replace("-", "_")
        language, rest = tag(to)
        loosely: Language | None = None
        for name, mark in self.ways.items():
            if plain in (mark.piece.lower(), mark.code.lower()):
                return name
            its_language, its_rest = tag(mark.code)
            if its_language == language and (not rest or rest == its_rest):
                loosely = loosely or name
        return loosely

    def spelled(self, text: str) -> str | None:
        """A mark that stands at the beginning of a text, where it is read as letters."""
        return next((mark.piece for mark in self.ways.values() if text.lstrip().startswith(mark.piece)), None)

    def around(self, text: str, to: Language | None) -> tuple[list[int], list[int]]:
        """The control tokens before and after a source that is to be translated into `to`."""
        mark = None
        if to is not None:
            mark = self.ways[to] if self.names_target else self._source(text, to)
        return _marked(self.before, mark), _marked(self.after, mark)

    def begin(self, to: Language | None) -> list[int]:
        """What the decoder reads before it writes."""
        return _marked(self.start, None if to is None else self.ways[to])

    def _source(self, text: str, to: Language) -> Mark | None:
        """The mark of a source's own language, as far as its characters, the tokenizer or the target tell."""
        guesses = [name for name in ("zh" if has_han(text) else None, self.own, "en") if name is not None]
        return next(
            (self.ways[name] for name in (*guesses, *self.ways) if name in self.ways and name != to), None
        )


def _marked(places: Sequence[int | None], mark: Mark | None) -> list[int]:
    named = None if mark is None else mark.id
    return [id for id in (named if place is None else place for place in places) if id is not None]


def route(tokenizer: Tokenizer, end_id: int, start_id: int, forced: Sequence[int] = ()) -> Route:
    """The route that a model's files show: by the marks of its vocabulary, by what its tokenizer.json puts around a
    text, by the `start_id` of its decoder and by what is `forced` on it as the first word. Every source ends with the
    end token."""
    before, after = tokenizer.around
    if ways := _ways(tokenizer, _BEFORE_SOURCE):
        return Route(ways, (None,), (end_id,), (start_id, *forced))
    ways = _ways(tokenizer, _OF_TEXT)
    if not ways:
        return Route({}, tuple(before), tuple(after or [end_id]), (start_id, *forced))
    by_id = {mark.id: name for name, mark in ways.items()}
    written = next((by_id[id] for id in (start_id, *forced) if id in by_id), None)
    own = next((by_id[id] for id in (*before, *after) if id in by_id), None)
    # mBART-25 reads `text </s> en_XX` and begins with the target's mark alone; mBART-50 and the others read
    # `en_XX text </s>` and begin with it as the first word.
    last = own in (by_id.get(id) for id in after) if own else start_id in by_id
    places = ((), (end_id, None)) if last else ((None,), (end_id,))
    start = (None,) if start_id in by_id else (start_id, None)
    return Route(ways, *places, start, names_target=False, usual=written, own=own)


def _ways(tokenizer: Tokenizer, pattern: re.Pattern[str]) -> dict[Language, Mark]:
    """The languages that control tokens of such a form name, the known ones first, under their short names."""
    marks: dict[str, Mark] = {}
    for id, piece in sorted(tokenizer.controls.items()):
        if (found := pattern.fullmatch(piece)) is not None and id not in tokenizer.roles.values():
            code = next(part for part in found.groups() if part)
            marks[code] = Mark(id, piece, code)
    ways: dict[Language, Mark] = {}
    for language, codes in _KNOWN.items():
        if best := [code for code in codes if code in marks]:
            ways[language] = marks.pop(best[0])
    return ways | marks


def target_of(text: str) -> Language:
    """The language to translate into when none is given: English when there are Chinese characters, else Chinese."""
    return "en" if has_han(text) else "zh"


def simplified(text: str) -> str:
    """Traditional Chinese characters as simplified ones, by the dictionaries of OpenCC ("t2s")."""
    return _converter().convert(text) if has_han(text) else text


@cache
def _converter() -> opencc.OpenCC:
    return opencc.OpenCC("t2s")
