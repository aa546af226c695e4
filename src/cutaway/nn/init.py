"""Starting values of the weights."""

import math

import torch
from torch import nn

from cutaway.config import ModelConfig


def empty_table(rows: int, width: int) -> nn.Embedding:
    """A trainable table whose values `initialise` or a file will give. nn.Embedding itself draws some at once, which
    on the meta device costs seconds of imports."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Give every parameter its starting value, in place, from torch's global random state.

    Matrices are Glorot-uniform (Glorot & Bengio 2010) and biases zero, as in the original Transformer's code;
    embeddings are normal with a standard deviation that gives scaled vectors unit size per coordinate where
    they are scaled, and 0.02 elsewhere (GPT-2, BERT). The projections that write into a pre-norm residual
    stream are divided by √(2·layers), so that the stream's size does not grow with depth (Radford et al.
    2019, §2.3).
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        # there is nothing to fill: the values will come from a file
        return
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    # after the linear ones: a tied output matrix is an embedding
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            std = config.d_model**-0.5 if config.embed_scale != 1.0 else 0.02
            nn.init.normal_(module.weight, std=std)
    if config.norm_order == "pre":
        depth = math.sqrt(2 * max(config.n_layers, config.encoder_layers))
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down.weight")):
                parameter.data.div_(depth)
