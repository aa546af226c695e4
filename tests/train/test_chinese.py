"""What a run says to a Chinese reader: no English sentence, and a log that programs read as ever."""

import io
import json
import re
import signal
from pathlib import Path

import pytest
from tests.train.toy import TEXTS, write_data, write_recipe

from cutaway.errors import CutawayError
from cutaway.train.machine import Interrupts
from cutaway.train.progress import Progress
from cutaway.train.recipe import read_recipe
from cutaway.train.run import train
from cutaway.train.state import RunFolder
from cutaway.train.validation import Scores
from cutaway.words import Text, said, say

WORDS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2,}")


@pytest.fixture(autouse=True)
def chinese(reader: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")


def test_a_run_its_end_and_its_resumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path)
    recipe = write_recipe(tmp_path)
    assert train(read_recipe(recipe, ["data.validation.samples=0"])).step == 8
    first = capsys.readouterr().err
    for words in (
        "pairs.tsv：300 行",
        "验证：留出 20 个句对；另有 ",
        " 段文字学词表（bpe）",
        " 个词元，存于 ",
        "训练：",
        "略去 0 个空的、0 个过长的",
        " 个参数，在 cpu 上以 torch.float32 做矩阵乘法",
        "第 8 步，验证：损失 ",
        " · bleu zh>en ",
        "（目前最好）",
        "步的模型",
    ):
        assert words in first
    assert train(read_recipe(recipe, ["data.validation.samples=0"])).step == 8
    again = capsys.readouterr().err
    assert "接着训练（第 8 步）" in again
    assert not WORDS.search(first + again)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    assert {"step", "loss", "lr", "tokens", "gradient_norm", "tokens_per_second", "seconds"} == log[0].keys()
    assert any("validation" in entry and "loss" in entry["validation"] for entry in log)


def test_running_text_and_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path)
    recipe = write_recipe(tmp_path, TEXTS, preset="llama-tiny", kind="characters", objective="causal")
    train(read_recipe(recipe, []))
    told = capsys.readouterr().err
    for words in ("验证：留出 19 篇文字", " 篇文字，", " 篇为空", "每字节比特数 "):
        assert words in told
    started = Interrupts()
    with started:
        signal.raise_signal(signal.SIGINT)
    train(read_recipe(recipe, ["steps=9"]), started)
    told += capsys.readouterr().err
    assert "收到信号，已停止；第 4 步已保存，再次运行同一命令即可接着训练" in told
    assert not WORDS.search(told)


def test_lines_of_progress_and_steps_left_out(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Progress(tmp_path / "log.jsonl", stream=stream, every=0.0) as progress:
        entry: dict[str, object] = {"step": 7, "tokens": 500, "lr": 0.1, "loss": 2.0}
        progress.step(entry, seconds=0.5, done=0.25, elapsed=100.0)
        why = say("loss or gradient is not finite")
        progress.step({"step": 8, "tokens": 500, "samples": [3, 1]}, 0.5, 0.25, 100.0, why)
        progress.validation(8, Scores(loss=1.5, tokens=9, bits_per_byte=2.0), better=True)
    assert stream.getvalue().splitlines() == [
        "第 7 步 · 损失 2.0000 · 每秒 1,000 个词元 · 还需 5:00",
        "跳过第 8 步：损失或梯度不是有限数，样本 [3, 1]",
        "第 8 步 · 损失 2.0000 · 每秒 1,000 个词元 · 还需 5:00",
        "第 8 步，验证：损失 1.5 · 每字节比特数 2（目前最好）",
    ]
    _, skipped, scores = map(json.loads, (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines())
    assert skipped["skipped"] == "loss or gradient is not finite"
    assert scores["validation"] == {"loss": 1.5, "bits_per_byte": 2.0}


def test_a_damaged_checkpoint_and_a_mistake_in_a_recipe(tmp_path: Path) -> None:
    told: list[Text] = []
    folder = RunFolder(tmp_path)
    folder.at(3).mkdir()
    files = {name: {} for name in ("config.json", "training.safetensors", "training.json")}
    (folder.at(3) / "manifest.json").write_text(json.dumps({"files": files}), encoding="utf-8")
    assert folder.newest(told.append) is None
    aside = f"这个检查点已移到 {folder.at(3)}.damaged，不再使用"
    assert said(told[0]) == f"{folder.at(3) / 'config.json'}：缺失；{aside}"
    recipe = write_recipe(tmp_path)
    for override, words in (
        ("model.n_heads=3", f"{recipe}：model：d_model（16）须是 n_heads（3）的倍数"),
        ("lr=nan", f"{recipe}：train.lr 为 nan，应为大于 0 的数"),
        ("stepz=1", f"{recipe}：没有 'train.stepz' 这个键（是不是 'steps'？）；可用的键："),
    ):
        with pytest.raises(CutawayError) as error:
            read_recipe(recipe, [override])
        assert error.value.message.said("zh").startswith(words)
