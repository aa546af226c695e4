"""Models without an output head, and their numbers worked out by hand: hooks of PyTorch, parameters, `embed`."""

import copy
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from cutaway import Tokenizer
from cutaway.checkpoint.folder import Loaded, load, save
from cutaway.config import ModelConfig, parse
from cutaway.decode.sentence_vectors import embed
from cutaway.inspection.runs import Run, run
from cutaway.inspection.wiring import Side
from cutaway.models.build import PRESETS, build
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.attention import Attention

SIZES = {
    "d_model": 24,
    "n_layers": 3,
    "n_heads": 4,
    "d_ff": 40,
    "max_len": 32,
    "head": "none",
    "head_bias": False,
}
TEXT = "The bank lent money, the money."


def vector_model(preset: str, tokenizer: Tokenizer, folder: Path, **changes: object) -> Loaded:
    """A random base model, written as such to a folder and opened again; its weights are no trifle."""
    values = {**PRESETS[preset], **SIZES, "vocab_size": tokenizer.vocab_size, **changes}
    config = parse(ModelConfig, {**values, "pad_id": tokenizer.role("pad")}, preset)
    generator, model = torch.Generator().manual_seed(3), build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    save(folder, model, tokenizer)
    return load(folder)


@dataclass(frozen=True)
class Case:
    """A model without head, its run, and what its modules read and gave in a plain pass, by hooks of PyTorch."""

    loaded: Loaded
    run: Run
    side: Side
    hidden: Tensor  # (T, D)
    seen: dict[str, tuple[Tensor, Tensor]]  # by the module's path, without the batch

    @property
    def ids(self) -> list[int]:
        tokenizer = self.loaded.require_tokenizer()
        before, after = tokenizer.around
        return [*before, *tokenizer.encode(TEXT).ids, *after]

    def attention(self, layer: int) -> tuple[str, Attention]:
        path = f"{self.side}.layers.{layer}.self_attn"
        module = self.loaded.model.get_submodule(path)
        assert isinstance(module, Attention)
        return path, module

    def heads(self, layer: int, part: str) -> Tensor:
        """(H, T, E): what a projection gave."""
        path, module = self.attention(layer)
        return self.seen[f"{path}.{part}"][1].unflatten(1, (-1, module.d_head)).transpose(0, 1)

    def pattern(self, layer: int) -> Tensor:
        """(H, T, T): softmax(q·k/√E) over the keys in sight."""
        q, k = self.heads(layer, "q_proj").double(), self.heads(layer, "k_proj").double()
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if self.side == "decoder":
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
        return scores.softmax(dim=-1)

    def without(self, layer: int, head: int) -> Loaded:
        """The same model whose output projection has no part of a head."""
        model = copy.deepcopy(self.loaded.model)
        path, module = self.attention(layer)
        with torch.no_grad():
            columns = slice(head * module.d_head, (head + 1) * module.d_head)
            model.get_parameter(f"{path}.o_proj.weight")[:, columns] = 0
        return dataclasses.replace(self.loaded, model=model)

    def moved(self, layer: int, head: int) -> float:
        """1 - cos of the vectors that `embed` makes with and without a head."""
        return 1 - cosine(vector_of(self.loaded), vector_of(self.without(layer, head)))


def look(loaded: Loaded) -> Case:
    model = loaded.model
    assert not isinstance(model, EncoderDecoder)
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def hook(path: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _, read, gave: seen.__setitem__(path, (read[0][0], gave[0]))

    read = run(loaded, TEXT)
    handles = [m.register_forward_hook(hook(path)) for path, m in model.named_modules() if ".layers." in path]
    with torch.no_grad():
        hidden = model.hidden(torch.tensor([(read.target or read.outcome).ids]))[0]
    for handle in handles:
        handle.remove()
    return Case(loaded, read, "encoder" if read.target is None else "decoder", hidden, seen)


def vector_of(loaded: Loaded, text: str = TEXT) -> Tensor:
    return embed(loaded, [text]).vectors[0]


def cosine(a: Tensor, b: Tensor) -> float:
    return float(cosine_similarity(a.double(), b.double(), dim=0))


def near(found: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=0.0, atol=tolerance)
