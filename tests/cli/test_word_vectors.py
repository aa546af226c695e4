"""Word vectors on the command line: asked, measured, converted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.checkpoint.vector_files import write_vectors

WORDS = ["国王", "王后", "男人", "女人", "苹果"]
ROWS = [[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "toy.vec"
    write_vectors(path, WORDS, np.array(ROWS))
    return path


def test_the_questions_of_points(cutaway, vectors: Path):
    found = cutaway("inspect", "analogy", "国王", "男人", "女人", "-m", vectors, "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["result"]["answers"][0]["piece"] == "王后"
    assert f"load_vectors(find({str(vectors)!r}))" in answer["python"]
    space: dict[str, Any] = {}
    exec(answer["python"], space)
    assert space["result"].answers[0].piece == "王后"
    for question in (
        ("neighbours", "国王"),
        ("projection", "国王", "王后", "男人"),
        ("similarity", "国王", "王后"),
    ):
        result = cutaway("inspect", *question, "-m", vectors)
        assert result.code == 0 and "国王" in result.out, result.err


@pytest.mark.parametrize(
    ("model", "question", "answer"),
    [
        ("words-en", ("king", "man", "woman"), "queen"),
        ("words-en", ("brother", "man", "woman"), "sister"),
        ("words-en", ("walking", "walk", "swim"), "swimming"),
        ("words-zh", ("儿子", "父亲", "母亲"), "女儿"),
        ("words-zh", ("丈夫", "男人", "女人"), "妻子"),
    ],
)
def test_the_bundled_ones_answer_at_once(cutaway, model: str, question: tuple[str, ...], answer: str):
    found = cutaway("inspect", "analogy", *question, "-m", model, "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["result"]["answers"][0]["piece"] == answer


def test_what_word_vectors_cannot_be_asked(cutaway, vectors: Path):
    result = cutaway("inspect", "lens", "你好", "-m", vectors)
    assert result.code == 2
    assert (
        "lens cannot be asked; they answer analogy, cloud, neighbours, pair, projection, similarity"
        in result.err
    )
    assert "'国玉' is not among the 5 words" in cutaway("inspect", "neighbours", "国玉", "-m", vectors).err
    folder = vectors.with_name("folder")
    assert cutaway("convert", vectors, folder).code == 0
    for command in ("translate", "generate", "embed"):
        result = cutaway(command, "你好", "-m", folder)
        assert result.code == 2 and "word vectors, and no model that reads texts" in result.err


def test_converted_to_other_forms_and_back(cutaway, vectors: Path, tmp_path: Path):
    here = vectors
    for name in ("a", "b.bin", "c.txt", "d.vec"):
        result = cutaway("convert", here, tmp_path / name)
        assert result.code == 0 and "5 vectors of 4 numbers" in result.out, result.err
        here = tmp_path / name
    assert here.read_bytes() == vectors.read_bytes()
    assert "2 vectors" in cutaway("convert", here, tmp_path / "few", "--top", 2, "--dtype", "float16").out
    # a folder keeps the type it has; what is no ending of letters names a folder
    assert cutaway("convert", tmp_path / "few", tmp_path / "few-1.5").code == 0
    for name in ("few", "few-1.5"):
        assert json.loads((tmp_path / name / "config.json").read_text())["dtype"] == "float16"
    assert "leave --dtype out" in cutaway("convert", here, tmp_path / "f.vec", "--dtype", "float16").err
    assert "vectors are written to .bin" in cutaway("convert", here, tmp_path / "f.txt.gz").err
    assert "already there" in cutaway("convert", here, tmp_path / "c.txt").err
    assert "leave --shard-size out" in cutaway("convert", here, tmp_path / "e", "--shard-size", "1MB").err
    assert "--top belongs to word vectors" in cutaway("convert", "poet-zh", tmp_path / "e", "--top", 2).err


def test_measured(cutaway, vectors: Path, tmp_path: Path):
    (tmp_path / "q.txt").write_text(": family\n男人 女人 国王 王后\n男人 女人 男孩 女孩\n", encoding="utf-8")
    (tmp_path / "p.tsv").write_text("国王\t王后\t8\n国王\t男人\t9\n国王\t苹果\t0\n", encoding="utf-8")
    options = ("evaluate", "-m", vectors, "--analogies", "q.txt", "--word-pairs", "p.tsv")
    values = json.loads(cutaway(*options, "--json").out)
    assert values["analogies"]["q.txt"][0] == {"name": "family", "right": 1, "asked": 1, "unknown": 1}
    assert values["word_pairs"]["p.tsv"]["correlation"] == pytest.approx(1)
    said = cutaway(*options).out
    assert "family" in said and "100.0%" in said and "1.000" in said
    assert "no word vectors" in cutaway("evaluate", "--analogies", "q.txt").err
    for name, value in (("--to", "zh"), ("--limit", "1"), ("--out", "nowhere/x.txt"), ("--beam", "3")):
        assert f"{name} belongs to translators" in cutaway(*options, name, value).err
    assert "give one of them" in cutaway(*options, "source.txt", "reference.txt").err
    assert "a translator is measured on SOURCE and REFERENCE" in cutaway("evaluate").err


def test_a_file_with_odd_words_is_opened_with_a_remark(cutaway, tmp_path: Path):
    (tmp_path / "odd.vec").write_bytes(b"3 1\na 1\n\xff 2\na 3\n")
    result = cutaway("inspect", "neighbours", "a", "-m", "odd.vec")
    assert result.code == 0
    assert cutaway("evaluate", "-m", "odd.vec", "--word-pairs", "odd.vec").err.count("note: ") == 2
