"""Learning a vocabulary from text, of six kinds.

The pieces of the subword kinds carry the spaces before them as they are (` love`); nothing is normalised unless asked
for. "bpe" and "unigram" put one space before a text that begins with a letter or digit of a spaced script, or with a
space, and take it away when decoding: so `Tom` is one piece at the start of a text and within it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from cutaway.errors import CutawayError, nearest
from cutaway.text import corpus
from cutaway.text.tokens.plan import Plan

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_ASCII = [chr(code) for code in range(0x20, 0x7F)]
_PRIVATE = 0xF0000  # the first code point of the private planes
_UNREACHABLE = -10_000.0  # a Unigram score that loses to any spelling in characters

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー々〇"
_LETTER = rf"[\p{{L}}\p{{M}}&&[^{_UNSPACED}]]"
# Digits singly; runs of unspaced scripts, which take no space with them; words, with inner apostrophes;
# punctuation.
_SPLIT = (
    rf" ?\p{{N}}|[{_UNSPACED}]+| ?{_LETTER}+(?:['’]{_LETTER}+)*"
    r"| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
)
_PREFIX = rf"\A(?=[ \p{{L}}\p{{N}}&&[^{_UNSPACED}]])"
_WORD = r"[\p{L}\p{M}\p{N}_]+(?:['’\-][\p{L}\p{M}\p{N}_]+)*|[^\s\p{L}\p{M}\p{N}_]"


def train(texts: Iterable[str | Path], plan: Plan) -> str:
    """Learn a vocabulary and return the text of its `tokenizer.json`.

    * `bpe-bytes`: BPE over UTF-8 bytes (GPT-2); decode(encode(x)) == x for every text.
    * `bpe`: BPE over characters; those outside the alphabet fall back to bytes, so it is exact for every
      text. A run of Han or kana merges up to the next punctuation; digits stand singly.
    * `unigram`: SentencePiece's language model over pieces (Kudo 2018), with the same rules and fallback.
    * `wordpiece`: BERT's; words over 100 characters and characters outside the alphabet become unk, control
      characters vanish, white space is decoded as one space between words and none between Han characters.
    * `words`: words, numbers and single punctuation marks; the rest of a vocabulary's words become unk;
      decoding puts one space between all. Chinese must come segmented by spaces: a run without one is one
      word.
    * `characters`: code points; exact for the characters it knows, the others become unk. The line breaks of
      files count as characters.

    `normalization` and `lowercase` change the text before all that; offsets still refer to the original.
    Ties are broken by code point, so the same texts give the same vocabulary; except for `unigram`, where the
    library adds up in random order and a few pieces near the limit may differ.
    """
    if isinstance(texts, str):
        raise CutawayError("expected a list of texts or of paths to learn from, got one string")
    source = texts if isinstance(texts, Sequence) else list(texts)
    if not source:
        raise CutawayError("no text to learn a vocabulary from; give texts that are not empty")
    learn = {"words": _words, "characters": _characters, "wordpiece": _wordpiece}
    tokenizer = learn.get(plan.kind, _subwords)(source, plan)
    size = tokenizer.get_vocab_size()
    if plan.vocab_size is not None and size > plan.vocab_size:
        raise CutawayError(
            "vocab_size is {size:,}, too small: control tokens, bytes and characters already take {taken:,}; "
            "give a larger one",
            size=plan.vocab_size,
            taken=size,
        )
    # A space after a language mark belongs to the mark, for those who write it in the text for `transformers`.
    marks = [AddedToken(piece, normalized=False, rstrip=piece in plan.marks) for piece in plan.controls]
    tokenizer.add_special_tokens(marks)
    if plan.template is not None:
        tokenizer.post_processor = _template(plan, tokenizer)
    return tokenizer.to_str()


def _texts(source: Iterable[str | Path], line_end: str = "") -> Iterator[str]:
    """The texts, and the lines of the files, each with this end."""
    for item in source:
        if isinstance(item, Path):
            yield from (line + line_end for line in corpus.read_lines(item))
        else:
            yield item


def _subwords(source: Sequence[str | Path], plan: Plan) -> Tokenizer:
    """`bpe-bytes`, `bpe` and `unigram`: one way to split text, three ways to learn pieces within the parts."""
    assert plan.vocab_size is not None
    steps = _normalizers(plan)
    split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
    if plan.kind == "bpe-bytes":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        fixed = [*plan.controls]
        pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        decoder = decoders.ByteLevel()
        cut = _texts(source)
    else:
        steps.append(normalizers.Replace(Regex(_PREFIX), " "))
        alphabet = _alphabet(source, plan, steps)
        fixed = [*plan.controls, *BYTES]
        pre_tokenizer = split
        decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        cut = _only(alphabet, _texts(source))
    room = plan.vocab_size - len(fixed)
    if room < len(alphabet):
        raise CutawayError(
            "vocab_size is {size:,}, too small: control tokens and bytes take {fixed:,}, "
            "characters {characters:,}; give at least {least:,}, or a smaller alphabet",
            size=plan.vocab_size,
            fixed=len(fixed),
            characters=len(alphabet),
            least=len(fixed) + len(alphabet),
        )
    empty, learn = (models.Unigram(), _unigram) if plan.kind == "unigram" else (models.BPE(), _bpe)
    learner = _ruled(empty, steps, pre_tokenizer)
    tokenizer = _ruled(learn(learner, cut, room, alphabet, fixed, plan), steps, pre_tokenizer)
    tokenizer.decoder = decoder
    return tokenizer


def _ruled(
    model: models.Model, steps: list[normalizers.Normalizer], pre_tokenizer: pre_tokenizers.PreTokenizer
) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def _bpe(
    learner: Tokenizer, texts: Iterable[str], room: int, alphabet: list[str], fixed: list[str], plan: Plan
) -> models.Model:
    pieces = _learn_bpe(learner, texts, room, alphabet, plan.min_count)
    vocabulary = {piece: id for id, piece in enumerate([*fixed, *pieces])}
    merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
    return models.BPE(vocab=vocabulary, merges=merges, byte_fallback=plan.kind == "bpe")


def _learn_bpe(
    learner: Tokenizer, texts: Iterable[str], room: int, alphabet: list[str], min_count: int
) -> list[str]:
    """The pieces in the order in which they were learned, the alphabet first."""
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=min_count,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    vocabulary = learner.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _unigram(
    learner: Tokenizer, texts: Iterable[str], room: int, alphabet: list[str], fixed: list[str], plan: Plan
) -> models.Model:
    assert plan.unk is not None
    trainer = trainers.UnigramTrainer(vocab_size=room, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    learned = [(piece, score) for piece, score in json.loads(learner.to_str())["model"]["vocab"]]
    scores = [(piece, _UNREACHABLE) for piece in fixed] + learned
    return models.Unigram(scores, fixed.index(plan.unk), True)


def _wordpiece(source: Sequence[str | Path], plan: Plan) -> Tokenizer:
    assert plan.unk is not None and plan.vocab_size is not None
    bert = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=plan.lowercase
    )
    steps = [*_normalizers(plan, lowercase=False), bert]
    normalizer = normalizers.Sequence(steps)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    alphabet = _alphabet(source, plan, steps)
    kept = {character for character in alphabet if ord(character) < _PRIVATE}
    # The library's own trainer numbers inner characters at random, and ties are broken by number. So inner ones are
    # written as private characters here, and plain BPE, with a fixed alphabet, learns the pieces.
    inner = {character: chr(_PRIVATE + number) for number, character in enumerate(sorted(kept))}
    plain = {private: character for character, private in inner.items()}
    table = str.maketrans(inner)

    def marked() -> Iterator[list[str]]:
        for text in _texts(source):
            words = (word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
            yield [word[0] + word[1:].translate(table) for word in words if kept.issuperset(word)]

    usual = [*_ASCII[1:], *(inner[character] for character in _ASCII if character.isalnum())]
    both = sorted({*usual, *(character for words in marked() for word in words for character in word)})
    room = plan.vocab_size - len(plan.controls)
    if room < len(both):
        raise CutawayError(
            "vocab_size is {size:,}, too small: control tokens take {fixed:,}, characters at the "
            "start of a word and within {characters:,}; give at least {least:,}, or a smaller alphabet",
            size=plan.vocab_size,
            fixed=len(plan.controls),
            characters=len(both),
            least=len(plan.controls) + len(both),
        )
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pieces = []
    for piece in _learn_bpe(learner, map(" ".join, marked()), room, both, plan.min_count):
        spelled = "".join(plain.get(character, character) for character in piece)
        pieces.append("##" + spelled if piece[0] in plain else spelled)
    vocabulary = {piece: id for id, piece in enumerate([*plan.controls, *pieces])}
    model = models.WordPiece(vocab=vocabulary, unk_token=plan.unk)
    tokenizer = _ruled(model, steps, pre_tokenizer)
    between_han = decoders.Replace(Regex(rf"(?<=[{_UNSPACED}]) (?=[{_UNSPACED}])"), "")
    tokenizer.decoder = decoders.Sequence(
        [decoders.WordPiece("##", cleanup=False), decoders.Fuse(), between_han]
    )
    return tokenizer


def _words(source: Sequence[str | Path], plan: Plan) -> Tokenizer:
    split = pre_tokenizers.Split(Regex(_WORD), "removed", invert=True)
    return _whole(source, plan, split)


def _characters(source: Sequence[str | Path], plan: Plan) -> Tokenizer:
    tokenizer = _whole(source, plan, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _whole(source: Sequence[str | Path], plan: Plan, split: pre_tokenizers.PreTokenizer) -> Tokenizer:
    """A vocabulary of what `split` gives, the most frequent first, ties by code point."""
    assert plan.unk is not None
    steps = _normalizers(plan)
    # where every character is a piece, a line break is one too
    line_end = "\n" if plan.kind == "characters" else ""
    texts, cut = _normal(source, steps, line_end), split.pre_tokenize_str
    ranked = _ranked(
        texts if plan.kind == "characters" else ([word for word, _ in cut(text)] for text in texts)
    )
    kept = [word for word, count in ranked if count >= plan.min_count and word not in plan.controls]
    if plan.vocab_size is not None:
        kept = kept[: max(0, plan.vocab_size - len(plan.controls))]
    vocabulary = {piece: id for id, piece in enumerate([*plan.controls, *kept])}
    return _ruled(models.WordLevel(vocab=vocabulary, unk_token=plan.unk), steps, split)


def _ranked(texts: Iterable[Iterable[str]]) -> list[tuple[str, int]]:
    """How often each part occurs in all texts, the most frequent first, ties by code point."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _normal(
    source: Iterable[str | Path], steps: list[normalizers.Normalizer], line_end: str = ""
) -> Iterator[str]:
    normalizer = normalizers.Sequence(steps)
    return (normalizer.normalize_str(text) if steps else text for text in _texts(source, line_end))


