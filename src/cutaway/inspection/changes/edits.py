"""Edits under construction: for each tap what is done to it, in order, and what later taps need of it."""

from collections.abc import Callable

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.tap import Edit


def as_it_is(x: Tensor) -> Tensor:
    """The edit that changes nothing: the tap is there, and what it names is computed the way that edits need."""
    return x


def mean_over_tokens(z: Tensor) -> Tensor:
    """A reducer of heads' outputs (1, H, T, E) -> (1, H, 1, E)."""
    return z.mean(dim=2, keepdim=True)


class EditList:
    """Edits by the full name of their tap. Several of one tap follow one another; what is kept is what they leave."""

    def __init__(self) -> None:
        self._edits: dict[str, list[Edit]] = {}
        self._kept: dict[str, Tensor] = {}
        self._keeping: set[str] = set()

    def add(self, name: str, edit: Edit) -> None:
        self._edits.setdefault(name, []).append(edit)

    def keep(self, name: str) -> Callable[[], Tensor]:
        """What the model goes on with at that tap in the present call, for edits of taps after it."""
        self._keeping.add(name)
        self._edits.setdefault(name, [])
        return lambda: self._kept[name]

    def built(self) -> dict[str, Edit]:
        return {name: self._chain(name, edits) for name, edits in self._edits.items()}

    def _chain(self, name: str, edits: list[Edit]) -> Edit:
        def all_of_them(x: Tensor) -> Tensor:
            for edit in edits:
                x = edit(x)
            if name in self._keeping:
                self._kept[name] = x
            return x

        return all_of_them


class Clock:
    """Which positions the present call computes: all of a forward pass, or those that a step of decoding adds."""

    def __init__(self) -> None:
        self.start = self.end = 0

    def restart(self, embedded: Tensor) -> Tensor:
        """To be shown the embeddings (B, T, D) of an encoder, which always reads from the first token on."""
        self.start, self.end = 0, embedded.shape[1]
        return embedded

    def reset(self, embedded: Tensor) -> Tensor:
        """To be shown what comes before a new text's first call."""
        self.start = self.end = 0
        return embedded

    def advance(self, embedded: Tensor) -> Tensor:
        """To be shown the embeddings (B, T, D) of every call of a decoder."""
        n_new = embedded.shape[1]
        if self.end and n_new > 1:
            raise CutawayError(
                "these edits have served a forward pass or a decoding already; make them anew for the next one"
            )
        self.start, self.end = self.end, self.end + n_new
        return embedded

    def positions(self, device: torch.device) -> Tensor:
        """(T,) positions of this call's tokens."""
        return torch.arange(self.start, self.end, device=device)

    def rows(self, token: int | str, n_rows: int) -> slice:
        """Where `token` ("*": all) stands in this call's last `n_rows` positions; an empty slice where it does not."""
        if not isinstance(token, int):
            return slice(None)
        row = token - (self.end - n_rows)
        return slice(row, row + 1) if 0 <= row < n_rows else slice(0, 0)
