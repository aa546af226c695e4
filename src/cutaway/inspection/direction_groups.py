"""Vectors in groups by their direction: spherical k-means."""

# Shapes: N vectors, D width, G groups.

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.inspection.options import Progress
from cutaway.words import say

ROUNDS = 30
_ROWS = 8192  # compared with the centres at a time


def direction_groups(vectors: Tensor, count: int, progress: Progress | None = None) -> tuple[Tensor, Tensor]:
    """The group (N,) of each of `vectors` (N, D), of length 1 or 0, and the groups' centres (G, D), of length 1.

    Each vector is put to the centre of the greatest cosine, each centre to the direction of the sum of its group, in
    turn, until nothing changes or `ROUNDS` are over (Dhillon and Modha 2001). The first centres are drawn from the
    vectors, each with a chance in proportion to 1 - its cosine to the nearest one before it (k-means++: Arthur and
    Vassilvitskii 2007), always by the same seed: there are other groupings, no better and no worse.
    """
    drawing = torch.Generator().manual_seed(0)
    centres = vectors[torch.randint(len(vectors), (1,), generator=drawing)]
    for _ in range(1, min(count, len(vectors))):
        far = 1 - (vectors @ centres.T).amax(dim=1)
        # rounding leaves a vector's own distance a little above 0, or all are the same
        chances = far.clamp(min=0) + torch.finfo(far.dtype).eps
        centres = torch.cat([centres, vectors[torch.multinomial(chances, 1, generator=drawing)]])
    groups = _nearest(vectors, centres)
    for done in range(1, ROUNDS + 1):
        sums = torch.zeros_like(centres).index_add_(0, groups, vectors)
        # a group that lost all its vectors keeps its centre
        centres = torch.where(sums.norm(dim=1, keepdim=True) > 0, normalize(sums, dim=1), centres)
        before, groups = groups, _nearest(vectors, centres)
        if progress is not None:
            progress(say("groups"), done, ROUNDS)
        if torch.equal(groups, before):
            break
    return groups, centres


def _nearest(vectors: Tensor, centres: Tensor) -> Tensor:
    """The place (N,) of the centre of the greatest cosine."""
    return torch.cat([(part @ centres.T).argmax(dim=1) for part in vectors.split(_ROWS)])
