import base64
import random
from pathlib import Path

import pytest
import tiktoken
from tests.text.strange import GOLDEN, strange_texts

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
COUNT = 50_256  # GPT-2's number of pieces, by which its rule for cutting text is known


def invented(count: int) -> dict[bytes, int]:
    """Pieces that grow from one another at random, the bytes first."""
    choose = random.Random(0)
    pieces = [bytes((byte,)) for byte in range(256)]
    known = set(pieces)
    begun = [b" ", b"a", b"e", b"1", b"\n", *(b"\xe6", b"\x88", b"\x91", b"\xcc", b"\x81", b"=")]
    while len(pieces) < count:
        left = choose.choice(begun) if choose.random() < 0.3 else choose.choice(pieces)
        piece = left + pieces[choose.randrange(2 * len(pieces) // 3)]
        if piece not in known and len(piece) < 12:
            known.add(piece)
            pieces.append(piece)
    return {piece: rank for rank, piece in enumerate(pieces)}


def write(file: Path, ranks: dict[bytes, int], line_end: str = "\n") -> None:
    lines = (f"{base64.b64encode(piece).decode()} {rank}{line_end}" for piece, rank in ranks.items())
    file.write_bytes("".join(lines).encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiktoken")
    write(folder / "some.tiktoken", invented(COUNT))
    return folder


def test_ids_equal_tiktoken_s(folder: Path):
    theirs = tiktoken.Encoding("invented", pat_str=SPLIT, mergeable_ranks=invented(COUNT), special_tokens={})
    ours = Tokenizer.open(folder)
    texts = [*GOLDEN, *strange_texts(1000)]
    assert ours.encode_ids(texts) == [theirs.encode_ordinary(text) for text in texts]
    for text, ids in zip(texts, ours.encode_ids(texts), strict=True):
        assert ours.decode(ids) == text
    assert ours.roles == {"bos": COUNT, "eos": COUNT}
    assert ours.encode_ids(["a<|endoftext|>"], controls=True)[0][-1] == COUNT
    assert COUNT not in ours.encode("a<|endoftext|>").ids


def test_saved_and_opened_again_it_is_the_same(folder: Path, tmp_path: Path):
    before = Tokenizer.open(folder)
    before.save(tmp_path)
    assert Tokenizer.open(tmp_path).encode_ids(strange_texts(200)) == before.encode_ids(strange_texts(200))


def test_a_vocabulary_of_another_size_is_refused_with_what_to_do(tmp_path: Path):
    write(tmp_path / "a.tiktoken", invented(300))
    with pytest.raises(
        CutawayError, match=r"a\.tiktoken: 300 pieces; .* give the model's tokenizer\.json instead"
    ):
        Tokenizer.open(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("IQ== 7", ":3: expected a piece in base64 and the rank 2"),
        ("IQ=", ":3: expected"),
        ("I 2", ":3: expected a piece in base64"),
        ("AA== 2", "twice"),
    ],
)
def test_malformed_files_are_refused_with_their_line(line: str, message: str, tmp_path: Path):
    (tmp_path / "a.tiktoken").write_text(f"AA== 0\nAQ== 1\n{line}\n")
    with pytest.raises(CutawayError, match=rf"a\.tiktoken:? ?.*{message}"):
        Tokenizer.open(tmp_path)
