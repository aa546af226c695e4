"""Where things sit in a model: its sides, blocks and sublayers, the names of their taps, and the numbers they go by.

A side is a place where a model attends: the encoder's or the decoder's self-attention, or the decoder's attention to
the source ("cross"). Questions, changes and arithmetic all look here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import nn

from cutaway.errors import CutawayError, nearest
from cutaway.models.build import Model
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.attention import Attention
from cutaway.nn.block import Block
from cutaway.nn.embedding import Embedding
from cutaway.nn.head import Head
from cutaway.nn.mlp import MLP
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PostNorm, PreNorm
from cutaway.nn.stack import Stack
from cutaway.words import Phrase, Text, names_of, say

Side = Literal["encoder", "decoder", "cross"]
StackName = Literal["encoder", "decoder"]
SIDES: tuple[Side, ...] = ("encoder", "decoder", "cross")
STACKS: tuple[Side, ...] = ("encoder", "decoder")
All = Literal["*"]


@dataclass(frozen=True)
class Sublayer:
    """One kind of sublayer of a block, by the names of its modules and taps."""

    part: Literal["attention", "cross", "ffn"]
    residual: str  # the module that adds, and that normalises
    module: str  # the module that writes; its tap `out` is what it writes
    after: str  # the tap of the residual stream after it


SUBLAYERS = (
    Sublayer("attention", "self_residual", "self_attn", "resid_mid"),
    Sublayer("cross", "cross_residual", "cross_attn", "resid_cross"),
    Sublayer("ffn", "mlp_residual", "mlp", "resid_post"),
)


@dataclass(frozen=True)
class Place:
    """One block as a side sees it."""

    side: Side
    layer: int
    stack: Stack

    @property
    def block(self) -> Block:
        block = self.stack.layers[self.layer]
        assert isinstance(block, Block)
        return block

    @property
    def path(self) -> str:
        """The block's full name: `decoder.layers.3`."""
        return f"{stack_name(self.side)}.layers.{self.layer}"

    @property
    def attention(self) -> Attention:
        return self.block.cross_attn if self.side == "cross" else self.block.self_attn

    @property
    def attention_path(self) -> str:
        """The full name of the attention: `decoder.layers.3.cross_attn`."""
        return f"{self.path}.{'cross' if self.side == 'cross' else 'self'}_attn"

    @property
    def rotary(self) -> str | None:
        """The full name of the rotation that queries and keys take; none where they are of two texts."""
        if self.side == "cross" or self.stack.rotary is None:
            return None
        local = self.layer in self.stack.window_layers and self.stack.local_rotary is not None
        return f"{self.side}.{'local_rotary' if local else 'rotary'}"

    @property
    def sublayers(self) -> tuple[Sublayer, ...]:
        """The block's sublayers in data-flow order."""
        return tuple(each for each in SUBLAYERS if each.part != "cross" or self.block.cross)

    def sublayer(self, part: str) -> Sublayer:
        return next(each for each in self.sublayers if each.part == part)

    def residual(self, sublayer: Sublayer) -> PreNorm:
        """The module that adds what a sublayer writes to the stream."""
        module = self.block.get_submodule(sublayer.residual)
        assert isinstance(module, PreNorm)
        return module

    def before(self, sublayer: Sublayer) -> str:
        """The full name of the residual stream that a sublayer adds to."""
        names = ["resid_pre", *(each.after for each in self.sublayers)]
        return f"{self.path}.{names[self.sublayers.index(sublayer)]}"


def sides(model: Model) -> tuple[Side, ...]:
    """The sides on which a model of this family attends, in data-flow order."""
    if isinstance(model, EncoderDecoder):
        return SIDES
    return ("decoder",) if isinstance(model, DecoderOnly) else ("encoder",)


def stack_name(side: Side) -> StackName:
    """The stack that a side belongs to, as its module is called."""
    return "encoder" if side == "encoder" else "decoder"


def stack_of(model: Model, side: str) -> Stack:
    """The stack that a side belongs to. CutawayError for a side that this model lacks."""
    there = sides(model)
    if side not in there:
        raise CutawayError(
            "side is {side!r}{hint}, but this {family} model attends on {there} only",
            side=side,
            hint=nearest(side, there),
            family=model.config.family,
            there=names_of(there),
        )
    if side == "encoder":
        assert not isinstance(model, DecoderOnly)
        return model.encoder
    assert not isinstance(model, EncoderOnly)
    return model.decoder


def places(model: Model, side: Side, layers: Sequence[int] | int | None = None) -> tuple[Place, ...]:
    """The blocks of a side in order, or those that are asked for; -1 is the last. CutawayError for others."""
    stack = stack_of(model, side)
    numbers = chosen(say("layer"), layers, len(stack.layers))
    return tuple(Place(side, number, stack) for number in numbers)


def output_stack(model: Model) -> StackName:
    """The stack whose result the output head reads, or is the result where there is no head."""
    return stack_name(sides(model)[-1])


