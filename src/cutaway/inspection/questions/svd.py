"""How a model's matrices stretch space: singular values, and directions read as tokens."""

# Shapes: M rows, N columns, R singular values.

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.asked import AttentionSide, OneHead, OneLayer, reported
from cutaway.inspection.options import Option, Progress
from cutaway.inspection.page_parts import by_layer
from cutaway.inspection.question import question
from cutaway.inspection.spectra import (
    APPROXIMATE,
    Direction,
    Spectrum,
    directions,
    directions_table,
    spectrum,
)
from cutaway.inspection.terms import LAYER, SIDES, left, right
from cutaway.inspection.weight_matrices import matrices_named, parameter_matrix
from cutaway.page.blocks import Block, Heading, Matrix, Page, Table, page
from cutaway.page.drawn import Drawn
from cutaway.words import say


@dataclass(frozen=True)
class Decomposed:
    """A matrix M = Σ σ u vᵀ: its singular values, and the first of its directions."""

    spectrum: Spectrum
    directions: tuple[Direction, ...]


@dataclass(frozen=True, repr=False)
class Svd(Drawn):
    """The matrices that were asked for with their first directions, or all of a model without (see `Spectrum` and
    `Direction` for the formulas). Exact in float64 of the weights as they are stored; a direction's tokens are a
    reading."""

    matrices: tuple[Decomposed, ...]

    def page(self) -> Page:
        return _named(self) if any(each.directions for each in self.matrices) else _all(self)


@question(say("How matrices stretch space: singular values, and directions read as tokens."), "matrices")
def svd(
    loaded: Loaded,
    *,
    parameter: Annotated[
        str | None, Option(say("A parameter's full name; without it and without a head, all of them."))
    ] = None,
    side: AttentionSide = None,
    layer: OneLayer = None,
    head: OneHead = None,
    top: Annotated[int, Option(say("Directions that are listed."), at_least=1)] = 3,
    words: Annotated[int, Option(say("Tokens at each end of a direction."), at_least=1)] = 4,
    progress: Progress | None = None,
) -> Svd:
    """One parameter, W_QK and W_OV of one head, or the singular values of every matrix of the model.

    Raises CutawayError for a parameter or head that this model lacks, for both at once, and for weights that are not
    finite.
    """
    named = matrices_named(loaded, parameter, side, layer, head)
    if named:
        return Svd(
            tuple(
                Decomposed(spectrum(each), directions(loaded, each, count=top, top=words)) for each in named
            )
        )
    names = [name for name, weight in loaded.model.named_parameters() if weight.ndim == 2]
    done = reported(names, say("matrices"), progress)
    return Svd(tuple(Decomposed(spectrum(parameter_matrix(loaded, name)), ()) for name in done))


# Its page.


def _named(found: Svd) -> Page:
    """Some matrices with their directions, one under the other."""
    pages = []
    for each in found.matrices:
        one = each.spectrum.page()
        pages.append(page(one.title, (*one.blocks, directions_table(each.directions))))
    read = any(way.rows or way.columns for each in found.matrices for way in each.directions)
    return page(pages[0].title, (*pages[0].then(*pages[1:]).blocks, APPROXIMATE if read else None))


def _all(found: Svd) -> Page:
    """Every matrix of a model in a line; in a drawing also the layers side by side."""
    rows = []
    for each in (one.spectrum for one in found.matrices):
        size, ranks = (
            "×".join(map(str, each.shape)),
            (f"{each.effective_rank:.1f}", f"{each.stable_rank:.1f}"),
        )
        rows.append((size, f"{float(each.singular_values[0]):.2f}", *ranks, each.name))
    numbers = (say("rows×cols"), say("max σ"), say("eff."), say("stable"))
    columns = (*map(right, numbers), left(say("parameter")))
    return page(
        say("The matrices of this model"),
        [
            Table(columns, rows),
            say(
                "max σ: the greatest singular value; eff., stable: effective and stable rank; of shapes, not of "
                "importance. One of them: give its name as `parameter`; W_QK and W_OV of a head: `layer` and "
                "`head`."
            ),
            *_by_layer(found),
        ],
    )


def _by_layer(found: Svd) -> Iterator[Block]:
    """For each stack a heat map of layers and their matrices."""
    grids: dict[str, dict[tuple[int, str], float]] = {}
    for each in (one.spectrum for one in found.matrices):
        parts = re.fullmatch(r"(\w+)\.layers\.(\d+)\.(.+)\.weight", each.name)
        if parts is not None:
            stack, layer, name = parts.groups()
            share = each.effective_rank / len(each.singular_values)
            grids.setdefault(stack, {})[int(layer), name.removesuffix("_proj")] = share
    for stack, cells in grids.items():
        names = list(dict.fromkeys(name for _, name in cells))
        values, layers = by_layer(cells, names, -np.inf)
        unit = say("effective rank as a share of the full rank")
        yield Heading(say("Effective ranks, {stack}", stack=SIDES[stack]))
        yield Matrix(values, layers, names, LAYER, say("matrix"), unit, drawn=True)
