"""Downloaded tokenizer files: ids equal to those of the library that each file was made for."""

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
from tests.text.strange import GOLDEN, strange_texts
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers.normalizers import NFC
from transformers import BertTokenizer

from cutaway.text.tokens.tokenizer import Tokenizer

SHARED = Path(__file__).parents[4] / "shared/data/tokenizers"
Ids = list[list[int]]
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Name, the file that must be there, the side.
CASES = {
    "llama2": ("llama2/tokenizer.model", "source"),
    "mistral": ("mistral/mistral_instruct_tokenizer_240323.model.v3", "source"),
    "opus source": ("opus-mt-en-zh/source.spm", "source"),
    "opus target": ("opus-mt-en-zh/target.spm", "target"),
    "llama3": ("llama3/tokenizer.model", "source"),
    "qwen": ("qwen/qwen.tiktoken", "source"),
    "gpt2": ("gpt2/encoder.json", "source"),
    "bert": ("bert-base-chinese/vocab.txt", "source"),
}


def there(name: str) -> Path:
    file = SHARED / CASES[name][0]
    if not file.is_file():
        pytest.skip(
            f"../shared/data/tokenizers/{CASES[name][0]} is not here: a downloaded tokenizer, no part of cutaway"
        )
    return file


@cache
def opened(name: str) -> Tokenizer:
    file, side = there(name), CASES[name][1]
    # its folder holds a tokenizer.json too
    if name == "llama2":
        return Tokenizer.open(file)
    return Tokenizer.open(file.parent, side="target" if side == "target" else "source")


def reference(name: str) -> Callable[[list[str]], Ids]:
    """The ids of the reference, which reads control tokens as plain text."""
    file = there(name)
    if name in ("llama2", "mistral"):
        return sentencepiece.SentencePieceProcessor(model_file=str(file)).encode
    if name.startswith("opus"):
        # As transformers' MarianTokenizer: pieces of SentencePiece, unknown characters as they stand, by vocab.json.
        numbers = json.loads((file.parent / "vocab.json").read_text(encoding="utf-8"))
        model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        return lambda texts: [
            [numbers.get(piece, numbers["<unk>"]) for piece in pieces]
            for pieces in model.encode(texts, out_type=str)
        ]
    if name == "bert":
        whole = BertTokenizer(vocab=str(file), do_lower_case=True)
        return lambda texts: [whole(text, add_special_tokens=False).input_ids for text in texts]
    if name == "gpt2":
        ranks = data_gym_to_mergeable_bpe_ranks(str(file.parent / "vocab.bpe"), str(file))
        pattern = _GPT2_SPLIT
    else:
        lines = (line.split() for line in file.read_bytes().splitlines() if line)
        ranks = {base64.b64decode(piece): int(rank) for piece, rank in lines}
        pattern = _SPLIT % ("" if name == "qwen" else "{1,3}")
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    # Qwen composes first. Python's tables are of another year than the library's: a few marks are unknown to them.
    compose = NFC().normalize_str if name == "qwen" else str
    return lambda texts: [encoding.encode_ordinary(compose(text)) for text in texts]


def differences(name: str, count: int, seed: int) -> list[tuple[str, list[int], list[int]]]:
    texts = [
        *GOLDEN,
        *strange_texts(count, seed, controls=name != "bert"),
    ]  # bert's reference reads them always
    ours, theirs = opened(name).encode_ids(texts), reference(name)(texts)
    return [(text, one, two) for text, one, two in zip(texts, ours, theirs, strict=True) if one != two]


@pytest.mark.parametrize("name", CASES)
def test_ids_equal_the_reference_s(name: str):
    assert not differences(name, 1000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ids_equal_the_reference_s_for_very_many_texts(name: str):
    assert not differences(name, 20_000, seed=2)


@pytest.mark.parametrize("name", CASES)
def test_text_never_becomes_a_control_token_of_a_downloaded_vocabulary(name: str):
    tokenizer = opened(name)
    forbidden = set(tokenizer.controls) - {tokenizer.role("unk")}
    assert forbidden
    spelled = [*tokenizer.controls.values(), " ".join(tokenizer.controls.values())]
    for ids in tokenizer.encode_ids([*spelled, *strange_texts(500)]):
        assert not forbidden.intersection(ids)


def test_llama2_s_offsets_and_bytes():
    encoding = opened("llama2").encode("This is 😀")
    assert encoding.pieces == ["▁This", "▁is", "▁", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩"]
    assert encoding.offsets == [(0, 4), (4, 7), (7, 8), *[(8, 9)] * 4]


def test_llama3_reads_its_control_tokens_only_when_asked_to():
    tokenizer = opened("llama3")
    assert (tokenizer.vocab_size, tokenizer.role("bos"), tokenizer.around) == (
        128_256,
        128_000,
        ([128_000], []),
    )
    text = "<|start_header_id|>user<|end_header_id|>"
    assert tokenizer.encode_ids([text], controls=True)[0] == [128_006, 882, 128_007]
    assert max(tokenizer.encode_ids([text])[0]) < 128_000
    assert tokenizer.encode("are you ok?").offsets == [(0, 3), (3, 7), (7, 10), (10, 11)]
    assert tokenizer.piece(128_009) == "<|eot_id|>"
