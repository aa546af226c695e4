"""The tokenizer of a run: one that is there, that of the checkpoint which is gone on from, or one learned anew."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutaway.config import to_dict
from cutaway.files import read_json, write_json
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.progress import Tell
from cutaway.train.recipe import TokenizerPart
from cutaway.train.state import damage, write_folder
from cutaway.words import say

LEARNED = "learned.json"  # in the tokenizer's folder: how, and from what


def decoder_start(tokenizer: Tokenizer) -> int:
    """What the decoder is given before the first word: bos, or eos in a vocabulary without."""
    start = tokenizer.role("bos")
    return tokenizer.require("eos") if start is None else start


def known_tokenizer(part: TokenizerPart, resumed: Path | None) -> Tokenizer | None:
    """The tokenizer at the recipe's `path`, or that of the checkpoint which is gone on from; None: one is learned."""
    place = resumed if part.path is None else Path(part.path)
    return None if place is None else Tokenizer.open(place)


def learned_tokenizer(
    part: TokenizerPart,
    folder: Path,
    texts: Sequence[str],
    tell: Tell,
    *,
    languages: Sequence[str] = (),
    roles: Mapping[str, str] | None = None,
    template: str | None = None,
) -> Tokenizer:
    """A tokenizer learned from `texts`. It is kept in `folder`/tokenizer with how and from what it was learned, so that
    a run which starts again before its first checkpoint need not learn it again. `template` says what stands around
    a text in training, for whoever opens it."""
    chosen, kept = texts[:: max(1, math.ceil(len(texts) / part.texts))], folder / "tokenizer"
    read = hashlib.blake2b(digest_size=16)
    for text in chosen:
        read.update(f"{len(text)} {text}".encode())
    settings = {name: value for name, value in to_dict(part).items() if name not in ("path", "texts")}
    settings |= {
        "languages": list(languages),
        "roles": roles,
        "template": template,
        "learned_from": read.hexdigest(),
    }
    if kept.is_dir():
        fault = damage(kept, [LEARNED])
        if fault is None and read_json(kept / LEARNED) == settings:
            tell("tokenizer: {path}, learned before from the same texts", path=kept)
            return Tokenizer.open(kept)
        tell(
            "tokenizer: {reason}, so it is learned anew",
            reason=fault or say("{path} was learned by other settings or from other texts", path=kept),
        )
    tell("tokenizer: learning a {kind} vocabulary from {count:,} texts", kind=part.kind, count=len(chosen))
    tokenizer = Tokenizer.train(
        chosen,
        part.kind,
        part.vocab_size or None,
        roles=roles,
        languages=languages,
        normalization=part.normalization,
        lowercase=part.lowercase,
        coverage=part.coverage,
        min_count=part.min_count,
        template=template,
    )

    def write(place: Path) -> None:
        tokenizer.save(place)
        write_json(place / LEARNED, settings)

    write_folder(kept, write)
    tell("tokenizer: {count:,} pieces, kept in {path}", count=tokenizer.vocab_size, path=kept)
    return tokenizer
