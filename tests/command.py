"""The command line as a user runs it, and tiny models with random weights, one of each family, to run it on."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway import Tokenizer, build, save
from cutaway.cli.main import run
from cutaway.config import ModelConfig, parse
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.head import Head
from cutaway.text.display import width

LINES = [
    "我爱机器学习。", "好久不见。", "今天天气很好。", "他昨天买了一本新书。", "I love machine learning.",
    "Long time no see.", "The weather is fine today.", "He bought a new book yesterday.",
] * 3  # fmt: skip


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Run = Callable[..., Result]
# What a question is asked with: a model by its fixture's name, a text, and options as JSON has them.
Case = tuple[str, str | None, dict[str, Any]]
SETTINGS = {"LANG": "C.UTF-8", "COLUMNS": "80", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}


@pytest.fixture
def cutaway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `cutaway ARGUMENTS` in this process, in an empty folder; `given` is its standard input."""
    monkeypatch.chdir(tmp_path)
    for name in ("LC_ALL", "LC_MESSAGES", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)

    def run_here(*arguments: str | Path, given: str | bytes = "") -> Result:
        out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
        data = given.encode() if isinstance(given, str) else given
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["cutaway", *map(str, arguments)])
            patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data), encoding="utf-8"))
            with pytest.raises(SystemExit) as ended:
                run()
        texts = []
        for stream in (out, err):
            stream.flush()
            assert isinstance(stream.buffer, BytesIO)
            texts.append(stream.buffer.getvalue().decode())
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, *texts)

    return run_here


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs `cutaway ARGUMENTS` as a process of its own, warnings being errors; `shell` pipes it as a shell does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}

    def run_apart(
        *arguments: str | Path, given: bytes = b"", pipe: str = "", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        command = shlex.join([sys.executable, "-W", "error", "-m", "cutaway", *map(str, arguments)])
        return subprocess.run(
            ["bash", "-c", f"{command} {pipe}"],
            input=given,
            capture_output=True,
            cwd=tmp_path,
            env=kept | SETTINGS | variables,
        )

    return run_apart


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(LINES, "bpe", 450, languages=["eng", "zho"], template="$A </s>")
    eos, pad = tokenizer.require("eos"), tokenizer.require("pad")
    return saved(
        tmp_path_factory.mktemp("translator"),
        tokenizer,
        {"family": "encoder-decoder", "position": "sinusoidal", "norm_order": "post", "activation": "relu",
         "head_bias": True, "embed_scale": 4.0, "pad_id": pad, "eos_id": eos, "decoder_start_id": pad,
         "max_len": 32},
    )  # fmt: skip


@pytest.fixture(scope="session")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(LINES, "characters", None, min_count=1, template="<s> $A")
    eos, bos = tokenizer.require("eos"), tokenizer.require("bos")
    return saved(
        tmp_path_factory.mktemp("poet"),
        tokenizer,
        {"family": "decoder-only", "norm": "rmsnorm", "position": "rotary", "activation": "silu", "gated": True,
         "attn_bias": False, "mlp_bias": False, "eos_id": eos, "bos_id": bos, "max_len": 32},
    )  # fmt: skip


@pytest.fixture(scope="session")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(LINES, "wordpiece", 250, template="[CLS] $A [SEP]")
    return saved(
        tmp_path_factory.mktemp("masked"),
        tokenizer,
        {"family": "encoder-only", "norm_order": "post", "position": "learned", "activation": "gelu",
         "embed_norm": True, "n_segments": 2, "head": "masked", "head_bias": True, "max_len": 32,
         "pad_id": tokenizer.require("pad"), "mask_id": tokenizer.require("mask")},
    )  # fmt: skip


@pytest.fixture(scope="session")
def headless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(LINES, "wordpiece", 250, template="[CLS] $A [SEP]")
    return saved(
        tmp_path_factory.mktemp("headless"),
        tokenizer,
        {"family": "encoder-only", "norm_order": "post", "position": "learned", "activation": "gelu",
         "embed_norm": True, "n_segments": 2, "head": "none", "max_len": 32,
         "pad_id": tokenizer.require("pad")},
    )  # fmt: skip


def saved(folder: Path, tokenizer: Tokenizer, values: dict[str, object]) -> Path:
    """A model of width 16 and two layers with reproducible random weights, written as a checkpoint folder."""
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32}
    model = build(parse(ModelConfig, {**sizes, **values}, "test"))
    torch.manual_seed(8)
    for weight in model.parameters():
        if weight.dim() > 1:
            # Far from fresh ones, so that every input and option tells.
            torch.nn.init.normal_(weight, std=0.5)
    bias = model.head.unembed.bias if isinstance(model.head, Head) else None
    eos = tokenizer.role("eos")
    if bias is not None and eos is not None:
        bias.data[eos] = 4.0  # so that some texts end before their limit
    save(folder, model, tokenizer)
    return folder


