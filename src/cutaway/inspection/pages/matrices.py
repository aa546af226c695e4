"""Pages of matrices: singular values, and directions read as tokens."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import LAYER, left, right
from cutaway.page.blocks import Bars, Block, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import number

if TYPE_CHECKING:
    from cutaway.inspection.matrices.matrix import Matrix as WeightMatrix
    from cutaway.inspection.matrices.spectrum import Direction, Reading, Spectrum

_FIRST = 8  # singular values that are written out
_SIDES = {"rows": Both("rows", "行"), "columns": Both("columns", "列")}
_APPROXIMATE = Remark(
    Both(
        "Directions are read by static token vectors only (approximate: positions, context and norms are left "
        "out). What lies along a row direction is sent to the column direction.",
        "方向只用静态的词块向量来读（近似：不计位置、上下文和归一化）。沿行方向的内容被送到列方向。",
    )
)


def _caveats(found: "WeightMatrix | Spectrum") -> list[Prose]:
    """What else takes part where the matrix works; the label stands before the first."""
    return [
        Prose(Both("", "") if n else Both("but", "注意"), caveat) for n, caveat in enumerate(found.caveats)
    ]


def matrix_page(found: "WeightMatrix") -> Page:
    rows, columns = found.shape
    return page(
        Both(f"{found.title.en} ({rows} × {columns})", f"{found.title.zh}（{rows} × {columns}）"),
        [
            Prose(Both("formula", "公式"), found.formula),
            Prose(Both("maps", "映射"), f"{found.rows} → {found.columns}"),
            *_caveats(found),
            Remark(
                Both(
                    "Its singular values: spectrum(matrix); its directions as tokens: directions(loaded, matrix).",
                    "它的奇异值：spectrum(matrix)；把它的方向读成词块：directions(loaded, matrix)。",
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
            Both("symmetry", "对称性"),
            Both(
                f"{share} (1: symmetric, 0.5: random, 0: never mutual)",
                f"{share}（1：对称，0.5：随机，0：从不相互）",
            ),
        )
    rows, columns = found.shape
    return page(
        Both(f"{found.title.en} ({rows} × {columns})", f"{found.title.zh}（{rows} × {columns}）"),
        [
            Prose(Both("formula", "公式"), found.formula),
            Prose("σ", " ".join(shown)),
            Prose(
                Both("ranks", "秩"),
                Both(
                    f"effective {found.effective_rank:.1f}, stable {found.stable_rank:.1f} of {len(sigmas)}",
                    f"有效秩 {found.effective_rank:.1f}，稳定秩 {found.stable_rank:.1f}，满秩 {len(sigmas)}",
                ),
            ),
            symmetry,
            *_caveats(found),
            Bars(sigmas, Both("singular value", "奇异值"), "σ"),
        ],
    )


def direction_page(found: "Direction") -> Page:
    energy = f"{100 * found.energy:.1f} %"
    title = Both(
        f"Direction {found.index}: σ = {number(found.sigma)}, {energy} of the energy",
        f"方向 {found.index}：σ = {number(found.sigma)}，占能量的 {energy}",
    )
    rows = [
        (_SIDES[side], end, "  ".join(f"{each.piece} {each.value:+.2f}" for each in tokens))
        for side, reading in (("rows", found.rows), ("columns", found.columns))
        if reading is not None
        for end, tokens in (("+", reading.positive), ("−", reading.negative))
    ]
    if not rows:
        return page(title, [Remark(Both("Neither side is read as tokens.", "两侧都不能读成词块。"))])
    columns = (left(Both("side", "侧")), left(Both("end", "端")), left(Both("tokens", "词块")))
    return page(title, [Table(columns, rows), _APPROXIMATE])


def directions_table(ways: "Sequence[Direction]") -> Table | None:
    """The directions of one matrix, a line for each side that is read as tokens."""
    rows: list[tuple[Text, Text, Text]] = []
    for way in ways:
        energy = f"{100 * way.energy:.1f} %"
        for side, reading in (("rows", way.rows), ("columns", way.columns)):
            if reading is not None:
                name = _SIDES[side]
                rows.append(
                    (Both(f"{way.index} {name.en}", f"{way.index} {name.zh}"), energy, _ends(reading))
                )
                energy = ""
    if not rows:
        return None
    titles = (
        left(Both("direction", "方向")),
        right(Both("energy", "能量")),
        left(Both("tokens at its two ends", "两端的词块")),
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
        right(Both("rows×cols", "行×列")),
        right(Both("max σ", "最大 σ")),
        right(Both("eff.", "有效秩")),
        right(Both("stable", "稳定秩")),
        left(Both("parameter", "参数")),
    )
    return page(
        Both("The matrices of this model", "这个模型的矩阵"),
        [
            Table(titles, rows),
            Remark(
                Both(
                    "max σ: the greatest singular value; eff., stable: effective and stable rank; of shapes, not of "
                    "importance. One of them: --name NAME; W_QK and W_OV of a head: --layer N --head N.",
                    "最大 σ：最大的奇异值；有效秩与稳定秩说的是形状，不是重要性。看其中一个：--name NAME；"
                    "看一个头的 W_QK 与 W_OV：--layer N --head N。",
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
        unit = Both("effective rank as a share of the full rank", "有效秩占满秩的比例")
        blocks += [
            Heading(Both(f"Effective ranks, {stack}", f"有效秩（{stack}）")),
            Matrix(values, [str(layer) for layer in layers], names, LAYER, Both("matrix", "矩阵"), unit, drawn=True),
        ]  # fmt: skip
    return blocks
