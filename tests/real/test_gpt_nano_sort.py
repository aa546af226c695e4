"""A real GPT of three layers that sorts letters, with every intermediate value of one run of its authors' own code:
golden numbers for what the taps show (bbycroft/llm-viz)."""

import base64
import json
from itertools import product

import numpy as np
import pytest
import torch
from tests.real.data import shared
from torch import Tensor

from cutaway.checkpoint.architectures.gpt2 import GPT2
from cutaway.checkpoint.parameters import fill
from cutaway.checkpoint.stored import Stored
from cutaway.config import ModelConfig
from cutaway.models.build import build
from cutaway.models.decoder_only import DecoderOnly
from cutaway.tap import Trace

WHAT = "a GPT that sorts, and the values of one of its runs"


def read(name: str) -> dict[str, Tensor]:
    values = json.loads(shared(f"checkpoints/gpt-nano-sort/{name}", WHAT).read_text())
    return {
        key: torch.from_numpy(np.frombuffer(base64.b64decode(v["data"]), dtype="<f4").reshape(v["shape"]).copy())
        for key, v in values.items()
        if key != "config"
    }  # fmt: skip


@pytest.fixture(scope="module")
def model() -> DecoderOnly:
    config = ModelConfig(
        family="decoder-only", vocab_size=3, d_model=48, n_layers=3, n_heads=3, d_ff=192, max_len=11,
        position="learned", activation="gelu_tanh", tied=False,
    )  # fmt: skip
    model = build(config)
    assert isinstance(model, DecoderOnly)
    tensors = read("gpt-nano-sort-model.json")
    # GPT-2's files hold these transposed, minGPT's do not
    for name, tensor in tensors.items():
        if ".c_" in name and tensor.ndim == 2:
            tensors[name] = tensor.T
    stored = {
        name: Stored(tuple(tensor.shape), tensor.dtype, lambda tensor=tensor: tensor)
        for name, tensor in tensors.items()
    }
    fill(model, GPT2, stored, "gpt-nano-sort-model.json")
    return model.eval()


@torch.no_grad()
def test_every_value_of_the_golden_run_is_met(model: DecoderOnly) -> None:
    golden = read("gpt-nano-sort-t0-partials.json")
    with Trace(model, watch=["*"]) as trace:
        logits = model(golden["idx"].long())
    block, attention = "decoder.layers.0.", "decoder.layers.0.self_attn."
    heads = {name: trace[attention + name].transpose(1, 2).flatten(2) for name in "qkvz"}
    seen = {
        "tok_emb": trace["embed.embed"],
        "pos_emb": trace["embed.position"],
        "x": trace[block + "resid_pre"],
        "ln1": trace[block + "self_residual.normed"],
        "q": trace[attention + "q"],
        "k": trace[attention + "k"],
        "v": trace[attention + "v"],
        "qkv": torch.cat([heads[name] for name in "qkv"], dim=-1),
        "att": trace[attention + "masked"],
        "attSm": trace[attention + "pattern"],
        "y": heads["z"],
        "yProj": trace[attention + "out"],
        "attnResid": trace[block + "resid_mid"],
        "ln2": trace[block + "mlp_residual.normed"],
        "fc": trace[block + "mlp.pre"],
        "gelu": trace[block + "mlp.hidden"],
        "mlp": trace[block + "mlp.out"],
        "mlpResid": trace[block + "resid_post"],
        **{f"block{i}": trace[f"decoder.layers.{i}.resid_post"] for i in range(3)},
        "ln_f": trace["decoder.normed"],
        "lm_head": trace["head.logits"],
        "probs": logits.softmax(dim=-1),
    }
    assert set(seen) == set(golden) - {"idx"}
    for name, value in seen.items():
        torch.testing.assert_close(value, golden[name], rtol=0, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@torch.no_grad()
def test_it_sorts(model: DecoderOnly) -> None:
    """All 729 words of six letters, written greedily letter by letter with a cache."""
    words = torch.tensor(list(product(range(3), repeat=6)))
    cache, fed, letters = model.begin(len(words)), words, []
    for _ in range(6):
        fed = model.step(fed, cache).argmax(dim=-1, keepdim=True)
        letters.append(fed)
    right = (torch.cat(letters, dim=1) == words.sort(dim=1).values).all(dim=1)
    assert right.float().mean().item() > 0.99
