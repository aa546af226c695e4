"""From the residual stream to a score for every word of the vocabulary."""

import torch
from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.errors import CutawayError
from cutaway.nn.attention import soft_cap
from cutaway.nn.linear import Linear
from cutaway.nn.mlp import ACTIVATIONS
from cutaway.nn.norm import make_norm
from cutaway.tap import tap


class Head(nn.Module):
    """logits = unembed(hidden) · scale, softly capped where the config says so; tied to the embedding matrix
    likewise."""

    def __init__(self, config: ModelConfig, tokens: nn.Embedding):
        super().__init__()
        self.unembed = Linear(config.d_model, config.vocab_size, bias=config.head_bias)
        self.scale, self.softcap = config.logit_scale, config.logit_softcap
        if config.tied:
            self.unembed.weight = tokens.weight

    def transform(self, hidden: Tensor) -> Tensor:
        """What stands between the stack and the output matrix: nothing here."""
        return hidden

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, T, D) -> logits (B, T, V)."""
        logits = self.unembed(self.transform(hidden))
        if self.scale != 1.0:
            logits = logits * self.scale
        return tap(self, "logits", logits if self.softcap is None else soft_cap(logits, self.softcap))


class MaskedHead(Head):
    """BERT's masked-word head: dense, activation, norm, then the output matrix (Devlin et al. 2019, §3.1)."""

    def __init__(self, config: ModelConfig, tokens: nn.Embedding):
        super().__init__(config, tokens)
        self.dense = Linear(config.d_model, config.d_model)
        self.norm = make_norm(config.norm, config.d_model, config.norm_eps)
        self.activation = ACTIVATIONS[config.head_activation or config.activation]

    def transform(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class NoHead(nn.Module):
    """In the place of a head that a checkpoint does not have."""

    def __init__(self, config: ModelConfig, tokens: nn.Embedding):
        super().__init__()

    def forward(self, hidden: Tensor) -> Tensor:
        raise CutawayError(
            "this model has no output head: it gives vectors (hidden), not words (logits); call `hidden`"
        )


HEADS: dict[str, type[Head] | type[NoHead]] = {"linear": Head, "masked": MaskedHead, "none": NoHead}


def last_hidden(hidden: Tensor) -> Tensor:
    """(B, T, D) -> (B, 1, D): the newest position, the only one decoding needs logits of."""
    return hidden[:, -1:]


def as_scores(logits: Tensor) -> Tensor:
    """(B, 1, V) -> (B, V) fp32."""
    return logits[:, -1].to(torch.float32)
