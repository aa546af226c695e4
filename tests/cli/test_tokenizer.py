from pathlib import Path
from typing import get_args

import pytest

from cutaway import Tokenizer
from cutaway.text.tokens.plan import Kind

TEXT = "我爱机器学习。\nI love machine learning, I love it.\n" * 4


@pytest.mark.parametrize("kind", get_args(Kind))
def test_learns_every_kind(cutaway, tmp_path: Path, kind: str):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    size = "0" if kind in ("words", "characters") else "420"
    result = cutaway(
        "tokenizer", "train", "text.txt", "--out", "learned", "--kind", kind, "--vocab-size", size,
        "--language", "eng", "--language", "zho",
    )  # fmt: skip
    assert result.code == 0, result.err
    learned = Tokenizer.open(tmp_path / "learned")
    assert f"{learned.vocab_size} ids" in result.out
    assert learned.id(">>zho<<") is not None
    assert learned.encode("I love").ids


def test_options_change_what_is_learned(cutaway, tmp_path: Path):
    (tmp_path / "text.txt").write_text("Ａ Ａ bB bB rare\n", encoding="utf-8")

    def pieces(*options: str) -> set[str]:
        result = cutaway(
            "tokenizer",
            "train",
            "text.txt",
            "--out",
            "o",
            "--force",
            "--kind",
            "words",
            "--vocab-size",
            "0",
            *options,
        )
        assert result.code == 0, result.err
        learned = Tokenizer.open(tmp_path / "o")
        return {learned.piece(id) for id in range(learned.vocab_size)} - set(learned.controls.values())

    assert pieces() == {"Ａ", "bB"}
    assert pieces("--min-count", "1") == {"Ａ", "bB", "rare"}
    assert pieces("--lowercase") == {"ａ", "bb"}
    assert pieces("--normalization", "nfkc") == {"A", "bB"}


def test_an_existing_tokenizer_is_not_replaced_unasked(cutaway, tmp_path: Path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "tokenizer.json").write_text("mine")
    result = cutaway("tokenizer", "train", "text.txt", "--out", "o")
    assert result.code == 2
    assert "--force" in result.err
    assert (tmp_path / "o" / "tokenizer.json").read_text() == "mine"