# A question as a user asks it: in a terminal, in both languages, as JSON, as a page of its own.

_COPIED = re.compile(r"(cutaway|from|import|with|\w+ =| {4}loaded\.model)[ (]")
_ENGLISH = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']{2,}){2,}")  # three English words in a row


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many forward passes (of all positions at once; steps of decoding do not count) were made since the last
    time that it was asked."""
    made, within = 0, False

    def counted(family: type, name: str, counts: bool = True) -> None:
        plain = getattr(family, name)

        def called(*given: Any, **named: Any) -> Any:
            nonlocal made, within
            made += counts and not within
            before, within = within, True
            try:
                return plain(*given, **named)
            finally:
                within = before

        monkeypatch.setattr(family, name, called)

    def since() -> int:
        nonlocal made
        found, made = made, 0
        return found

    for family in (EncoderDecoder, DecoderOnly, EncoderOnly):
        counted(family, "hidden")
    counted(EncoderDecoder, "encode")
    counted(EncoderDecoder, "begin", counts=False)
    return since


def shown(cutaway: Run, *arguments: str | Path, lang: str = "en") -> str:
    """What `cutaway inspect ARGUMENTS` shows in a terminal, no line of it wider than 80 columns but those to copy."""
    found = cutaway("inspect", *arguments, "--lang", lang)
    assert (found.code, found.err) == (0, ""), found
    assert max(map(width, _prose(found.out))) <= 80
    return found.out


def shown_in_chinese(cutaway: Run, *arguments: str | Path) -> str:
    """The same in Chinese, without an English sentence."""
    out = shown(cutaway, *arguments, lang="zh")
    assert re.search("[一-鿿]", out.splitlines()[0])
    english = _ENGLISH.search("\n".join(_prose(out)))
    assert not english, english
    return out


def _prose(out: str) -> list[str]:
    """The lines that are no commands and no Python."""
    return [line for line in out.splitlines() if not _COPIED.match(line)]


def result(cutaway: Run, *arguments: str | Path) -> Any:
    """The result that JSON carries."""
    found = cutaway("inspect", *arguments, "--json")
    assert (found.code, found.err) == (0, ""), found
    return json.loads(found.out)["result"]


def page_of(cutaway: Run, *arguments: str | Path, lang: str = "en") -> str:
    """The page as HTML, which is whole without a network."""
    html = Path("page.html")
    found = cutaway("inspect", *arguments, "--html", html, "--lang", lang)
    assert found.code == 0, found
    whole = html.read_text(encoding="utf-8")
    assert len(whole) < 2_000_000
    assert not re.search(r'(?:src|href)="(?!data:|#)', whole)
    return whole


def refused(cutaway: Run, *arguments: str | Path) -> str:
    """The one line that tells what is wrong."""
    found = cutaway("inspect", *arguments)
    assert (found.code, found.out) == (2, ""), found
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1
    return found.err