def _normalizers(plan: Plan, lowercase: bool = True) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = []
    if plan.normalization != "none":
        steps.append(normalizers.NFC() if plan.normalization == "nfc" else normalizers.NFKC())
    if lowercase and plan.lowercase:
        steps.append(normalizers.Lowercase())
    return steps


def _alphabet(source: Sequence[str | Path], plan: Plan, steps: list[normalizers.Normalizer]) -> list[str]:
    """The characters that get pieces of their own, by code point: ASCII, then the most frequent others."""
    ranked = _ranked(_normal(source, steps if plan.normalization != "none" or plan.lowercase else []))
    total = sum(count for _, count in ranked)
    if not total:
        raise CutawayError("no text to learn a vocabulary from: every line is empty; give texts")
    kept = set(_ASCII)
    covered = sum(count for character, count in ranked if character in kept)
    for character, count in ranked:
        enough = len(kept) >= plan.alphabet if plan.alphabet is not None else covered >= plan.coverage * total
        if enough:
            break
        if character not in kept:
            kept.add(character)
            covered += count
    return sorted(kept)


def _only(alphabet: list[str], texts: Iterable[str]) -> Iterator[str]:
    """Texts cut at characters outside the alphabet, so that no merge is learned across one."""
    kept = set(alphabet)
    for text in texts:
        rare = set(text) - kept
        yield text.translate(dict.fromkeys(map(ord, rare), "\n")) if rare else text


def _template(plan: Plan, tokenizer: Tokenizer) -> processors.TemplateProcessing:
    assert plan.template is not None
    used = [part for part in plan.template.split() if not part.startswith("$")]
    for part in used:
        if part not in plan.controls:
            hint = nearest(part, plan.controls)
            raise CutawayError(
                "template {text!r}: {part!r} is no control token{hint}",
                text=plan.template,
                part=part,
                hint=hint,
            )
    ids = [(part, tokenizer.token_to_id(part)) for part in dict.fromkeys(used)]
    return processors.TemplateProcessing(single=plan.template, special_tokens=ids)
