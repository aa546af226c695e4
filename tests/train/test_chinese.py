"""What a run says to a Chinese reader: no English sentence, and a log that programs read as ever."""

import io
import json
import re
import signal
from pathlib import Path

import pytest
from tests.train.toy import TEXTS, write_data, write_recipe

from cutaway.page.locale import Both
from cutaway.text.corpus import Report
from cutaway.train.data import say_report
from cutaway.train.evaluate import Scores
from cutaway.train.progress import Progress
from cutaway.train.recipe import read_recipe
from cutaway.train.run import train
from cutaway.train.signals import Interrupts
from cutaway.train.state import RunFolder

WORDS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2,}")


@pytest.fixture(autouse=True)
def chinese(reader: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")


def test_a_run_its_end_and_its_resumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_data(tmp_path)
    recipe = write_recipe(tmp_path)
    assert train(read_recipe(recipe, ["data.validation.samples=0"])).step == 8
    first = capsys.readouterr().err
    for words in (
        "pairs.tsv：300 行",
        "验证：留出 20 个句对；另有 ",
        " 段文字学词表（bpe）",
        " 个词块，存于 ",
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
    log = [
        json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert {"step", "loss", "lr", "tokens", "gradient_norm", "tokens_per_second", "seconds"} == log[0].keys()
    assert any("validation" in entry and "loss" in entry["validation"] for entry in log)


def test_running_text_and_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_data(tmp_path)
    recipe = write_recipe(tmp_path, TEXTS, preset="llama-tiny", kind="characters", objective="causal")
    train(read_recipe(recipe, []))
    said = capsys.readouterr().err
    for words in ("验证：留出 19 篇文字", " 篇文字，", " 篇为空", "每字节比特数 "):
        assert words in said
    started = Interrupts()
    with started:
        signal.raise_signal(signal.SIGINT)
    train(read_recipe(recipe, ["steps=9"]), started)
    said += capsys.readouterr().err
    assert "收到信号，已停止；第 4 步已保存，再次运行同一命令即可接着训练" in said
    assert not WORDS.search(said)


def test_lines_of_progress_and_steps_left_out(tmp_path: Path):
    stream = io.StringIO()
    with Progress(tmp_path / "log.jsonl", stream=stream, every=0.0) as progress:
        entry: dict[str, object] = {"step": 7, "tokens": 500, "lr": 0.1, "loss": 2.0}
        progress.step(entry, seconds=0.5, done=0.25, elapsed=100.0)
        why = Both("loss or gradient is not finite", "损失或梯度不是有限数")
        progress.step({"step": 8, "tokens": 500, "samples": [3, 1]}, 0.5, 0.25, 100.0, why)
        progress.validation(8, Scores(loss=1.5, tokens=9, bits_per_byte=2.0), better=True)
    assert stream.getvalue().splitlines() == [
        "第 7 步 · 损失 2.0000 · 每秒 1,000 个词块 · 还需 5:00",
        "跳过第 8 步：损失或梯度不是有限数，样本 [3, 1]",
        "第 8 步 · 损失 2.0000 · 每秒 1,000 个词块 · 还需 5:00",
        "第 8 步，验证：损失 1.5 · 每字节比特数 2（目前最好）",
    ]
    _, skipped, scores = map(json.loads, (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines())
    assert skipped["skipped"] == "loss or gradient is not finite"
    assert scores["validation"] == {"loss": 1.5, "bits_per_byte": 2.0}


def test_what_a_reader_of_files_met_and_what_is_damaged(tmp_path: Path):
    said: list[str] = []
    say_report(tmp_path / "a.txt", Report(lines=1200, replaced=1, skipped=2, empty=3, long=4), said.append)
    assert said[0].endswith("a.txt：1,200 行，替换 1 个坏字节，略去 2 个坏行、3 个空的、4 个过长的")
    say_report(tmp_path / "a.txt", Report(lines=1), said.append)
    assert said[1].endswith("a.txt：1 行")
    folder = RunFolder(tmp_path)
    folder.at(3).mkdir()
    (folder.at(3) / "manifest.json").write_text('{"files": {"config.json": {}}}', encoding="utf-8")
    assert folder.newest(said.append) is None
    assert said[2].startswith(f"检查点 {folder.at(3)} 已损坏，跳过（")
