"""The table of a model's parameters by part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.text.display import pad, width

if TYPE_CHECKING:  # a command's module loads nothing heavy at its top
    from cutaway.inspection.structure.anatomy import Anatomy
    from cutaway.inspection.structure.parts import Part

ORDER = ("self-attention", "cross-attention", "feed-forward", "router", "experts", "norms", "final norm")


def table(found: "Anatomy", columns: int) -> list[str]:
    """Parameters of one layer and of all, exact, along the way of the data; two stacks stand side by side where
    `columns` allow. With one stack the share of the total is added where they do."""
    stacks = [place for place in ("encoder", "decoder") if any(part.place == place for part in found.parts)]
    beside = _rows(found, [[stack] for stack in stacks])
    if len(stacks) == 1:
        lines = _aligned([[*row, _share(row[-1], found.parameters)] for row in beside])
        return lines if max(map(width, lines)) <= columns else _aligned(beside)
    lines = _aligned(beside)
    return lines if max(map(width, lines)) <= columns else _aligned(_rows(found, [stacks]))


def _rows(found: "Anatomy", groups: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells of the table. Each group of stacks has two columns of its own; those of a group stand below one
    another, each row with its stack's name."""
    blank = [""] * (2 * len(groups) - 1)
    heads = [group[0] if len(groups) > 1 else "a" for group in groups]
    rows = [["parameters", *(cell for head in heads for cell in (f"{head} layer", "in all"))]]
    rows += [[part.name, *blank, f"{part.parameters:,}"] for part in found.parts if part.place == "input"]
    for stacks in zip(*groups, strict=True):
        names = {part.name for part in found.parts if part.place in stacks}
        for name in sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else -1):
            here = {part.place: part for part in found.parts if part.name == name}
            label = f"{stacks[0]} {name}" if len(groups[0]) > 1 else name
            rows.append([label, *(cell for stack in stacks for cell in _cells(here.get(stack)))])
    rows += [[part.name, *blank, f"{part.parameters:,}"] for part in found.parts if part.place == "output"]
    if found.config.tied and found.config.head != "none":
        rows.append(["output matrix", *blank, "tied"])
    return [*rows, ["total", *blank, f"{found.parameters:,}"]]


def _cells(part: "Part | None") -> tuple[str, str]:
    if part is None:
        return "", ""
    if part.layers is None:
        return "", f"{part.parameters:,}"
    return "differs" if part.per_layer is None else f"{part.per_layer:,}", f"{part.parameters:,}"


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
