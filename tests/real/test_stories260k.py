"""A real Llama of 260,032 parameters that tells children's stories (karpathy/tinyllamas), from llama2.c's own file to
a folder of ours, and on to the story that llama2.c tells."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.real.data import shared
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.checkpoint.folder import Loaded
from cutaway.decode.complete import continue_text
from cutaway.decode.search import Limits
from cutaway.models.decoder_only import DecoderOnly
from cutaway.text.tokens.gguf_vocabulary import from_gguf
from cutaway.text.tokens.tokenizer import Tokenizer

WHAT = "a small Llama that tells stories"
# What llama2.c prints at temperature 0 (its test_all.py).
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" "
    "Lily was sad and didn't know what to do. She said, \"I want to play with your ball, but I can't find it.\"\nLily "
    "was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to do.\"\nLily didn't want to "
    "help her mom, so she"
)


def read_tokenizer(path: Path) -> Tokenizer:
    """llama2.c's tokenizer.bin: the longest piece's length, then score, length and bytes of each piece."""
    data, at, pieces, scores = path.read_bytes(), 4, [], []
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        pieces.append(data[at + 8 : at + 8 + length].decode())
        scores.append(score)
        at += 8 + length
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 259)]  # unknown, control, byte, normal
    return from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": names + [piece.replace(" ", "▁") for piece in pieces[259:]],
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        }
    )


def half_split(w: Tensor, heads: int) -> Tensor:
    """Rows of a query or key matrix whose rotated pairs are neighbours, as pairs that lie half a head apart."""
    return w.view(heads, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    source = shared("checkpoints/stories260K", WHAT)
    data = (source / "stories260K.bin").read_bytes()
    d, hidden, layers, heads, kv_heads, vocab, length = struct.unpack_from("<7i", data)
    assert vocab > 0, "a negative number stands for an output matrix of its own"
    numbers, at = torch.from_numpy(np.frombuffer(data, dtype="<f4", offset=28).copy()), 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        at += int(np.prod(shape))
        return numbers[at - int(np.prod(shape)) : at].view(shape)

    kv = d // heads * kv_heads
    tensors = {"model.embed_tokens.weight": take(vocab, d)}
    for name, shape in (
        ("input_layernorm", (d,)), ("self_attn.q_proj", (d, d)), ("self_attn.k_proj", (kv, d)),
        ("self_attn.v_proj", (kv, d)), ("self_attn.o_proj", (d, d)), ("post_attention_layernorm", (d,)),
        ("mlp.gate_proj", (hidden, d)), ("mlp.down_proj", (d, hidden)), ("mlp.up_proj", (hidden, d)),
    ):  # fmt: skip
        for i, w in enumerate(take(layers, *shape)):
            turned = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}.get(name)
            tensors[f"model.layers.{i}.{name}.weight"] = half_split(w, turned) if turned else w
    tensors["model.norm.weight"] = take(d)
    # what is left are tables of angles
    assert at == len(numbers) - length * (d // heads)
    where = tmp_path_factory.mktemp("stories260K")
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, where / "model.safetensors")
    (where / "config.json").write_text(
        f"""{{"model_type": "llama", "vocab_size": {vocab}, "hidden_size": {d}, "intermediate_size": {hidden},
        "num_hidden_layers": {layers}, "num_attention_heads": {heads}, "num_key_value_heads": {kv_heads},
        "max_position_embeddings": {length}, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "bos_token_id": 1, "eos_token_id": 2}}"""
    )
    read_tokenizer(source / "tok512.bin").save(where)
    return folder.load(where)


def test_it_is_the_model_it_says(loaded: Loaded) -> None:
    assert sum(p.numel() for p in loaded.model.parameters()) == 260_032
    assert isinstance(loaded.model, DecoderOnly)


def test_it_tells_the_story_that_llama2_c_tells(loaded: Loaded) -> None:
    (story,) = continue_text(loaded, [""], limits=Limits(200))
    assert story.best.text.strip() == STORY
