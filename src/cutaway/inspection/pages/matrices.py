"""Pages of matrices: singular values, and directions read as tokens."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.terms import LAYER, left, right
from cutaway.page.blocks import Bars, Block, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.numbers import number
from cutaway.words import Text, say

if TYPE_CHECKING:
    from cutaway.inspection.matrices.matrix import Matrix as WeightMatrix
    from cutaway.inspection.matrices.spectrum import Direction, Reading, Spectrum

_FIRST = 8  # singular values that are written out
_SIDES = {"rows": say("rows"), "columns": say("columns")}
_APPROXIMATE = Remark(
    say(
        "Directions are read by static token vectors only (approximate: positions, context and "
        "norms are left out). What lies along a row direction is sent to the column direction."
    )
)


def _caveats(found: "WeightMatrix | Spectrum") -> list[Prose]:
    """What else takes part where the matrix works; the label stands before the first."""
    return [Prose("" if n else say("but"), caveat) for n, caveat in enumerate(found.caveats)]


def matrix_page(found: "WeightMatrix") -> Page:
    rows, columns = found.shape
    return page(
        say("{title} ({rows} × {columns})", title=found.title, rows=rows, columns=columns),
        [
            Prose(say("formula"), found.formula),
            Prose(say("maps"), f"{found.rows} → {found.columns}"),
            *_caveats(found),
            Remark(
                say(
                    "Its singular values: spectrum(matrix); its directions as tokens: directions(loaded, "
                    "matrix)."
                )
            ),
        ],
    )


def spectrum_page(found: "Spectrum") -> Page:
    sigmas = found.singular_values.tolist()
    shown = [number(sigma) for sigma in sigmas[:_FIRST]]
    if len(sigmas) > _FIRST:
        shown += ["…", number(sigmas[-1]), f"({len(sigmas)})"]
    symmetry = None
    if found.symmetric_share is not None:
        share = f"{found.symmetric_share:.2f}"
        symmetry = Prose(
            say("symmetry"),
            say("{share} (1: symmetric, 0.5: random, 0: never mutual)", share=share),
        )
    rows, columns = found.shape
    return page(
        say("{title} ({rows} × {columns})", title=found.title, rows=rows, columns=columns),
        [
            Prose(say("formula"), found.formula),
            Prose("σ", " ".join(shown)),
            Prose(
                say("ranks"),
                say(
                    "effective {effective_rank:.1f}, stable {stable_rank:.1f} of {count}",
                    effective_rank=found.effective_rank,
                    stable_rank=found.stable_rank,
                    count=len(sigmas),
                ),
            ),
            symmetry,
            *_caveats(found),
            Bars(sigmas, say("singular value"), "σ"),
        ],
    )


def direction_page(found: "Direction") -> Page:
    energy = f"{100 * found.energy:.1f} %"
    title = say(
        "Direction {index}: σ = {sigma}, {energy} of the energy",
        index=found.index,
        sigma=number(found.sigma),
        energy=energy,
    )
    rows = [
        (_SIDES[side], end, "  ".join(f"{each.piece} {each.value:+.2f}" for each in tokens))
        for side, reading in (("rows", found.rows), ("columns", found.columns))
        if reading is not None
        for end, tokens in (("+", reading.positive), ("−", reading.negative))
    ]
    if not rows:
        return page(title, [Remark(say("Neither side is read as tokens."))])
    columns = (left(say("side")), left(say("end")), left(say("tokens")))
    return page(title, [Table(columns, rows), _APPROXIMATE])


def directions_table(ways: "Sequence[Direction]") -> Table | None:
    """The directions of one matrix, a line for each side that is read as tokens."""
    rows: list[tuple[Text, Text, Text]] = []
    for way in ways:
        energy = f"{100 * way.energy:.1f} %"
        for side, reading in (("rows", way.rows), ("columns", way.columns)):
            if reading is not None:
                name = _SIDES[side]
                rows.append((say("{index} {name}", index=way.index, name=name), energy, _ends(reading)))
                energy = ""
    if not rows:
        return None
    titles = (
        left(say("direction")),
        right(say("energy")),
        left(say("tokens at its two ends")),
    )
    return Table(titles, rows)


def _ends(reading: "Reading") -> str:
    ends = (" ".join(each.piece for each in end) for end in (reading.positive, reading.negative))
    return "  |  ".join(ends)


def matrices_page(found: "Sequence[tuple[Spectrum, Sequence[Direction]]]") -> Page:
    """Some matrices with their directions, one under the other."""
    pages = []
    for values, ways in found:
        one, table = values.page(), directions_table(ways)
        pages.append(one if table is None else page(one.title, (*one.blocks, table)))
    whole = pages[0].then(*pages[1:])
    if any(way.rows or way.columns for _, ways in found for way in ways):
        return page(whole.title, (*whole.blocks, _APPROXIMATE))
    return whole


def all_matrices_page(found: "Sequence[Spectrum]") -> Page:
    """Every matrix of a model in a line; in a drawing also the layers side by side."""
    rows = [
        (
            f"{each.shape[0]}×{each.shape[1]}",
            f"{float(each.singular_values[0]):.2f}",
            f"{each.effective_rank:.1f}",
            f"{each.stable_rank:.1f}",
            each.name,
        )
        for each in found
    ]
    titles = (
        right(say("rows×cols")),
        right(say("max σ")),
        right(say("eff.")),
        right(say("stable")),
        left(say("parameter")),
    )
    return page(
        say("The matrices of this model"),
        [
            Table(titles, rows),
            Remark(
                say(
                    "max σ: the greatest singular value; eff., stable: effective and stable rank; of "
                    "shapes, not of importance. One of them: --name NAME; W_QK and W_OV of a head: --layer "
                    "N --head N."
                )
            ),
            *_by_layer(found),
        ],
    )


def _by_layer(found: "Sequence[Spectrum]") -> list[Block]:
    """For each stack a heat map of layers and their matrices."""
    grids: dict[str, dict[tuple[int, str], float]] = {}
    for each in found:
        parts = re.fullmatch(r"(\w+)\.layers\.(\d+)\.(.+)\.weight", each.name)
        if parts is not None:
            stack, layer, name = parts.groups()
            share = each.effective_rank / len(each.singular_values)
            grids.setdefault(stack, {})[int(layer), name.removesuffix("_proj")] = share
    blocks: list[Block] = []
    for stack, cells in grids.items():
        layers, names = sorted({layer for layer, _ in cells}), list(dict.fromkeys(name for _, name in cells))
        values = np.array([[cells.get((layer, name), -np.inf) for name in names] for layer in layers])
        unit = say("effective rank as a share of the full rank")
        blocks += [
            Heading(say("Effective ranks, {stack}", stack=stack)),
            Matrix(values, [str(layer) for layer in layers], names, LAYER, say("matrix"), unit, drawn=True),
        ]  # fmt: skip
    return blocks
