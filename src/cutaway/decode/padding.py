"""Rows of different lengths as one block: prompts are padded on the left, everything else on the right."""

# Shapes: B rows, T tokens.

from collections.abc import Sequence

import torch
from torch import Tensor

from cutaway.errors import CutawayError


def pad_left(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Prompts as one block (B, T), and its mask (B, T), False at the padding, unless all are equally long.

    Raises CutawayError for a prompt without a token: there is nothing to continue.
    """
    lengths = [len(prompt) for prompt in prompts]
    if not all(lengths):
        raise CutawayError(
            "prompt {index} has no token; begin it with the start token", index=lengths.index(0) + 1
        )
    longest = max(lengths)
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    if min(lengths) == longest:
        return ids, None
    return ids, torch.arange(longest, device=device) >= longest - torch.tensor(lengths, device=device)[
        :, None
    ]


def pad_right(
    rows: Sequence[Sequence[int]], value: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Rows as one block (B, T), and its mask (B, T), False at the padding, unless all are equally long."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    block = torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], device=device)
    if min(lengths) == longest:
        return block, None
    return block, torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]
