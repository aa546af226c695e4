"""The parameters of a model by part, exact, each tensor counted once."""

from collections import Counter
from dataclasses import dataclass

from cutaway.checkpoint.parameters import aliases
from cutaway.models.build import Model

_INPUT = {"tokens": "token embedding", "positions": "positions", "segments": "segments"}
_BLOCK = {"self_attn": "self-attention", "cross_attn": "cross-attention", "mlp": "feed-forward"}


@dataclass(frozen=True)
class Part:
    """The parameters of one kind in one place."""

    place: str  # "input", "encoder", "decoder" or "output"
    name: str
    layers: int | None  # how many blocks have such a part; None where it stands outside of the blocks
    per_layer: int | None  # parameters in each of these blocks; None outside, or where they differ
    parameters: int
    active: int  # those at work on one token: all of them, but of the experts only the chosen ones


def parts(model: Model) -> tuple[Part, ...]:
    """Every part in the order of the data's way. What is tied counts where it comes first: an output matrix that is
    the embedding matrix counts as the embedding."""
    found: dict[tuple[str, str], Counter[int | None]] = {}
    for names in aliases(model):
        place, name, layer = _where(names[0])
        found.setdefault((place, name), Counter())[layer] += model.get_parameter(names[0]).numel()
    made = []
    for (place, name), sizes in found.items():
        inside, total = None not in sizes, sizes.total()
        share = model.config.n_experts_per_token if name == "experts" else 1
        of = model.config.n_experts if name == "experts" else 1
        same = inside and len(set(sizes.values())) == 1
        made.append(
            Part(
                place=place,
                name=name,
                layers=len(sizes) if inside else None,
                per_layer=total // len(sizes) if same else None,
                parameters=total,
                active=total * share // of,
            )
        )
    return tuple(made)


def _where(full: str) -> tuple[str, str, int | None]:
    """Place, kind of part and number of the block of the parameter with that full name."""
    stack, *inner, owner, leaf = full.split(".")
    is_norm = owner == "norm" or owner.endswith("_norm")
    if stack in ("encoder", "decoder"):
        if inner[:1] != ["layers"]:  # the final norm, or the table of relative positions
            return stack, "final norm" if is_norm else "relative positions", None
        layer, part = int(inner[1]), (*inner, owner)[2]
        if is_norm:
            name = "norms"
        elif owner == "router" or "experts" in inner:
            name = "router" if owner == "router" else "experts"
        else:
            name = _BLOCK[part]
        return stack, name, layer
    if stack == "head":
        if owner == "unembed":
            return "output", "output matrix" if leaf == "weight" else "output bias", None
        return "output", f"output {'norm' if is_norm else owner}", None
    return "input", "embedding norm" if is_norm else _INPUT[owner], None
