"""The file `tokenizer.json`: reading it, and a version of it that cannot produce a control token."""

import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from tokenizers import Tokenizer

from cutaway.errors import CutawayError

UNREACHABLE = "\ufdd0"  # begins the name of a piece that no text may become; a noncharacter of Unicode
MOST_PIECES = 1_200_000  # XLM-V has 901,629
_MARKUP = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")


def read(source: str, where: str) -> dict:
    """The object in the file, as far checked as this package looks into it; the library checks the rest."""
    try:
        description = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise CutawayError("{where}: not a tokenizer.json: {error}", where=where, error=error) from error
    if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
        raise CutawayError("{where}: not a tokenizer.json: expected an object with a 'model'", where=where)
    vocabulary = description["model"].get("vocab")
    if isinstance(vocabulary, dict | list) and len(vocabulary) > MOST_PIECES:
        raise CutawayError(
            "{where}: {count:,} pieces, expected at most {most_pieces:,}",
            where=where,
            count=len(vocabulary),
            most_pieces=MOST_PIECES,
        )
    added = description.setdefault("added_tokens", [])
    if not isinstance(added, list):
        raise CutawayError(
            "{where}: added_tokens is {name}, expected a list", where=where, name=type(added).__name__
        )
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not content:
            raise CutawayError(
                "{where}: an added token without content: {token}", where=where, token=str(token)[:80]
            )
        id = token.get("id")
        if not isinstance(id, int) or not 0 <= id < 2**24:
            raise CutawayError(
                "{where}: added token {content!r} has id {id!r}, expected a whole number",
                where=where,
                content=content,
                id=id,
            )
    return description


def build(source: str, where: str) -> Tokenizer:
    """The library's tokenizer; CutawayError with the library's reason where it refuses."""
    with told(f"{where}: the tokenizers library refuses it"):
        return Tokenizer.from_str(source)


@contextmanager
def told(what: str) -> Iterator[None]:
    """CutawayError beginning with `what` for whatever goes wrong in the library: it raises plain Exception for what
    is malformed, and for what it did not foresee it panics, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CutawayError("{what}: {error}", what=what, error=error) from error


def controls(description: Mapping, roles: Collection[str]) -> dict[int, str]:
    """Id and content of the control tokens: special ones, those that have a role, and those written like markup
    (`<tool_call>`), which only a template may produce. Other added tokens (runs of spaces) are ordinary text."""
    found = {
        token["id"]: token["content"]
        for token in description["added_tokens"]
        if token.get("special") or token["content"] in roles or _MARKUP.fullmatch(token["content"])
    }
    vocabulary = description["model"].get("vocab")
    if isinstance(vocabulary, dict):
        found |= {vocabulary[role]: role for role in roles if isinstance(vocabulary.get(role), int)}
    return found


def without(description: Mapping, contents: Collection[str], where: str) -> str:
    """The same tokenizer, unable to produce a control token: no merge leads to one, and in the vocabulary and among
    the added tokens they keep their ids under names that no text can spell (random, anew in every process). It
    adds, pads and cuts nothing."""
    model = dict(description["model"])
    secret = secrets.token_hex(16)
    hidden = {content: f"{UNREACHABLE}{secret}{content}" for content in contents}
    try:
        vocabulary = model.get("vocab")
        if isinstance(vocabulary, dict):
            model["vocab"] = {hidden.get(piece, piece): id for piece, id in vocabulary.items()}
        elif isinstance(vocabulary, list):
            model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocabulary]
        if (unk := model.get("unk_token")) is not None:
            model["unk_token"] = hidden.get(unk, unk)
        if isinstance(merges := model.get("merges"), list):
            pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
            kept = [pair for pair in pairs if "".join(pair) not in hidden]
            joined = [" ".join(pair) for pair in kept]
            # As single texts they are written and read in half the time; a piece with a space can only be in a pair.
            model["merges"] = joined if all(text.count(" ") == 1 for text in joined) else kept
    except (TypeError, ValueError) as error:
        raise CutawayError(
            "{where}: malformed vocabulary or merges: {error}", where=where, error=error
        ) from error
    added = [
        {**token, "content": hidden.get(token["content"], token["content"])}
        for token in description["added_tokens"]
    ]
    parts = {"truncation": None, "padding": None, "post_processor": None}
    whole = {**description, **parts, "added_tokens": added, "model": model}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def shown(piece: str) -> str:
    """The name of a piece without the mark of those that no text may become."""
    return piece.removeprefix(UNREACHABLE)


def part_charsmap(description: Mapping) -> tuple[str | None, dict]:
    """SentencePiece's table of replacements, where normalisation begins with one, and the description without
    it."""
    normalizer = description.get("normalizer")
    steps = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    if not isinstance(steps, list):
        steps = [normalizer]
    first = steps[0] if steps else None
    encoded = first.get("precompiled_charsmap") if isinstance(first, dict) else None
    if not isinstance(encoded, str):
        return None, dict(description)
    rest = {"type": "Sequence", "normalizers": steps[1:]} if steps[1:] else None
    return encoded, {**description, "normalizer": rest}


def decoders(description: Mapping) -> set[str]:
    """Types of the decoder, or of those inside a sequence."""
    part = description.get("decoder")
    parts = part.get("decoders", [part]) if isinstance(part, dict) else []
    return {str(inner.get("type")) for inner in parts if isinstance(inner, dict)}
