"""Which language into which, and how a model is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import opencc

from cutaway.text.display import has_han
from cutaway.text.tokens.tokenizer import Tokenizer

Language = str  # "en" or "zh"
OURS = {"en": ">>eng<<", "zh": ">>zho<<"}
# What names a language before the source (OPUS-MT), the best name first.
_BEFORE_SOURCE = {
    "en": (OURS["en"], ">>en<<"),
    "zh": (OURS["zh"], ">>cmn_Hans<<", ">>cmn<<", ">>zh<<", ">>zh_CN<<", ">>zh_cn<<"),
}
# What names a language where a text of it begins, source and target alike (M2M100; NLLB; mBART-50).
_BEFORE_BOTH = {"en": ("__en__", "eng_Latn", "en_XX"), "zh": ("__zh__", "zho_Hans", "zh_CN")}


@dataclass(frozen=True)
class Route:
    """How a model is told what to do. `ways` are the languages it can be asked for, each with its token, none where
    it only does one thing; `begins_target` says that the token begins the target, and the source's begins it."""

    ways: Mapping[Language, int]
    begins_target: bool
    before: tuple[int, ...]  # what stands around a source whatever the language
    after: tuple[int, ...]
    own: bool  # our marks: a model of English and Chinese in simplified characters

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
            own = set(ways.values()) == {tokenizer.id(token) for token in OURS.values()}
            return Route(ways, begins_target, (), (end_id,), own=own)
    return Route({}, False, tuple(before), tuple(after or [end_id]), own=False)


def _first_control(tokenizer: Tokenizer, tokens: tuple[str, ...]) -> int | None:
    ids = (tokenizer.id(token) for token in tokens)
    return next((id for id in ids if id is not None and tokenizer.is_control(id)), None)


def target_of(text: str) -> Language:
    """The language to translate into when none is given: English when there are Chinese characters, else Chinese."""
    return "en" if has_han(text) else "zh"


def simplified(text: str) -> str:
    """Traditional Chinese characters as simplified ones, by the dictionaries of OpenCC ("t2s")."""
    return _converter().convert(text) if has_han(text) else text


@cache
def _converter() -> opencc.OpenCC:
    return opencc.OpenCC("t2s")
