"""The names of a model's taps in few lines."""

from collections.abc import Sequence

from cutaway.cli.boxes import ranges
from cutaway.text.display import width


def compressed(names: Sequence[str]) -> list[str]:
    """Full tap names, one line for those that differ by layer, stack, module or last part only:
    `{encoder,decoder}.layers.0–3.{self_attn,cross_attn}.{q,k,v}`."""
    leaves: dict[str, list[str]] = {}
    for name in names:
        owner, _, leaf = name.rpartition(".")
        leaves.setdefault(owner, []).append(leaf)
    numbers: dict[tuple[str, ...], list[list[int]]] = {}
    for owner, found in leaves.items():
        parts = owner.split(".")
        template = ".".join("#" if part.isdigit() else part for part in parts)
        numbers.setdefault((template, *found), []).append([int(part) for part in parts if part.isdigit()])
    stacks: dict[tuple[str, ...], list[str]] = {}
    for (template, *found), places in numbers.items():
        first, dot, rest = template.partition(".")
        for place in zip(*places, strict=True):
            rest = rest.replace("#", ranges(set(place)), 1)
        stacks.setdefault((dot + rest, *found), []).append(first)
    modules: dict[tuple[str, ...], list[str]] = {}
    for (rest, *found), firsts in stacks.items():
        way, dot, module = rest.rpartition(".")
        modules.setdefault((_braced(firsts) + way + dot, *found), []).append(module)
    return [f"{start}{_braced(ends)}.{_braced(found)}" for (start, *found), ends in modules.items()]


def packed(texts: Sequence[str], columns: int, between: str = "  ") -> list[str]:
    """The texts in lines of at most `columns` terminal columns, where they fit several on one."""
    lines: list[str] = []
    for text in texts:
        if lines and width(f"{lines[-1]}{between}{text}") <= columns:
            lines[-1] += between + text
        else:
            lines.append(text)
    return lines


def _braced(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
