"""Recording everything, beside TransformerLens' `run_with_cache`: the same random weights in GPT-2 small's shape, the
same text, in one run; and how much memory both then hold."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from torch import Tensor

from benchmarks.measure import Effort, Row, take_turns
from benchmarks.memory import held
from cutaway.checkpoint import folder
from cutaway.config import ModelConfig
from cutaway.models.build import Model, build, preset
from cutaway.tap import Trace

GPT2_WORDS = 50_257
RunWithCache = Callable[[Tensor], tuple[Tensor, Mapping[str, Tensor]]]


def measure(effort: Effort) -> list[Row]:
    """Nothing where TransformerLens is not installed; `make bench` installs it."""
    if importlib.util.find_spec("transformer_lens") is None:
        return []
    torch.manual_seed(0)
    ours = build(_config(effort)).eval()
    theirs, their_run_with_cache = _opened_by_transformer_lens(ours)
    ids = torch.randint(0, ours.config.vocab_size, (1, effort.traced))

    @torch.inference_mode()
    def plain() -> Tensor:
        return ours(ids)

    @torch.inference_mode()
    def traced() -> Trace:
        with Trace(ours, watch=["*"]) as trace:
            ours(ids)
        return trace

    @torch.inference_mode()
    def their_plain() -> Tensor:
        return theirs(ids)

    @torch.inference_mode()
    def cached() -> Mapping[str, Tensor]:
        return their_run_with_cache(ids)[1]

    return _rows(effort, plain, traced, their_plain, cached)


def _rows(
    effort: Effort,
    plain: Callable[[], Tensor],
    traced: Callable[[], Trace],
    their_plain: Callable[[], Tensor],
    cached: Callable[[], Mapping[str, Tensor]],
) -> list[Row]:
    logits = plain()
    agree = torch.allclose(logits, their_plain(), atol=1e-4)
    recorded = traced()["head.logits"], cached()["unembed.hook_out"]
    agree_recorded = all(torch.allclose(logits, each, atol=1e-4) for each in recorded)
    del recorded
    works = (plain, traced, their_plain, cached)
    forward, trace, their_forward, cache = take_turns(works, effort, rounds=2 * effort.rounds)
    peer = f"TransformerLens {importlib.metadata.version('transformer-lens')}"
    shape = f"{'GPT-2 small' if effort.gpt2_small else 'tiny GPT-2'}, random weights, {effort.traced} tokens"
    row = partial(Row, part="seeing inside", peer=peer)
    return [
        row(case=f"a plain forward pass, {shape}", unit="ms", ours=1e3 * forward, theirs=1e3 * their_forward,
            ratio=their_forward / forward, agree=agree),
        row(case="everything recorded", unit="ms", ours=1e3 * trace, theirs=1e3 * cache, ratio=cache / trace,
            least=1.0, agree=agree_recorded),
        row(case="everything recorded, in plain passes", unit="×", ours=trace / forward,
            theirs=cache / their_forward, most=1.3),
        row(case="memory held by everything", unit="MB", ours=held(traced) / 1e6, theirs=held(cached) / 1e6),
    ]  # fmt: skip


def _config(effort: Effort) -> ModelConfig:
    sizes: dict[str, object] = {"vocab_size": GPT2_WORDS}
    if not effort.gpt2_small:
        names = ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff")
        sizes = {name: getattr(effort, name) for name in names}
    return preset("gpt2-small", {**sizes, "dropout": 0.0})


def _opened_by_transformer_lens(model: Model) -> tuple[Callable[[Tensor], Tensor], RunWithCache]:
    """The same weights as TransformerLens runs them, in fp32: its forward pass and its `run_with_cache`."""
    bridge = importlib.import_module("transformer_lens.model_bridge").TransformerBridge
    with TemporaryDirectory() as path:
        folder.save(Path(path), model)
        weights = transformers.GPT2LMHeadModel.from_pretrained(path, dtype=torch.float32)
        theirs = bridge.boot_transformers(path, hf_model=weights, device="cpu").eval()
    return theirs, theirs.run_with_cache
