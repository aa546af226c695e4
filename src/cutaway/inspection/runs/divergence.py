"""How far one distribution over the vocabulary is from another."""

import torch
from torch import Tensor


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ_v p_v (log p_v - log q_v), in nats (Kullback & Leibler 1951): natural logarithms of probabilities
    (…, V) -> (…). A token without probability under p adds nothing; one that only q cannot say makes it infinite."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dim=-1)
