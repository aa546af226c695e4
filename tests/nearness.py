"""How near two right calculations of one value must be: tolerances that follow from types, sizes and sums.

How a sum is ordered, and so rounded, differs between processors, numbers of threads and shapes; a constant that one
processor keeps to, another may exceed.
"""

import torch
from torch import Tensor

from cutaway.inspection.arithmetic.rounding import growth


def tolerance(size: float, terms: int, dtype: torch.dtype = torch.float32) -> float:
    """What rounding explains between two calculations in `dtype` of values up to `size`.

    Each is off by growth(terms) · u · size at most (Higham & Mary 2019, see `growth`), u being the unit roundoff, and
    by u · size once more where the sum is stored. `terms`: how many numbers are summed on the way; in a network, the
    widest sum of a layer times the layers that lie on one another. `size`: of what is summed, where it cancels out.
    """
    return 2 * (growth(terms) + 1) * torch.finfo(dtype).eps / 2 * size


def assert_near(
    found: Tensor, expected: Tensor, terms: int, size: float | None = None, name: str = ""
) -> None:
    """Demands that all numbers are within `tolerance` of those expected, in the coarser of the two types.

    size: None is the largest finite number expected. `name` is what a failure calls them.
    """
    dtype = max(found.dtype, expected.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    if size is None:
        size = float(expected.detach().nan_to_num(0.0, 0.0, 0.0).abs().max())
    allowed = tolerance(size, terms, dtype)
    torch.testing.assert_close(found, expected, rtol=0, atol=allowed, check_dtype=False,
                               msg=lambda said: f"{name}: {said}" if name else said)  # fmt: skip
