"""The table of a model's parameters by part."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cutaway.cli.hanging import either
from cutaway.text.display import pad, width
from cutaway.words import Locale

if TYPE_CHECKING:  # a command's module loads nothing heavy at its top
    from cutaway.inspection.questions.anatomy import Anatomy
    from cutaway.inspection.structure.parts import Part

Say = Callable[[str, str], str]
ORDER = ("self-attention", "cross-attention", "feed-forward", "router", "experts", "norms", "final norm")
CHINESE = {
    "encoder": "编码器",
    "decoder": "解码器",
    "token embedding": "词嵌入",
    "positions": "位置",
    "segments": "段",
    "embedding norm": "嵌入归一化",
    "self-attention": "自注意力",
    "cross-attention": "交叉注意力",
    "feed-forward": "前馈网络",
    "router": "路由器",
    "experts": "专家",
    "norms": "归一化",
    "final norm": "最后的归一化",
    "relative positions": "相对位置",
    "output dense": "输出层",
    "output norm": "输出归一化",
    "output matrix": "输出矩阵",
    "output bias": "输出偏置",
}


def table(found: "Anatomy", columns: int, locale: Locale = "en") -> list[str]:
    """Parameters of one layer and of all, exact, along the way of the data; two stacks stand side by side where
    `columns` allow. With one stack the share of the total is added where they do."""
    say = partial(either, locale=locale)
    stacks = [place for place in ("encoder", "decoder") if any(part.place == place for part in found.parts)]
    beside = _rows(found, [[stack] for stack in stacks], say)
    if len(stacks) == 1:
        lines = _aligned([[*row, _share(row[-1], found.parameters)] for row in beside])
        return lines if max(map(width, lines)) <= columns else _aligned(beside)
    lines = _aligned(beside)
    return lines if max(map(width, lines)) <= columns else _aligned(_rows(found, [stacks], say))


def _rows(found: "Anatomy", groups: Sequence[Sequence[str]], say: Say) -> list[list[str]]:
    """The cells of the table. Each group of stacks has two columns of its own; those of a group stand below one
    another, each row with its stack's name."""
    blank = [""] * (2 * len(groups) - 1)
    rows = [[say("parameters", "参数量")]]
    for group in groups:
        of = say(f"{group[0]} ", CHINESE[group[0]]) if len(groups) > 1 else say("a ", "")
        rows[0] += [say(f"{of}layer", f"{of}每层"), say("in all", "合计")]
    rows += [
        [_name(part.name, say), *blank, f"{part.parameters:,}"]
        for part in found.parts
        if part.place == "input"
    ]
    for stacks in zip(*groups, strict=True):
        names = {part.name for part in found.parts if part.place in stacks}
        for name in sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else -1):
            here = {part.place: part for part in found.parts if part.name == name}
            stack = say(f"{stacks[0]} ", CHINESE[stacks[0]]) if len(groups[0]) > 1 else ""
            cells = (cell for stack in stacks for cell in _cells(here.get(stack), say))
            rows.append([stack + _name(name, say), *cells])
    rows += [
        [_name(part.name, say), *blank, f"{part.parameters:,}"]
        for part in found.parts
        if part.place == "output"
    ]
    if found.config.tied and found.config.head != "none":
        rows.append([_name("output matrix", say), *blank, say("tied", "共享")])
    return [*rows, [say("total", "总计"), *blank, f"{found.parameters:,}"]]


def _name(part: str, say: Say) -> str:
    return say(part, CHINESE[part])


def _cells(part: "Part | None", say: Say) -> tuple[str, str]:
    if part is None:
        return "", ""
    if part.layers is None:
        return "", f"{part.parameters:,}"
    return say(
        "differs", "各层不同"
    ) if part.per_layer is None else f"{part.per_layer:,}", f"{part.parameters:,}"


def _share(count: str, total: int) -> str:
    number = count.replace(",", "")
    return f"{100 * int(number) / total:.1f} %" if number.isdigit() else ""


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            pad(cell, size, "right" if number else "left")
            for number, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