def embedding_of(model: Model, side: Side) -> tuple[str, Embedding]:
    """The full name of the embedding that feeds a side's stack, and the module."""
    if isinstance(model, EncoderDecoder):
        if side == "encoder":
            return "source_embed", model.source_embed
        return "target_embed", model.target_embed
    return "embed", model.embed


def output_head(model: Model) -> Head:
    """What turns the residual stream into logits. CutawayError for a model that has none."""
    if not isinstance(model.head, Head):
        raise CutawayError(
            "this model has no output head: it gives vectors and not words, so nothing in it can be read as words; "
            "`similarity` and `values` can be asked of it"
        )
    return model.head


def chosen(what: Phrase, given: Sequence[int] | int | None, count: int) -> tuple[int, ...]:
    """Numbers from 0 of `count` things that are called `what`: all of them (None), one, or several; negative ones count
    from the end. CutawayError that names the number and those there are."""
    if given is None:
        return tuple(range(count))
    wanted = [given] if isinstance(given, int) else list(given)
    if not wanted:
        raise CutawayError(
            "no {what} is named, expected at least one of 0 to {last}", what=what, last=count - 1
        )
    for number in wanted:
        if not -count <= number < count:
            raise CutawayError(
                "there is no {what} {number}, expected 0 to {last}, or -1 for the last",
                what=what,
                number=number,
                last=count - 1,
            )
    found = tuple(number % count for number in wanted)
    if len(set(found)) < len(found):
        raise CutawayError(
            "{what}: {found} names one twice, expected each once", what=what, found=list(found)
        )
    return found


def one_of(what: Phrase, given: int, count: int) -> int:
    """The one number that is given, as `chosen` reads it."""
    (number,) = chosen(what, given, count)
    return number


def at_least_one(**counts: int) -> None:
    """CutawayError for a count below 1, naming it."""
    for name, count in counts.items():
        if count < 1:
            raise CutawayError("{name} is {count}, expected at least 1", name=name, count=count)


# The names of taps.


def stack_entry(side: Side) -> str:
    """The residual stream that a stack's first block is given."""
    return f"{side}.layers.0.resid_pre"


def stack_result(side: Side) -> str:
    """What a stack gives, after its final norm where there is one."""
    return f"{side}.normed"


def of_source(name: str) -> bool:
    """Whether a value of an encoder-decoder is of the text that the encoder reads."""
    return name.split(".")[0] in ("encoder", "source", "source_embed")


def is_cross(path: str) -> bool:
    """Whether a module, or a value in it, is of cross-attention."""
    return "cross_attn" in path.split(".")


def tap_names(model: nn.Module) -> tuple[str, ...]:
    """Every name that `Trace(model, watch=["*"])` can meet, each once, from the embedding to the logits.

    Works on the meta device. A tap of an expert is met only when a token is given to that expert.
    """
    return tuple(_names(model, "", False))


def _names(module: nn.Module, path: str, rotary: bool) -> Iterator[str]:
    if isinstance(module, Stack):
        rotary = module.rotary is not None
    own = [path + name for name in _own(module, rotary and path.endswith("self_attn."))]
    if not isinstance(module, Stack):
        yield from own
    for name, child in module.named_children():
        yield from _names(child, f"{path}{name}.", rotary)
    # its tap is the stack's result
    if isinstance(module, Stack):
        yield from own


def _own(module: nn.Module, rotated: bool) -> tuple[str, ...]:
    if isinstance(module, Embedding):
        return ("embed", "position") if module.positions is not None else ("embed",)
    if isinstance(module, Block):
        return ("resid_pre", "resid_mid", *(("resid_cross",) if module.cross else ()), "resid_post")
    if isinstance(module, Attention):
        turned = ("q_rot", "k_rot") if rotated else ()
        return ("q", "k", "v", *turned, "scores", "scaled", "masked", "pattern", "z", "out")
    if isinstance(module, MLP):
        return ("pre", "hidden", "out")
    if isinstance(module, MoE):
        return ("router", "expert_index", "expert_weight", "expert_out", "out")
    if isinstance(module, Stack) or (isinstance(module, PreNorm) and not isinstance(module, PostNorm)):
        return ("normed",)
    return ("logits",) if isinstance(module, Head) else ()


def layer_in(name: str) -> int | None:
    """The layer that a full name of a tap or parameter is of; None outside of the blocks."""
    parts = name.split(".")
    return int(parts[2]) if parts[1:2] == ["layers"] else None


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,5,8-9`."""
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs_of(numbers))


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of numbers that follow one another."""
    there = sorted(numbers)
    firsts = [number for number in there if number - 1 not in there]
    return list(zip(firsts, [number for number in there if number + 1 not in there], strict=True))


def stepped(numbers: Iterable[int]) -> Text:
    """`ranges`, or `0-22 step 2` where that says it."""
    ordered = sorted(numbers)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1 and steps != {1}:
        return say("{first}-{last} step {step}", first=ordered[0], last=ordered[-1], step=steps.pop())
    return ranges(ordered)
