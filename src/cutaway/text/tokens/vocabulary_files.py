"""Which tokenizer a model folder has, and every kind of it as a `tokenizer.json`."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from cutaway.errors import CutawayError, about, brief
from cutaway.files import read_json
from cutaway.text.tokens import byte_level, sentencepiece_ids, tokenizer_json
from cutaway.text.tokens.byte_level import flag, text_lines
from cutaway.text.tokens.cutting import SETTING
from cutaway.text.tokens.plan import BERT_ROLES
from cutaway.text.tokens.sentencepiece_ids import BOTH, NUMBERS, SIDES, JointVocabulary
from cutaway.text.tokens.tokenizer_json import FLAGS, Part
from cutaway.words import names_of, say

MOST_BYTES = 100_000_000  # three times the largest that is published
_SUFFIXES = (".json", ".txt", ".spm", ".model", ".bpe", ".tiktoken")
_SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")
# Kind, names of its main file, and what must lie beside it; the first that fits is taken.
_KINDS = (
    ("json", "tokenizer.json", ()),
    ("marian", SIDES[0], (SIDES[1], NUMBERS)),
    ("m2m100", BOTH, (NUMBERS,)),
    ("model", BOTH, ()),
    ("model", "spiece.model", ()),
    ("model", "tokenizer.model", ()),
    ("bpe", "vocab.json", ("merges.txt",)),
    ("bpe", "encoder.json", ("vocab.bpe",)),
    ("wordpiece", "vocab.txt", ()),
    ("model", "*.tiktoken", ()),
    ("model", "*.spm", ()),
    ("model", "*.model", ()),
    ("model", "*.model.v[0-9]*", ()),
)
EXPECTED = say(
    "tokenizer.json, a SentencePiece model, source.spm with target.spm and vocab.json, vocab.json with merges.txt, "
    "vocab.txt, or a tiktoken file"
)


def find(path: Path) -> tuple[str, Path] | None:
    """Kind and main file of the tokenizer in a folder, or of the file itself; None without one."""
    folder = path if path.is_dir() else path.parent
    names = sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    candidates = names if path.is_dir() else [path.name] if path.is_file() else []
    for kind, pattern, beside in _KINDS:
        if not all(name in names for name in beside):
            continue
        for name in candidates:
            if fnmatchcase(name, pattern):
                kind = _kind_of_model(folder / name, pattern) if kind == "model" else kind
                if kind is not None:
                    return kind, folder / name
    return ("json", path) if candidates and not path.is_dir() else None


def _kind_of_model(file: Path, pattern: str) -> str | None:
    """What stands in a file of that name, which says little; None for a stranger in the folder."""
    if byte_level.is_tiktoken(file):
        return "tiktoken"
    return "sentencepiece" if sentencepiece_ids.begins_as_model(file) or "*" not in pattern else None


def read(path: Path) -> tuple[str, dict[str, object], str, JointVocabulary | None]:
    """What a `Tokenizer` is made of, from a folder or one file: the text of a tokenizer.json, settings, where it was
    found, a joint vocabulary. CutawayError naming the file and what is wrong with it."""
    if not path.exists():
        raise CutawayError("{path}: no such file or folder", path=path)
    found = find(path)
    if found is None:
        folder = path if path.is_dir() else path.parent
        beside = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
        raise CutawayError(
            "{path}: no tokenizer there (expected {expected}){holds}",
            path=path,
            expected=EXPECTED,
            holds=say("; the folder holds {names}", names=names_of(beside[:8])) if beside else "",
        )
    kind, file = found
    for each in [file] if file == path else sorted(file.parent.glob("*")):
        size = each.stat().st_size
        if (each == file or each.suffix in _SUFFIXES) and size > MOST_BYTES:
            raise CutawayError(
                "{file}: {size:,} bytes, expected a tokenizer's file of at most {limit:,}",
                file=each,
                size=size,
                limit=MOST_BYTES,
            )
    settings: dict[str, object] = {}
    for name in _SETTINGS:
        if (file.parent / name).is_file():
            settings |= read_json(file.parent / name)
    if kind == "json":
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise CutawayError(
                "{file}: not UTF-8 at byte {at}, expected a JSON file", file=file, at=error.start
            ) from error
        return _with_listed(text, settings, file), settings, str(file), None
    if kind == "marian":
        source, joint = sentencepiece_ids.read_marian(file.parent)
        return source, settings, str(file), joint
    if kind == "m2m100":
        source, joint = sentencepiece_ids.read_m2m100(file.parent, settings)
        return source, settings, str(file), joint
    reader = {
        "tiktoken": byte_level.read_tiktoken,
        "sentencepiece": sentencepiece_ids.read_model,
        "bpe": byte_level.read_vocab_json,
        "wordpiece": read_wordpiece,
    }[kind]
    description, roles = reader(file, settings)
    if not any(f"{role}_token" in settings for role in roles):
        settings = {f"{role}_token": content for role, content in roles.items()} | settings
    description = _with_added(description, settings, file)
    # A tokenizer.json holds all rules; the published class would make up its own.
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    model = description["model"]
    assert isinstance(model, dict)
    if kind == "sentencepiece" and model["type"] == "Unigram":
        settings[SETTING] = True
    if kind == "wordpiece":
        settings.setdefault("model_input_names", ["input_ids", "token_type_ids", "attention_mask"])
    return json.dumps(description), settings, str(file), None


def read_wordpiece(file: Path, settings: Mapping[str, object]) -> tuple[Part, dict[str, str]]:
    """The tokenizer.json of BERT's `vocab.txt`, and the roles of its control tokens: words, cut into pieces of which
    all but the first begin with `##` (Devlin et al. 2018)."""
    with about(file):
        vocabulary = tokenizer_json.numbered(text_lines(file))
    roles = dict(BERT_ROLES)
    for role in roles:
        given = settings.get(f"{role}_token")
        content = given.get("content") if isinstance(given, dict) else given
        if isinstance(content, str):
            roles[role] = content
    strip_accents = settings.get("strip_accents")
    description = wordpiece(
        vocabulary,
        roles,
        str(file),
        lowercase=flag(settings, "do_lower_case", True, file),
        chinese=flag(settings, "tokenize_chinese_chars", True, file),
        strip_accents=strip_accents if isinstance(strip_accents, bool) else None,
    )
    return description, {role: content for role, content in roles.items() if content in vocabulary}


def wordpiece(
    vocabulary: Mapping[str, int],
    roles: Mapping[str, str],
    where: str,
    *,
    lowercase: bool,
    chinese: bool = True,
    strip_accents: bool | None = None,
) -> Part:
    """The tokenizer.json of a WordPiece vocabulary whose control tokens have these `roles`; `where` it was found."""
    if roles["unk"] not in vocabulary:
        raise CutawayError(
            "{file}: no line {piece!r}, which stands for unknown words", file=where, piece=roles["unk"]
        )
    there = {role: content for role, content in roles.items() if content in vocabulary}
    return tokenizer_json.whole(
        {
            "type": "WordPiece",
            "unk_token": roles["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
        added=[tokenizer_json.added_token(vocabulary[content], content) for content in there.values()],
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": chinese,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=tokenizer_json.wrapping(vocabulary, [roles["cls"]], [roles["sep"]], second_type=1),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def _with_listed(text: str, settings: Mapping[str, object], file: Path) -> str:
    """A tokenizer.json with the tokens that only tokenizer_config.json lists."""
    listed = settings.get("added_tokens_decoder")
    tokens = listed.values() if isinstance(listed, dict) else ()
    contents = [token.get("content") for token in tokens if isinstance(token, dict)]
    # looked for as the file may spell it: reading the whole file once more would take long
    if all(json.dumps(each) in text or json.dumps(each, ensure_ascii=False) in text for each in contents):
        return text
    description = tokenizer_json.read(text, str(file))
    return json.dumps(_with_added(description, settings, file), ensure_ascii=False)


def _with_added(description: Part, settings: Mapping[str, object], file: Path) -> Part:
    """The description with the tokens that `tokenizer_config.json` or `added_tokens.json` adds."""
    known = description["added_tokens"]
    assert isinstance(known, list)
    added: dict[int, Part] = {token["id"]: token for token in known}
    for id, token in _listed(settings, file).items():
        content = token["content"]
        taken = [other for other, each in added.items() if each["content"] == content and other != id]
        if taken:
            raise CutawayError(
                "{folder}: added token {content!r} has id {id}, in {file} it has {other}",
                folder=file.parent,
                content=content,
                id=id,
                file=file.name,
                other=taken[0],
            )
        added[id] = token
    return {**description, "added_tokens": [added[id] for id in sorted(added)]}


def _listed(settings: Mapping[str, object], file: Path) -> dict[int, Part]:
    listed: dict[int, Part] = {}
    beside = file.parent / "added_tokens.json"
    if beside.is_file():
        with about(beside):
            for content, value in read_json(beside).items():
                id = tokenizer_json.checked_id(value, content)
                listed[id] = tokenizer_json.added_token(id, content)
    decoder = settings.get("added_tokens_decoder", {})
    with about(file.parent / "tokenizer_config.json"):
        if not isinstance(decoder, dict):
            raise CutawayError("added_tokens_decoder is {value}, expected an object", value=brief(decoder))
        for key, token in decoder.items():
            given = token if isinstance(token, dict) else {}
            content = given.get("content")
            flags = {name: given.get(name, name == "normalized") for name in FLAGS}
            if not content or not isinstance(content, str) or {*map(type, flags.values())} != {bool}:
                raise CutawayError(
                    "added_tokens_decoder[{key!r}] is {value}, expected content, and true or false for {flags}",
                    key=key,
                    value=brief(token),
                    flags=names_of(FLAGS),
                )
            id = tokenizer_json.checked_id(int(key) if key.isdecimal() else key, content)
            listed[id] = tokenizer_json.added_token(id, content, **flags)
    return listed
