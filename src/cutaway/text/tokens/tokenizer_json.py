"""The file `tokenizer.json`, as the `tokenizers` library spells it: the parts it is put together from, reading one, and
a version of one that cannot produce a control token."""

import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tokenizers import Tokenizer

from cutaway.errors import CutawayError, about, brief
from cutaway.words import Phrase, say

Part = dict[str, object]
Around = tuple[list[int], list[int]]
# Begins the name of a piece that no text may become; a noncharacter of Unicode.
UNREACHABLE = "\ufdd0"
MOST_PIECES = 1_200_000  # XLM-V has 901,629
MOST_IDS = 2**24
# An added token's, where it is a control token: found in the text as it is, whatever stands beside it.
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
_MARKUP = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")


# Parts.


def whole(
    model: Part,
    *,
    added: Sequence[Part] = (),
    normalizer: Part | None = None,
    pre_tokenizer: Part | None = None,
    post_processor: Part | None = None,
    decoder: Part | None = None,
) -> Part:
    """The object of a tokenizer.json."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def bpe(
    vocabulary: Mapping[str, int],
    merges: Iterable[Sequence[str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    whole_pieces: bool = False,
) -> Part:
    """A BPE model. `whole_pieces`: a part of the text that is a piece becomes it, whatever its merges would give."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unknown is not None,
        "byte_fallback": byte_fallback,
        "ignore_merges": whole_pieces,
        "vocab": dict(vocabulary),
        "merges": [list(pair) for pair in merges],
    }


def added_token(id: int, content: str, **flags: bool) -> Part:
    """A token found before the model sees the text: a control token, but for `flags`."""
    return {"id": id, "content": content, **FLAGS, **flags}


def in_a_row(kind: str, parts: Sequence[Part]) -> Part:
    """Parts of one kind (`normalizers`, `pretokenizers`, `decoders`), each working on what the one before made."""
    return {"type": "Sequence", kind: list(parts)}


def replace(pattern: str, content: str, regex: bool = False) -> Part:
    """A normalizer or a decoder."""
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def split(regex: str) -> Part:
    """A pre-tokenizer: every match, and what lies between two matches, is a part of its own."""
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def wrapping(
    vocabulary: Mapping[str, int],
    before: Sequence[str],
    after: Sequence[str],
    between: Sequence[str] = (),
    second_type: int = 0,
) -> Part | None:
    """What `transformers` puts around one text and around two (`between` stands before the second, whose pieces are of
    `second_type`); None where there is nothing to put, or a name is not in the vocabulary."""
    names = [*before, *after, *between]
    if not names or not all(name in vocabulary for name in names):
        return None

    def special(names: Sequence[str], type_id: int) -> list[Part]:
        return [{"SpecialToken": {"id": name, "type_id": type_id}} for name in names]

    def sequence(name: str, type_id: int) -> Part:
        return {"Sequence": {"id": name, "type_id": type_id}}

    first = [*special(before, 0), sequence("A", 0), *special(after, 0)]
    second = [*special(between, 0), sequence("B", second_type), *special(after, second_type)]
    tokens = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in names}
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *second],
        "special_tokens": tokens,
    }


def numbered(pieces: Iterable[str]) -> dict[str, int]:
    """Each piece with its place as id. CutawayError for a piece that stands twice."""
    vocabulary: dict[str, int] = {}
    for id, piece in enumerate(pieces):
        if (first := vocabulary.setdefault(piece, id)) != id:
            raise CutawayError(
                "piece {piece!r} stands twice, at {first} and at {second}; expected each piece once",
                piece=piece,
                first=first,
                second=id,
            )
    return vocabulary


def checked_id(value: object, piece: str, limit: int = MOST_IDS) -> int:
    """The value, where it can be the id of that piece; otherwise a CutawayError."""
    if not isinstance(value, int) or not 0 <= value < limit:
        raise CutawayError(
            "piece {piece!r} has id {value}, expected a whole number from 0 to {limit:,}",
            piece=piece,
            value=brief(value),
            limit=limit - 1,
        )
    return value


# Reading.


def read(source: str, where: str) -> dict:
    """The object in the file, as far checked as this package looks into it; the library checks the rest."""
    with about(where):
        try:
            description = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise CutawayError("not a tokenizer.json: {error}", error=error) from error
        if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
            raise CutawayError("not a tokenizer.json: expected an object with a 'model'")
        check_number(description["model"].get("vocab"))
        added = description.setdefault("added_tokens", [])
        if not isinstance(added, list):
            raise CutawayError("added_tokens is {added}, expected a list", added=brief(added))
        for token in added:
            content = token.get("content") if isinstance(token, dict) else None
            if not isinstance(content, str) or not content:
                raise CutawayError("an added token has no content: {token}", token=brief(token))
            checked_id(token.get("id"), content)
    return description


