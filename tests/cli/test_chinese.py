"""What the commands print, to a Chinese reader: no English sentence, and within the terminal."""

import json
import re
from pathlib import Path

import pytest

from cutaway import bundled
from cutaway.cli.models import MEASURES, card_scores
from cutaway.config import ModelConfig, parse
from cutaway.inspection.questions.anatomy import anatomy_of
from cutaway.models.build import PRESETS
from cutaway.page.console import Terminal
from cutaway.text.display import width

WORD = re.compile(r"[A-Za-z]{3,}")
HAN = re.compile("[一-鿿]")
SENTENCE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2,}")
NAMES = {"LayerNorm", "RMSNorm", "ReLU", "GELU", "SiLU", "tanh", "logit", "ALiBi", "linear", "int", "FLOP"}
VARIANTS: list[dict[str, object]] = [
    {"n_kv_heads": 2, "qk_norm": True, "rope_scaling": {"kind": "linear", "factor": 8}},
    {"window": 64, "window_layers": [0, 2, 4], "norm": "rmsnorm1p", "norm_order": "sandwich"},
    {"attn_softcap": 50, "logit_softcap": 30, "attn_scale": 1.0, "logit_scale": 0.5, "head_bias": True},
    {"n_experts": 8, "n_experts_per_token": 2, "d_expert": 96, "dense_layers": [0, 1]},
    {"n_experts": 8, "experts_renormalised": False, "position": "alibi"},
    {"position": "relative", "attn_scale": 0.2, "embed_norm": True, "n_segments": 2},
    {"position": "none", "gated": False, "activation": "gelu_tanh", "head": "none"},
]


@pytest.fixture
def cutaway(cutaway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    return cutaway


@pytest.mark.parametrize("preset", PRESETS)
def test_the_page_of_a_model_has_no_english_words(preset: str):
    changes = VARIANTS if preset == "llama-tiny" else [{}]
    for each in changes:
        found = anatomy_of(parse(ModelConfig, {"vocab_size": 1000, **PRESETS[preset], **each}, preset))
        for columns in (60, 80):
            text, _, taps = Terminal(columns, locale="zh").text(found.page()).partition(" 个探点")
            assert set(WORD.findall(re.sub("[kMG]FLOP", "FLOP", text))) <= NAMES | {found.architecture}
            assert "decoder." in taps or "encoder." in taps


def test_a_mixture_of_experts_says_what_is_at_work():
    values = {"vocab_size": 1000, **PRESETS["llama-tiny"], "n_experts": 8, "n_experts_per_token": 2}
    found = anatomy_of(parse(ModelConfig, values, "test"))
    assert f"每个词元用到 {found.active_parameters:,} 个参数（8 个专家选 2 个）" in found.to_text(locale="zh")


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
    (tmp_path / "text.txt").write_text("ab ba\n" * 9, encoding="utf-8")
    for command in (
        ("translate", "好久不见。", "-m", translator, "--show", "scores", "--show", "tokens"),
        ("tokenize", "机器", "-t", translator),
        ("fill", "我爱[MASK]。", "-m", masked),
        ("embed", "好", "-m", masked),
        ("similarity", "好", "爱", "我", "-m", masked),
        ("convert", poet, tmp_path / "out"),
        ("tokenizer", "train", tmp_path / "text.txt", "-o", tmp_path / "t", "--kind", "characters"),
    ):
        found = cutaway(*command)
        assert found.code == 0 and not SENTENCE.search(found.err), command
        words = re.sub(r"cutaway tokenize [^\n]*", "", found.out)
        assert not SENTENCE.search(words), command
        names = [line for line in words.splitlines() if HAN.search(line)]
        assert names, command
    found = json.loads(cutaway("embed", "好", "-m", masked, "--json").out)
    assert list(found) == ["text", "tokens", "norm", "vector"]


def test_scores_of_a_test_set_and_notes_are_chinese(cutaway, translator: Path, tmp_path: Path):
    for name, line in (("zh", "好久不见" * 60), ("en", "Long time no see.")):
        (tmp_path / name).write_text(line + "\n", encoding="utf-8")
    result = cutaway(
        "evaluate", tmp_path / "zh", tmp_path / "en", "--to", "en", "-m", translator, "--beam", "1"
    )
    assert re.search(r"^1 对，[\d.]+ 秒，束宽 1，长度惩罚 0.6$", result.out, re.MULTILINE)
    assert result.err == "提示：1 段文字中有 1 段超出模型上限，已截断\n"


def test_notes_of_models_are_chinese_in_json_too(
    cutaway, translator: Path, poet: Path, masked: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "我愛A" * 60
    options = ("translate", "-m", translator, "--to", "zh", "--truncate", "--max-new-tokens", "2")
    result = cutaway(*options, text, "--json")
    notes = [line.removeprefix("提示：") for line in result.err.splitlines()]
    assert len(notes) == 4 and all(HAN.search(each) and not SENTENCE.search(each) for each in notes)
    assert json.loads(result.out)["notes"] == notes
    assert cutaway(*options, given=f"\n{text}\n").err.splitlines() == [
        f"提示：第 2 行：{note}" for note in notes
    ]
    for command in (
        ("generate", "今天" * 40, "-m", poet, "--truncate", "--max-new-tokens", "1"),
        ("embed", "a b " * 40, "-m", masked),
    ):
        told = cutaway(*command).err
        assert told.startswith("提示：") and told.count("\n") == 1 and not SENTENCE.search(told)
        # how many tokens were read
        assert re.search(r"\d", told)
    monkeypatch.setenv("LANG", "C.UTF-8")
    english = cutaway(*options, text, "--json")
    assert json.loads(english.out)["notes"] == [
        line.removeprefix("note: ") for line in english.err.splitlines()
    ]
    assert SENTENCE.search(english.err)
