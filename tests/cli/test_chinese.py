"""What the commands print, to a Chinese reader: no English sentence, and within the terminal."""

import json
import re
from pathlib import Path

import pytest

from cutaway import bundled
from cutaway.cli.models import MEASURES, card_scores
from cutaway.text.display import width

SENTENCE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2,}")


@pytest.fixture
def cutaway(cutaway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    return cutaway


def test_a_table_stands_in_columns_and_fits(cutaway):
    result = cutaway("models")
    assert (result.code, result.err) == (0, "")
    head, _, *rows = result.out.splitlines()
    assert not SENTENCE.search(result.out)
    assert max(map(width, result.out.splitlines())) <= 80
    end = width(head[: head.index("参数量")] + "参数量")
    for folder in bundled():
        row = next(row for row in rows if row.startswith(folder.name))
        number = re.search(r"\d[\d,]{5,}", row)
        assert number is not None
        assert width(row[: number.end()]) == end


def test_every_measure_of_a_bundled_card_is_translated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    scores = [score for folder in bundled() for score in card_scores(folder)]
    assert any(MEASURES["bits per byte"].said("zh") in score for score in scores)
    assert not [score for score in scores if SENTENCE.search(score)]


def test_what_stands_around_data_is_chinese_and_data_is_not(
    cutaway, translator: Path, poet: Path, masked: Path, tmp_path: Path
):
    scores = cutaway("translate", "好久不见。", "-m", translator, "--show", "scores", "--show", "tokens").out
    for words in ("词元", "概率", "其他候选", "对数概率", "得分", "原文词元", "译文词元", "编号"):
        assert words in scores
    pieces = cutaway("tokenize", "机器", "-t", translator).out
    for words in ("文字", "独热向量，长", "为 1", "个码点", "个字节", "个词元"):
        assert words in pieces
    gaps = cutaway("fill", "我爱[MASK]。", "-m", masked).out
    assert re.search("^空缺 1 +概率$", gaps, re.MULTILINE)
    vectors = cutaway("embed", "好", "-m", masked)
    for words in ("词元数", "范数", "前几个值", "1 个向量，各 16 个数，mean 池化，已归一化（默认设置）"):
        assert words in vectors.out
    alike = cutaway("similarity", "好", "爱", "我", "-m", masked).out
    assert alike.splitlines()[0].endswith("文字")
    written = cutaway("convert", poet, tmp_path / "out").out
    assert "文件" in written
    assert re.search(r"：llama，[\d,]+ 个参数，float32$", written.rstrip())
    (tmp_path / "text.txt").write_text("ab ba\n" * 9, encoding="utf-8")
    learned = cutaway(
        "tokenizer", "train", tmp_path / "text.txt", "-o", tmp_path / "t", "--kind", "characters"
    ).out
    assert "个是控制词元" in learned
    assert "看一看：cutaway tokenize" in learned
    for text in (scores, pieces, gaps, vectors.out, alike, written, learned):
        assert not SENTENCE.search(text.replace("cutaway tokenize --tokenizer", ""))
    found = json.loads(cutaway("embed", "好", "-m", masked, "--json").out)
    assert list(found) == ["text", "tokens", "norm", "vector"]


def test_scores_of_a_test_set_and_notes_are_chinese(cutaway, translator: Path, tmp_path: Path):
    for name, line in (("zh", "好久不见。" * 30), ("en", "Long time no see.")):
        (tmp_path / name).write_text(line + "\n", encoding="utf-8")
    result = cutaway(
        "evaluate", tmp_path / "zh", tmp_path / "en", "--to", "en", "-m", translator, "--beam", "1"
    )
    assert re.search(r"^1 对，[\d.]+ 秒，束宽 1，长度惩罚 0.6$", result.out, re.MULTILINE)
    assert result.err == "提示：1 段文字中有 1 段超出模型上限，已截断\n"


def test_notes_of_models_are_chinese_in_json_too(
    cutaway, translator: Path, poet: Path, masked: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "我愛" * 60
    options = ("translate", "-m", translator, "--to", "zh", "--truncate", "--max-tokens", "2")
    result = cutaway(*options, text, "--json")
    notes = [line.removeprefix("提示：") for line in result.err.splitlines()]
    assert (notes[0], notes[1]) == ("繁体字已转换成简体字", "这段文字里已有汉字，仍按要求译成中文")
    assert re.fullmatch(r"这段文字有 \d+ 个词元，只翻译了前 \d+ 个", notes[2])
    assert json.loads(result.out)["notes"] == notes
    assert cutaway(*options, given=f"\n{text}\n").err.splitlines() == [
        f"提示：第 2 行：{note}" for note in notes
    ]
    cut = cutaway("generate", "今天" * 40, "-m", poet, "--truncate", "--max-tokens", "1")
    assert cut.err == "提示：开头有 80 个词元，只读了最后 16 个\n"
    assert re.fullmatch(
        r"提示：这段文字有 \d+ 个词元，只读了前 30 个\n", cutaway("embed", "a b " * 40, "-m", masked).err
    )
    monkeypatch.setenv("LANG", "C.UTF-8")
    english = cutaway(*options, text, "--json")
    assert json.loads(english.out)["notes"] == [
        line.removeprefix("note: ") for line in english.err.splitlines()
    ]
    assert SENTENCE.search(english.err)