def check_number(pieces: object) -> None:
    """CutawayError for more pieces than any vocabulary has."""
    if isinstance(pieces, dict | list) and len(pieces) > MOST_PIECES:
        raise CutawayError(
            "{count:,} pieces, expected at most {limit:,}", count=len(pieces), limit=MOST_PIECES
        )


def build(source: str) -> Tokenizer:
    """The library's tokenizer; CutawayError with the library's reason where it refuses."""
    with named_failure(say("the tokenizers library refuses it")):
        return Tokenizer.from_str(source)


@contextmanager
def named_failure(what: Phrase) -> Iterator[None]:
    """CutawayError that begins with `what` for whatever goes wrong in the library: it raises plain Exception for what
    is malformed, and for what it did not foresee it panics, which is no Exception."""
    try:
        yield
    except CutawayError:
        raise
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


def without(description: Mapping, contents: Collection[str]) -> str:
    """The same tokenizer, unable to produce a control token: no merge leads to one, and in the vocabulary and among the
    added tokens they keep their ids under names that no text can spell (random, anew in every process). It adds, pads
    and cuts nothing."""
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
        raise CutawayError("malformed vocabulary or merges: {error}", error=error) from error
    added = [
        {**token, "content": hidden.get(token["content"], token["content"])}
        for token in description["added_tokens"]
    ]
    parts = {"truncation": None, "padding": None, "post_processor": None}
    return json.dumps(
        {**description, **parts, "added_tokens": added, "model": model},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def shown(piece: str) -> str:
    """The name of a piece without the mark of those that no text may become."""
    return piece.removeprefix(UNREACHABLE)


def part_charsmap(description: Mapping) -> tuple[str | None, dict]:
    """SentencePiece's table of replacements, where normalisation begins with one, and the description without it."""
    normalizer = description.get("normalizer")
    inner = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    steps: list = inner if isinstance(inner, list) else [normalizer]
    first = steps[0] if steps else None
    encoded = first.get("precompiled_charsmap") if isinstance(first, dict) else None
    if not isinstance(encoded, str):
        return None, dict(description)
    return encoded, {**description, "normalizer": in_a_row("normalizers", steps[1:]) if steps[1:] else None}


def decoders(description: Mapping) -> set[str]:
    """Types of the decoder, or of those inside a sequence."""
    part = description.get("decoder")
    parts = part.get("decoders", [part]) if isinstance(part, dict) else []
    return {str(inner.get("type")) for inner in parts if isinstance(inner, dict)}


def around(post_processor: object, where: str) -> Around:
    """The ids that a post-processor puts before and after a single text: `[CLS]` and `[SEP]` of BERT, `<s>` alone of
    Llama; nothing where it only trims offsets, or is None.

    Raises CutawayError naming `where` for a kind that the `tokenizers` library does not have, or a malformed one."""
    with about(where):
        try:
            return _around(post_processor)
        except RecursionError as error:
            raise CutawayError("post_processor is nested too deeply") from error


def _around(post_processor: object) -> Around:
    if post_processor is None:
        return [], []
    if not isinstance(post_processor, Mapping):
        raise CutawayError(
            "post_processor is {value}, expected an object or null", value=brief(post_processor)
        )
    kind = post_processor.get("type")
    try:
        if kind == "ByteLevel":
            return [], []
        if kind == "TemplateProcessing":
            return _template(post_processor)
        if kind in ("BertProcessing", "RobertaProcessing"):
            return [_whole(post_processor["cls"][1])], [_whole(post_processor["sep"][1])]
        if kind == "Sequence":
            before: list[int] = []
            after: list[int] = []
            # each works on what the one before it made
            for inner in post_processor["processors"]:
                left, right = _around(inner)
                before, after = left + before, after + right
            return before, after
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise CutawayError(
            "malformed post_processor of type {kind!r}: {error!r}", kind=kind, error=error
        ) from error
    raise CutawayError(
        "post_processor has the type {kind!r}, expected TemplateProcessing, BertProcessing, RobertaProcessing, "
        "ByteLevel or Sequence",
        kind=kind,
    )


def _template(post_processor: Mapping) -> Around:
    """The ids around `Sequence A` in the template of a single text."""
    sides: Around = [], []
    seen = 0
    for part in post_processor["single"]:
        if "Sequence" in part:
            seen += 1
            continue
        special = post_processor["special_tokens"][part["SpecialToken"]["id"]]
        sides[min(seen, 1)].extend(map(_whole, special["ids"]))
    if seen != 1:
        raise IndexError(post_processor["single"])
    return sides


def _whole(id: object) -> int:
    if not isinstance(id, int):
        raise TypeError(id)
    return id
