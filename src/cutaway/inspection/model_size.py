"""What a model is made of, counted: its parameters by part, and the floating-point operations that a token costs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from cutaway.checkpoint.parameters import aliases
from cutaway.inspection.wiring import Side, layer_in, places, sides
from cutaway.models.build import Model
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.moe import MoE

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
    """Every part in data-flow order. What is tied counts where it comes first: an output matrix that is
    the embedding matrix counts as the embedding."""
    found: dict[tuple[str, str], Counter[int | None]] = {}
    for names in aliases(model):
        place, name, layer = _where(names[0])
        found.setdefault((place, name), Counter())[layer] += model.get_parameter(names[0]).numel()
    made = []
    for (place, name), sizes in found.items():
        inside, total = None not in sizes, sizes.total()
        same = inside and len(set(sizes.values())) == 1
        active = total
        if name == "experts":
            active = total * model.config.n_experts_per_token // model.config.n_experts
        layers, each = len(sizes) if inside else None, total // len(sizes) if same else None
        made.append(Part(place, name, layers, each, total, active))
    return tuple(made)


def _where(full: str) -> tuple[str, str, int | None]:
    """Place, kind of part and number of the block of the parameter with that full name."""
    stack, *inner, owner, leaf = full.split(".")
    is_norm = owner == "norm" or owner.endswith("_norm")
    if stack in ("encoder", "decoder"):
        # the final norm, or the table of relative positions
        if inner[:1] != ["layers"]:
            return stack, "final norm" if is_norm else "relative positions", None
        layer, part = layer_in(full), (*inner, owner)[2]
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


# Operations.


@dataclass(frozen=True)
class Products:
    """Floating-point operations of one token, by what they are spent on; `total` is their sum."""

    projections: int  # the matrices q, k, v and o of all attentions
    attention: int  # scores q·k and the weighted sums of values: all that grows with the context
    feed_forward: int  # the feed-forward networks, or the routers and the experts chosen
    head: int  # the output head
    total: int


@dataclass(frozen=True)
class Operations:
    """What a token costs with `context` tokens in view; see `operations`."""

    context: int
    per_token: Products
    per_source_token: Products | None  # of the encoder-decoder family alone


def operations(model: Model, context: int) -> Operations:
    """The matrix products of the forward pass, 2·m·n·k for an (m, k) by a (k, n) matrix, one token's share of them.

    With N layers, width D, H heads and K key/value heads of width E, feed-forward width F, vocabulary V, and
    g = 3 matrices in a gated feed-forward network, else 2:

    * decoder-only: the newest of T = `context` tokens, the earlier ones cached:
      N · (2D(2H + 2K)E + 4HET + 2gDF) + 2DV. With experts, 2gDF counts for each of the A experts that the token is
      given, and the router adds 2DX.
    * encoder-only: one token of a text of T tokens: the same sum.
    * encoder-decoder: `per_token` is a target token, the newest of T, with a source of S = T tokens whose keys and
      values are cached: N · (2D(4H + 2K)E + 4HE(T + S) + 2gDF) + 2DV. `per_source_token` is a source token: the
      encoder's sum at T = S, and the decoder's keys and values of it, N · 4DKE.

    Keys that a mask or a sliding window hides count, since they are multiplied and then masked. Look-ups, norms,
    activations, softmax, rotations and sums are no matrix products. The masked head adds its dense layer, 2D².
    """
    head = _matrices(model.head)
    if not isinstance(model, EncoderDecoder):
        return Operations(context, _products(model, sides(model), context, head), None)
    memory = sum(
        _matrices(module)
        for place in places(model, "cross")
        for module in (place.attention.k_proj, place.attention.v_proj)
    )
    target = _products(model, ("decoder", "cross"), context, head, -memory)
    return Operations(context, target, _products(model, ("encoder",), context, 0, memory))


def _products(model: Model, attended: Sequence[Side], context: int, head: int, memory: int = 0) -> Products:
    """One token's share in every attention of these sides, each with `context` keys, and in the networks beside; all
    matrices are this token's own but for `memory`, which is added to them."""
    attentions = [place.attention for side in attended for place in places(model, side)]
    projections = sum(map(_matrices, attentions)) + memory
    attention = sum(4 * each.o_proj.in_features * context for each in attentions)
    feed_forward = sum(_matrices(place.block.mlp) for place in places(model, attended[0]))
    return Products(projections, attention, feed_forward, head, projections + attention + feed_forward + head)


def _matrices(module: nn.Module) -> int:
    """2 operations for each weight of the matrices that one token meets in `module`."""
    if isinstance(module, nn.Linear):
        return 2 * module.in_features * module.out_features
    if isinstance(module, MoE):
        return _matrices(module.router) + module.n_per_token * _matrices(module.experts[0])
    return sum(map(_matrices, module.children()))
