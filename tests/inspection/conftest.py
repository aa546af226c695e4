"""Runs of tiny random models of every kind of structure, with a real tokenizer."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cutaway import Tokenizer, Trace
from cutaway.checkpoint.folder import Loaded
from cutaway.config import ModelConfig, parse
from cutaway.inspection.runs import Run, Tokens
from cutaway.models.build import PRESETS, build
from cutaway.nn.head import Head, MaskedHead
from cutaway.nn.norm import RMSNorm1P

_SIZES = {"d_model": 24, "n_layers": 3, "n_heads": 4, "d_ff": 40, "dropout": 0.0, "max_len": 32}
_EXPERTS = {"n_experts": 5, "n_experts_per_token": 2, "d_expert": 16}
STRUCTURES: dict[str, dict[str, object]] = {
    "post-norm pair": {**PRESETS["marian-tiny"], "n_encoder_layers": 2, "embed_scale": 24**0.5},
    "pre-norm pair": {**PRESETS["m2m100-tiny"], "embed_scale": 24**0.5},
    "T5": {**PRESETS["m2m100-tiny"], "position": "relative", "position_offset": 0, "attn_scale": 1.0,
           "norm": "rmsnorm", "gated": True, "attn_bias": False, "mlp_bias": False, "d_head": 8, "tied": False,
           "logit_scale": 0.5},
    "Llama": {**PRESETS["llama-tiny"], "n_kv_heads": 2, "tied": False},
    "GPT-2": {**PRESETS["gpt2-small"], "head_bias": True},
    "Gemma 2": {**PRESETS["llama-tiny"], "norm": "rmsnorm1p", "norm_order": "sandwich", "window": 4,
                "window_layers": [0], "attn_softcap": 2.0, "logit_softcap": 30.0, "embed_scale": 24**0.5},
    "sandwich of layer norms": {**PRESETS["gpt2-small"], "norm_order": "sandwich"},
    "experts": {**PRESETS["llama-tiny"], **_EXPERTS, "dense_layers": [1]},
    "pair with experts": {**PRESETS["m2m100-tiny"], **_EXPERTS, "experts_renormalised": False},
    "BERT": {**PRESETS["bert-tiny"]},
    "masked, pre-norm": {**PRESETS["bert-tiny"], "norm_order": "pre"},
    "no head": {**PRESETS["bert-tiny"], "head": "none", "head_bias": False},
}  # fmt: skip

_TEXTS = [
    "我爱机器学习。",
    "今天天气很好，我们去公园散步吧。",
    "Long time no see.",
    "The weather is fine today.",
]


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    roles = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "mask": "[MASK]"}
    return Tokenizer.train(_TEXTS * 3, "bpe", 400, alphabet=100, roles=roles)


@pytest.fixture(scope="session")
def run_of(small_tokenizer: Tokenizer) -> Callable[..., Run]:
    """A run of random ids through a random model of one of STRUCTURES, its weights large enough that nothing hides in
    rounding and none of its biases 0."""

    def tokens(ids: torch.Tensor) -> Tokens:
        return Tokens(ids.tolist(), [small_tokenizer.readable(id) for id in ids.tolist()])

    def make(structure: str, length: int = 7, **changes: object) -> Run:
        vocabulary = {"vocab_size": small_tokenizer.vocab_size, "pad_id": small_tokenizer.role("pad")}
        config = parse(ModelConfig, {**STRUCTURES[structure], **_SIZES, **vocabulary, **changes}, structure)
        generator = torch.Generator().manual_seed(5)
        model = build(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0.0, 0.3, generator=generator)
        loaded = Loaded(model, config, small_tokenizer, {}, Path(f"tiny {structure}"))
        ids = torch.randint(0, config.vocab_size, (length + 3,), generator=generator)
        whole = tokens(ids)
        if config.family == "encoder-only":
            return Run(loaded, whole, None, whole)
        source = tokens(ids.flip(0)) if config.family == "encoder-decoder" else None
        return Run(loaded, source, tokens(ids[:length]), tokens(ids[1 : length + 1]))

    return make


NORMS = (nn.LayerNorm, nn.RMSNorm)


class Held(nn.Module):
    """A norm that divides by what it divided by in another run."""

    def __init__(self, norm: nn.Module, x: Tensor):
        super().__init__()
        assert isinstance(norm, NORMS)
        self.weight, self.bias = norm.weight, getattr(norm, "bias", None)
        if isinstance(norm, RMSNorm1P):
            self.weight = nn.Parameter(norm.weight + 1)
        self.centred = isinstance(norm, nn.LayerNorm)
        spread = (
            x.var(dim=-1, unbiased=False, keepdim=True) if self.centred else x.pow(2).mean(-1, keepdim=True)
        )
        self.size = torch.sqrt(spread + (norm.eps or 0.0))

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(dim=-1, keepdim=True) if self.centred else x
        y = x / self.size * self.weight
        return y if self.bias is None else y + self.bias


class HeldModel:
    """The model of a run with every scale and gate held, and every sublayer writing what it wrote, in fp64."""

    def __init__(self, read: Run):
        self.read = read
        model = copy.deepcopy(read.model).double()
        inputs: dict[str, Tensor] = {}
        hooks = [
            module.register_forward_hook(lambda _, args, __, name=name: inputs.__setitem__(name, args[0]))
            for name, module in model.named_modules()
            if isinstance(module, NORMS)
        ]
        dense: list[Tensor] = []
        head = model.head
        assert isinstance(head, Head)
        if isinstance(head, MaskedHead):
            hooks.append(head.dense.register_forward_hook(lambda *called: dense.append(called[-1])))
        with torch.no_grad(), Trace(model, watch=["*_attn.out", "*.mlp.out"]) as trace:
            model(**read.inputs)
        for hook in hooks:
            hook.remove()
        self.exact = copy.deepcopy(model)  # nothing is held here
        for name, x in inputs.items():
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, Held(model.get_submodule(name), x))
        if isinstance(head, MaskedHead):
            gate = head.activation(dense[0]) / dense[0]
            head.activation = lambda x: x * gate
        head.softcap = None
        self.model, self.outs = model, trace.calls

    def logits(
        self, edit: dict[str, Callable[[Tensor], Tensor]], without: dict[str, Tensor] | None = None
    ) -> Tensor:
        """(T, V); `without` is taken from what the named sublayers wrote."""
        gone = without or {}
        held = {name: (lambda _, n=name: self.outs[n][0] - gone.get(n, 0.0)) for name in self.outs}
        with torch.no_grad(), Trace(self.model, edit={**held, **edit}):
            return self.model(**self.read.inputs)[0]

    def written(self, name: str, edit: dict[str, Callable[[Tensor], Tensor]]) -> Tensor:
        """What the sublayer does not write any more under an edit of its own inner values."""
        with torch.no_grad(), Trace(self.exact, watch=[name], edit=edit) as trace:
            self.exact(**self.read.inputs)
        return self.outs[name][0] - trace[name]


@pytest.fixture
def held_model() -> Callable[[Run], HeldModel]:
    return HeldModel
