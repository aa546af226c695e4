"""A model's own settings of decoding: what its generation_config.json asks for, which stands where nothing else is
asked for.

A setting that the files lack is the product's, with two exceptions, since those who write such a file leave out what is
transformers' default: a file that asks for beams, or for drawing, means that default for what else belongs to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.generation_keys import KEYS, NEUTRAL, NEUTRAL_DRAWN
from cutaway.decode.sampling import Sampling
from cutaway.decode.search import GREEDY, LengthPenalty, Limits, Rules, Search
from cutaway.errors import brief
from cutaway.words import Phrase, say

# What transformers means where a file asks for drawing, or for beams, and says no more.
_DRAWN: Mapping[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": 0.0}
_LENGTH_PENALTY = 1.0
_SAMPLING = frozenset(field.name for field in fields(Sampling))


@dataclass(frozen=True)
class OwnSettings:
    """What the files say, by their keys. `stated` has what is followed; `unsupported` what is not, though it would
    change a result. Keys that change nothing are in neither."""

    stated: Mapping[str, Any]
    unsupported: Mapping[str, object]
    vocab_size: int

    @property
    def notes(self) -> tuple[Phrase, ...]:
        """What a reader should know: settings of the model that are not followed."""
        return tuple(
            say(
                "this model's files ask for {key} {value}, which is not supported and left out",
                key=key,
                value=brief(value),
            )
            for key, value in self.unsupported.items()
        )

    def search(self, usual: Search = GREEDY, **given: Any) -> Search:
        """The search that is meant where only `given` is asked for: fields of Search and of its Sampling, None for one
        that is not. They come first, then the model's own, then those of `usual`.

        A beam and drawing exclude each other: what is given decides, and else what the model asks for.
        """
        asked = {name: value for name, value in given.items() if value is not None}
        drawn = {name: asked.pop(name) for name in list(asked) if name in _SAMPLING}
        own = dict(self._sampling)
        found: dict[str, Any] = {**self._beams, **asked}
        if asked.get("beam", 1) > 1:
            own["temperature"] = 0.0
        sampling = replace(usual.sampling, **{**own, **drawn})
        if not sampling.greedy:
            found = {"beam": 1, **asked}
        return replace(usual, sampling=sampling, **{"rules": self.rules, **found})

    def settled(self, search: Search | None, usual: Search, **given: Any) -> Search:
        """A `search` as it was given, but for rules that it leaves open; the model's own where there is none."""
        if search is None:
            return self.search(usual, **given)
        return search if search.rules is not None else replace(search, rules=self.rules)

    def limits(self, max_new_tokens: int | None = None, min_new_tokens: int | None = None) -> Limits:
        """The limits that are meant where only these are asked for, each None where it is not. Counts of new tokens
        take the place of those with the prompt."""
        stated = self.stated
        most = stated.get("max_new_tokens") if max_new_tokens is None else max_new_tokens
        least = min_new_tokens
        if least is None and (least := stated.get("min_new_tokens")) is not None and most is not None:
            least = min(least, most)
        return Limits(
            max_new_tokens=most,
            min_new_tokens=least or 0,
            max_len=stated.get("max_length") if most is None else None,
            min_len=stated.get("min_length", 0) if least is None else 0,
        )

    @cached_property
    def rules(self) -> Rules:
        stated, forced = self.stated, self.stated.get("forced_eos_token_id", ())
        return Rules(
            no_repeat_ngram=stated.get("no_repeat_ngram_size", 0),
            suppressed=self._known(stated.get("suppress_tokens", ())),
            suppressed_first=self._known(stated.get("begin_suppress_tokens", ())),
            bad_words=tuple(
                tuple(word) for word in stated.get("bad_words_ids", ()) if len(self._known(word)) == len(word)
            ),
            end_at_limit=self._known([forced] if isinstance(forced, int) else forced),
        )

    @cached_property
    def _beams(self) -> Mapping[str, Any]:
        """Of Search's fields, without those of its parts."""
        found: dict[str, Any] = {}
        beams = self.stated.get("num_beams")
        if beams is not None:
            found["beam"] = beams
        if "length_penalty" in self.stated or (beams or 1) > 1:
            alpha = self.stated.get("length_penalty", _LENGTH_PENALTY)
            found["length_penalty"] = LengthPenalty(alpha, "power")
        return found

    @cached_property
    def _sampling(self) -> Mapping[str, Any]:
        """Of Sampling's fields."""
        found: dict[str, Any] = {}
        if self.stated.get("do_sample"):
            found = {name: self.stated.get(name, usual) for name, usual in _DRAWN.items()}
        elif "do_sample" in self.stated or self.stated.get("num_beams", 1) > 1:
            found["temperature"] = 0.0
        if "repetition_penalty" in self.stated:
            found["repetition_penalty"] = self.stated["repetition_penalty"]
        return found

    def _known(self, ids: list[int]) -> tuple[int, ...]:
        """Those of the ids that the model has; another one cannot be written anyway."""
        return tuple(id for id in ids if id < self.vocab_size)


def own_settings(loaded: Loaded) -> OwnSettings:
    return settings_of(loaded.generation, loaded.config.vocab_size)


def settings_of(generation: Mapping[str, object], vocab_size: int) -> OwnSettings:
    """The settings of a generation_config.json, for a model of so many rows."""
    given = {key: value for key, value in generation.items() if value is not None}
    stated: dict[str, Any] = {key: given[key] for key in KEYS if key in given}
    neutral: dict[str, tuple[object, ...]] = {**NEUTRAL}
    if stated.get("do_sample") is True:
        neutral |= NEUTRAL_DRAWN
        # drawing within a beam search
        neutral["num_beams"] = (1,)
    else:
        stated = {key: value for key, value in stated.items() if key not in _DRAWN}
    unsupported = {key: value for key, value in stated.items() if not KEYS[key](value)}
    unsupported |= {key: given[key] for key in neutral if key in given and given[key] not in neutral[key]}
    stated = {key: value for key, value in stated.items() if key not in unsupported}
    return OwnSettings(stated, unsupported, vocab_size)
