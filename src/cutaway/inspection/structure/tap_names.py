"""The full names of all taps that a model has, read off its modules and without running it."""

from collections.abc import Iterator

from torch import nn

from cutaway.nn.attention import Attention
from cutaway.nn.block import Block
from cutaway.nn.embedding import Embedding
from cutaway.nn.head import Head
from cutaway.nn.mlp import MLP
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PostNorm, PreNorm
from cutaway.nn.stack import Stack


def tap_names(model: nn.Module) -> tuple[str, ...]:
    """Every name that `Trace(model, watch=["*"])` can meet, each once, from the embedding to the logits.

    Works on the meta device. A tap of an expert is met only when a token is given to that expert.
    """
    return tuple(_names(model, "", False))


def _names(module: nn.Module, path: str, rotary: bool) -> Iterator[str]:
    if isinstance(module, Stack):
        rotary = module.rotary is not None
    own = [path + name for name in _own(module, rotary and path.endswith("self_attn."))]
    if not isinstance(module, Stack):
        yield from own
    for name, child in module.named_children():
        yield from _names(child, f"{path}{name}.", rotary)
    if isinstance(module, Stack):  # its tap is the stack's result
        yield from own


def _own(module: nn.Module, rotated: bool) -> tuple[str, ...]:
    if isinstance(module, Embedding):
        return ("embed", "position") if module.positions is not None else ("embed",)
    if isinstance(module, Block):
        return ("resid_pre", "resid_mid", *(("resid_cross",) if module.cross else ()), "resid_post")
    if isinstance(module, Attention):
        turned = ("q_rot", "k_rot") if rotated else ()
        return ("q", "k", "v", *turned, "scores", "scaled", "masked", "pattern", "z", "out")
    if isinstance(module, MLP):
        return ("pre", "hidden", "out")
    if isinstance(module, MoE):
        return ("router", "expert_index", "expert_weight", "expert_out", "out")
    if isinstance(module, Stack) or (isinstance(module, PreNorm) and not isinstance(module, PostNorm)):
        return ("normed",)
    return ("logits",) if isinstance(module, Head) else ()
