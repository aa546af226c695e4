"""The generators that training draws from: their state, kept with every checkpoint, and seeds that come round."""

import hashlib
import random
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomState:
    """Every generator that training draws from."""

    tensors: dict[str, Tensor]
    python: object


def random_state(device: torch.device) -> RandomState:
    tensors = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    version, numbers, gauss = random.getstate()
    return RandomState(tensors, [version, list(numbers), gauss])


def restore_random_state(state: RandomState, device: torch.device) -> None:
    torch.set_rng_state(state.tensors["torch"])
    if device.type == "cuda" and "cuda" in state.tensors:
        torch.cuda.set_rng_state(state.tensors["cuda"], device)
    assert isinstance(state.python, list)
    version, numbers, gauss = state.python
    random.setstate((version, tuple(numbers), gauss))


def draw_seed(seed: int, step: int, part: int) -> int:
    """A seed for the random choices of one batch, the same whenever that batch comes round."""
    digest = hashlib.blake2b(f"{seed}/{step}/{part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
