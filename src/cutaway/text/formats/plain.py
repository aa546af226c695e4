"""Vocabularies of plain text: BERT's `vocab.txt`, and GPT-2's `vocab.json` with `merges.txt` (at OpenAI `encoder.json`
with `vocab.bpe`)."""

from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.files import read_json
from cutaway.text.rules import byte_level, parts
from cutaway.text.rules.parts import Part

_MERGES = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
_CUT_OF_CLASS = {"Qwen2Tokenizer": "qwen2", "Qwen2TokenizerFast": "qwen2"}


def read_wordpiece(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """BERT's: words, cut into pieces of which all but the first begin with `##` (Devlin et al. 2018)."""
    vocabulary = parts.numbered(_lines(file), str(file))
    roles = {"pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]", "cls": "[CLS]", "sep": "[SEP]"}
    roles = {role: _content(settings, role, usual) for role, usual in roles.items()}
    if roles["unk"] not in vocabulary:
        raise CutawayError(
            "{file}: no line {role!r}, which stands for unknown words", file=file, role=roles["unk"]
        )
    lowercase = _flag(settings, "do_lower_case", True, file)
    strip_accents = settings.get("strip_accents")
    normalizer: Part = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": _flag(settings, "tokenize_chinese_chars", True, file),
        "strip_accents": strip_accents if isinstance(strip_accents, bool) else None,
        "lowercase": lowercase,
    }
    model: Part = {
        "type": "WordPiece",
        "unk_token": roles["unk"],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": vocabulary,
    }
    there = {role: content for role, content in roles.items() if content in vocabulary}
    description = parts.whole(
        model,
        added=[parts.added_token(vocabulary[content], content) for content in there.values()],
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=parts.wrapping(vocabulary, [roles["cls"]], [roles["sep"]], second_type=1),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )
    return description, there


def read_bpe(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """GPT-2's and RoBERTa's byte-level BPE; other classes by `tokenizer_class` in the settings."""
    vocabulary: dict[str, int] = {}
    for piece, id in read_json(file).items():
        if not isinstance(id, int) or not 0 <= id < 2**24:
            raise CutawayError(
                "{file}: piece {piece!r} has id {id!r}, expected a whole number",
                file=file,
                piece=piece,
                id=id,
            )
        vocabulary[piece] = id
    if any(piece.endswith("</w>") for piece in vocabulary):
        raise CutawayError(
            "{file}: pieces end in '</w>': this kind of BPE is not read, only byte-level BPE (GPT-2's)",
            file=file,
        )
    merges = _merges(file.parent / _MERGES[file.name])
    usual = {
        "pad": "<pad>",
        "unk": "<unk>",
        "bos": "<s>",
        "eos": "</s>",
        "mask": "<mask>",
        "cls": "<s>",
        "sep": "</s>",
    }
    wraps = "<s>" in vocabulary and "</s>" in vocabulary
    if not wraps:
        usual = {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}
    roles = {role: content for role, content in usual.items() if content in vocabulary}
    added = [
        {**parts.added_token(vocabulary[content], content), "lstrip": content == "<mask>"}
        for content in dict.fromkeys(roles.values())
    ]
    return byte_level.describe(
        vocabulary,
        merges,
        byte_level.CUTS[_CUT_OF_CLASS.get(str(settings.get("tokenizer_class")), "gpt2")],
        added=sorted(added, key=lambda token: vocabulary[str(token["content"])]),
        prefix_space=_flag(settings, "add_prefix_space", False, file),
        wrapping=parts.wrapping(vocabulary, ["<s>"], ["</s>"], ["</s>"]) if wraps else None,
    ), roles


def _merges(file: Path) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(_lines(file), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, space, right = line.partition(" ")
        if not (left and space and right) or " " in right:
            raise CutawayError(
                "{file}:{number}: {line!r}, expected two pieces and a space between them",
                file=file,
                number=number,
                line=line,
            )
        merges.append((left, right))
    return merges


def _lines(file: Path) -> list[str]:
    """Lines that end in LF, or all in CR LF; any other kind of line end belongs to a piece."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CutawayError("{file}: not UTF-8 at byte {start}", file=file, start=error.start) from error
    lines = text.removesuffix("\n").split("\n")
    if text.endswith("\r\n") and all(line.endswith("\r") for line in lines[:-1]):
        lines = [line.removesuffix("\r") for line in lines]
    return lines


def _content(settings: Mapping[str, object], role: str, usual: str) -> str:
    given = settings.get(f"{role}_token")
    content = given.get("content") if isinstance(given, dict) else given
    return content if isinstance(content, str) else usual


def _flag(settings: Mapping[str, object], key: str, default: bool, file: Path) -> bool:
    value = settings.get(key, default)
    if not isinstance(value, bool):
        raise CutawayError(
            "{parent}: {key} is {value!r}, expected true or false",
            parent=file.parent / "tokenizer_config.json",
            key=key,
            value=value,
        )
    return value
