"""Models small enough to enumerate, and tiny random ones of each family."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cutaway.checkpoint.folder import Loaded
from cutaway.config import ModelConfig, parse
from cutaway.models.build import Model, build
from cutaway.text.tokens.tokenizer import Tokenizer

History = tuple[int, ...]


class HistoryCache:
    """Each row's ids so far: all that a toy model goes by."""

    def __init__(self, histories: Sequence[History]):
        self.histories = list(histories)

    def select(self, rows: Tensor, same_source: bool = False) -> None:
        chosen = [self.histories[row] for row in rows.tolist()]
        if same_source:
            assert [h[0] for h in chosen] == [h[0] for h in self.histories], "a row moved to another source"
        self.histories = chosen


class ToyModel(nn.Module):
    """Looks its logits up: `logits_of(history)`, the history being the row's source number, prompt and new ids.

    `fed` counts how often each history was continued, so that a test sees what was computed.
    """

    def __init__(self, logits_of: Callable[[History], Sequence[float]]):
        super().__init__()
        self.logits_of = logits_of
        self.fed: dict[History, int] = {}

    def begin(self, sources: Sequence[int]) -> HistoryCache:
        return HistoryCache([(source,) for source in sources])

    def step(self, ids: Tensor, cache: HistoryCache, mask: Tensor | None = None) -> Tensor:
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        cache.histories = [
            (*history, *row[keep].tolist())
            for history, row, keep in zip(cache.histories, ids, real, strict=True)
        ]
        for history in cache.histories:
            self.fed[history] = self.fed.get(history, 0) + 1
        return torch.tensor([list(self.logits_of(history)) for history in cache.histories])

    def log_probs(self, history: History, ids: Sequence[int]) -> list[float]:
        """Of each of `ids`, continuing `history`, in float64."""
        found = []
        for id in ids:
            logits = torch.tensor(list(self.logits_of(history))).double()
            found.append(float(logits.log_softmax(dim=-1)[id]))
            history = (*history, id)
        return found

    def results(
        self, history: History, vocab_size: int, eos_id: int, most: int, least: int = 0
    ) -> Iterator[History]:
        """Every possible result: ends with EOS after `least` tokens or more, or is `most` tokens long without."""
        others = [id for id in range(vocab_size) if id != eos_id]
        for length in range(least, most):
            for ids in itertools.product(others, repeat=length):
                yield (*ids, eos_id)
        yield from itertools.product(others, repeat=most)


def random_logits(vocab_size: int, spread: float = 1.5, seed: int = 0) -> Callable[[History], list[float]]:
    """Independent normal logits for every history, the same at every call."""
    known: dict[History, list[float]] = {}

    def logits_of(history: History) -> list[float]:
        if history not in known:
            place = sum((id + 2) * 31**i for i, id in enumerate(history)) % 2**31
            generator = torch.Generator().manual_seed(place * 1009 + seed)
            known[history] = (torch.randn(vocab_size, generator=generator) * spread).tolist()
        return known[history]

    return logits_of


@pytest.fixture
def random_toy() -> Callable[..., ToyModel]:
    return lambda vocab_size, spread=1.5, seed=0: ToyModel(random_logits(vocab_size, spread, seed))


@pytest.fixture
def toy() -> Callable[..., ToyModel]:
    """A toy model of given probabilities: a function of the history, or the same everywhere."""

    def make(probabilities: Callable[[History], Sequence[float]] | Sequence[float]) -> ToyModel:
        def logits_of(history: History) -> list[float]:
            given = probabilities(history) if callable(probabilities) else probabilities
            return [math.log(p) if p > 0 else -math.inf for p in given]

        return ToyModel(logits_of)

    return make


VOCAB = 29
FAMILIES: dict[str, dict[str, object]] = {
    "marian": {
        "family": "encoder-decoder", "norm_order": "post", "position": "sinusoidal", "embed_scale": 4.0,
        "head_bias": True, "activation": "relu",
    },
    "t5": {"family": "encoder-decoder", "position": "relative", "attn_scale": 1.0, "norm": "rmsnorm"},
    "gpt2": {"family": "decoder-only", "position": "learned"},
    "llama": {
        "family": "decoder-only", "position": "rotary", "norm": "rmsnorm", "gated": True, "n_kv_heads": 2,
        "tied": False, "activation": "silu", "attn_bias": False, "mlp_bias": False,
    },
    "alibi": {"family": "decoder-only", "position": "alibi"},
    "bert": {
        "family": "encoder-only", "position": "learned", "norm_order": "post", "embed_norm": True,
        "head": "masked", "head_bias": True, "n_segments": 2,
    },
}  # fmt: skip


def tiny_model(kind: str, vocab_size: int = VOCAB, **changes: object) -> Model:
    """A random model whose weights are large enough that nothing hides in rounding."""
    sizes = {"vocab_size": vocab_size, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 32, "max_len": 64}
    ids = {"pad_id": 0, "eos_id": 2}
    if FAMILIES[kind]["family"] == "encoder-decoder":
        ids["decoder_start_id"] = 0
    config = parse(ModelConfig, {**sizes, **ids, **FAMILIES[kind], **changes}, "model")
    torch.manual_seed(7)
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@pytest.fixture
def tiny() -> Callable[..., Model]:
    return tiny_model


TEXTS = [
    "我爱机器学习。", "好久不见！", "今天天气很好，我们去公园散步吧。", "你是谁？", "这本书是我的。",
    "Long time no see.", "The weather is fine today.", "This book is mine, not yours!", "Who are you?",
    "I love machine learning. 他说：“你好”，然后走了。",
]  # fmt: skip


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """BPE over characters with byte fallback: every character can be written, the rare ones in pieces."""
    roles = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>", "mask": "<mask>"}
    languages = ["eng", "zho"]
    return Tokenizer.train(TEXTS * 3, "bpe", 360, alphabet=60, roles=roles, languages=languages)


@pytest.fixture(scope="session")
def opened(tokenizer: Tokenizer) -> Callable[..., Loaded]:
    """A tiny random model with the tokenizer, as `load` gives it."""

    def make(kind: str, generation: dict[str, object] | None = None, **changes: object) -> Loaded:
        roles = {"pad_id": tokenizer.role("pad"), "eos_id": tokenizer.role("eos")}
        if FAMILIES[kind]["family"] == "encoder-decoder":
            roles["decoder_start_id"] = tokenizer.role("pad")
        elif FAMILIES[kind]["family"] == "encoder-only":
            roles["mask_id"] = tokenizer.role("mask")
        model = tiny_model(kind, tokenizer.vocab_size, **{**roles, **changes})
        return Loaded(model, model.config, tokenizer, generation or {}, Path(f"tiny-{kind}"))

    return make
