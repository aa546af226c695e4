"""From the residual stream to a score for every word of the vocabulary."""

import torch
from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.nn.mlp import ACTIVATIONS
from cutaway.nn.norm import make_norm
from cutaway.tap import tap


class Head(nn.Module):
    """logits = unembed(hidden) · scale; tied to the embedding matrix where the config says so."""

    def __init__(self, config: ModelConfig, tokens: nn.Embedding):
        super().__init__()
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)
        self.scale = config.logit_scale
        if config.tied:
            self.unembed.weight = tokens.weight

    def transform(self, hidden: Tensor) -> Tensor:
        """What stands between the stack and the output matrix: nothing here."""
        return hidden

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, T, D) -> logits (B, T, V)."""
        logits = self.unembed(self.transform(hidden))
        return tap(self, "logits", logits if self.scale == 1.0 else logits * self.scale)


class MaskedHead(Head):
    """BERT's masked-word head: dense, activation, norm, then the output matrix (Devlin et al. 2019, §3.1)."""

    def __init__(self, config: ModelConfig, tokens: nn.Embedding):
        super().__init__(config, tokens)
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.norm = make_norm(config.norm, config.d_model, config.norm_eps)
        self.activation = ACTIVATIONS[config.activation]

    def transform(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


HEADS: dict[str, type[Head]] = {"linear": Head, "masked": MaskedHead}


def last_hidden(hidden: Tensor) -> Tensor:
    """(B, T, D) -> (B, 1, D): the newest position, the only one decoding needs logits of."""
    return hidden[:, -1:]


def as_scores(logits: Tensor) -> Tensor:
    """(B, 1, V) -> (B, V) fp32."""
    return logits[:, -1].to(torch.float32)
