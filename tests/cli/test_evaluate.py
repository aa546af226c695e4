import json
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from cutaway import Translator, load

SOURCES = ["好久不见。", "今天天气很好。", "我爱机器学习。"]
REFERENCES = ["Long time no see.", "The weather is fine today.", "I love machine learning."]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {"source": SOURCES, "reference": REFERENCES, "labels": ["Hans", "Hant", "Hans"]}
    paths = {name: tmp_path / name for name in texts}
    for name, lines in texts.items():
        paths[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def test_scores_are_those_of_sacrebleu(cutaway, translator: Path, files: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out.txt"
    options = (files["source"], files["reference"], "--to", "en", "-m", translator, "--out", out)
    result = cutaway("evaluate", *options, "--json")
    assert result.code == 0, result.err
    values = json.loads(result.out)
    outputs = [found.best.text for found in Translator(load(translator)).translate(SOURCES, to="en")]
    assert out.read_text(encoding="utf-8").splitlines() == outputs
    assert values["BLEU"] == pytest.approx(BLEU().corpus_score(outputs, [REFERENCES]).score)
    assert "tok:13a" in values["signatures"]["BLEU"]
    assert values["pairs"] == 3
    assert cutaway("evaluate", *options).out.startswith(
        f"BLEU {values['BLEU']:.2f}  {values['signatures']['BLEU']}"
    )


def test_texts_that_were_cut_are_counted(cutaway, translator: Path, tmp_path: Path):
    long = tmp_path / "long.txt"
    long.write_text("你好。\n" + "你好 hello " * 400 + "\n", encoding="utf-8")
    result = cutaway("evaluate", long, long, "--to", "zh", "-m", translator, "--beam", 1)
    assert result.code == 0
    assert "1 of 2 texts were longer than the model's limit and were cut" in result.err


def test_a_perfect_translation_scores_100_and_chinese_is_scored_by_character(
    cutaway, translator: Path, files: dict[str, Path], tmp_path: Path
):
    out = tmp_path / "out.txt"
    base = ("evaluate", files["reference"])
    cutaway(*base, files["source"], "--to", "zh", "-m", translator, "--out", out)
    result = cutaway(*base, out, "--to", "zh", "-m", translator, "--json")
    values = json.loads(result.out)
    assert values["chrF"] == pytest.approx(100)
    assert "tok:zh" in values["signatures"]["BLEU"]


def test_labels_choose_lines(cutaway, translator: Path, files: dict[str, Path]):
    pairs = ("evaluate", files["source"], files["reference"], "--to", "en", "-m", translator, "--json")
    labelled = ("--labels", files["labels"], "--only", "Hans")
    assert json.loads(cutaway(*pairs, *labelled).out)["pairs"] == 2
    assert json.loads(cutaway(*pairs, *labelled, "--limit", "1").out)["pairs"] == 1
    wrong = cutaway(*pairs, "--labels", files["labels"], "--only", "hans")
    assert wrong.code == 2
    assert "did you mean 'Hans'?" in wrong.err
