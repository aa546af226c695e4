"""A text as the tokens that a model reads of it, while it is typed."""

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.complete import prepare_prompt
from cutaway.decode.gaps import encode_with_gaps
from cutaway.decode.sentence_settings import read_settings
from cutaway.decode.text_model import mask_id_of
from cutaway.decode.translator import Translator
from cutaway.text.tokens.encoding import Spans, groups


def tokens_value(loaded: Loaded, text: str, to: str | None) -> dict[str, object]:
    """Every token with its id, its piece as a reader sees it, and the part of the text it stands for, as code points;
    null where it stands for none. Tokens of one `group` share a character.

    Raises TooLong for a text beyond the model's limit, and CutawayError for a language that it does not know.
    """
    tokenizer = loaded.require_tokenizer()
    ids, pieces, offsets = _read(loaded, text, to)
    # what stands for no part of the text shares no character with others
    inner = [place for place, (start, end) in enumerate(offsets) if start < end]
    group: dict[int, int] = {}
    for number, members in enumerate(groups(text, [offsets[place] for place in inner])):
        group |= {inner[member]: number for member in members}
    found: list[dict[str, object]] = []
    for place, (id, piece, (start, end)) in enumerate(zip(ids, pieces, offsets, strict=True)):
        there = start < end
        found.append(
            {
                "id": id,
                "piece": piece,
                "start": start if there else None,
                "end": end if there else None,
                "group": group.get(place),
                "control": tokenizer.is_control(id),
            }
        )
    return {"tokens": found, "max_len": loaded.config.max_len}


def _read(loaded: Loaded, text: str, to: str | None) -> tuple[list[int], list[str], Spans]:
    """Ids, pieces and offsets, control tokens among them."""
    tokenizer = loaded.require_tokenizer()
    if loaded.config.family == "encoder-decoder":
        source = Translator(loaded).prepare(text, to=to)
        return source.ids, source.pieces, source.offsets
    if loaded.config.head == "none":
        settings, (before, after) = read_settings(loaded.path), tokenizer.around
        encoding = tokenizer.encode(settings.read(text))
        shift = len(settings.prompt)
        inner = [(max(0, start - shift), max(0, end - shift)) for start, end in encoding.offsets]
        named = tokenizer.readable
        return (
            [*before, *encoding.ids, *after],
            [*map(named, before), *encoding.pieces, *map(named, after)],
            [*[(0, 0)] * len(before), *inner, *[(0, 0)] * len(after)],
        )
    if loaded.config.family == "decoder-only":
        prompt, encoding = prepare_prompt(loaded, text), tokenizer.encode(text)
        before = len(prompt.ids) - len(encoding.ids)
        return prompt.ids, prompt.pieces, [*[(0, 0)] * before, *encoding.offsets]
    return encode_with_gaps(tokenizer, text, mask_id_of(loaded))
