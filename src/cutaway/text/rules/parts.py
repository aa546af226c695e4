"""The parts that a `tokenizer.json` is put together from, as the `tokenizers` library spells them."""

from collections.abc import Iterable, Mapping, Sequence

from cutaway.errors import CutawayError

Part = dict[str, object]


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


def added_token(id: int, content: str, *, special: bool = True, normalized: bool = False) -> Part:
    """A token found before the model sees the text; `normalized`: found in the normalised text."""
    return {
        "id": id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": normalized,
        "special": special,
    }


def normalizers(parts: Sequence[Part]) -> Part | None:
    return {"type": "Sequence", "normalizers": list(parts)} if parts else None


def pre_tokenizers(parts: Sequence[Part]) -> Part:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def decoders(parts: Sequence[Part]) -> Part:
    return {"type": "Sequence", "decoders": list(parts)}


def replace(pattern: str, content: str, regex: bool = False) -> Part:
    """A normalizer or a decoder."""
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def split(regex: str) -> Part:
    """A pre-tokenizer: every match, and what lies between two, is a part of its own."""
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def wrapping(
    vocabulary: Mapping[str, int],
    before: Sequence[str],
    after: Sequence[str],
    between: Sequence[str] = (),
    second_type: int = 0,
) -> Part | None:
    """What `transformers` puts around one text and around two (`between` stands before the second, whose
    pieces are of `second_type`); None where there is nothing, or a name is not in the vocabulary."""
    names = [*before, *after, *between]
    if not names or not all(name in vocabulary for name in names):
        return None

    def special(name: str, type_id: int) -> Part:
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def sequence(name: str, type_id: int) -> Part:
        return {"Sequence": {"id": name, "type_id": type_id}}

    first: list[Part] = [special(name, 0) for name in before]
    first += [sequence("A", 0), *(special(name, 0) for name in after)]
    second: list[Part] = [special(name, 0) for name in between]
    second += [sequence("B", second_type), *(special(name, second_type) for name in after)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *second],
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in dict.fromkeys(names)
        },
    }


def numbered(pieces: Iterable[str], where: str) -> dict[str, int]:
    """Each piece with its place as id. CutawayError for a piece that stands twice."""
    listed = list(pieces)
    vocabulary = {piece: id for id, piece in enumerate(listed)}
    if len(vocabulary) < len(listed):
        id = next(id for id, piece in enumerate(listed) if vocabulary[piece] != id)
        raise CutawayError(
            "{where}: piece {listed!r} stands twice, at {id} and at {vocabulary}",
            where=where,
            listed=listed[id],
            id=id,
            vocabulary=vocabulary[listed[id]],
        )
    return vocabulary
