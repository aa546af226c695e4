"""The sides of a model: its stacks, and the decoder's attention to the source."""

from typing import Literal

from cutaway.errors import CutawayError, nearest
from cutaway.models.build import Model
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.attention import Attention
from cutaway.nn.block import Block
from cutaway.nn.stack import Stack

Side = Literal["encoder", "decoder", "cross"]
SIDES: tuple[Side, ...] = ("encoder", "decoder", "cross")


def sides(model: Model) -> tuple[Side, ...]:
    """The sides on which a model of this family attends, in the order of the data's way."""
    if isinstance(model, EncoderDecoder):
        return SIDES
    return ("decoder",) if isinstance(model, DecoderOnly) else ("encoder",)


def check_side(model: Model, side: str) -> None:
    """CutawayError for a side that this model has not."""
    there = sides(model)
    if side not in there:
        family = model.config.family
        article = "an" if family[0] in "aeiou" else "a"
        raise CutawayError(
            "side is {side!r}{hint}: {article} {family} model attends on {there} only",
            side=side,
            hint=nearest(side, there),
            article=article,
            family=family,
            there=", ".join(there),
        )


def stack_name(side: Side) -> Literal["encoder", "decoder"]:
    """The stack that a side belongs to, as its module is called."""
    return "encoder" if side == "encoder" else "decoder"


def stack_of(model: Model, side: Side) -> Stack:
    """The stack that a side belongs to. CutawayError for a side that this model has not."""
    check_side(model, side)
    if side == "encoder":
        assert not isinstance(model, DecoderOnly)
        return model.encoder
    assert not isinstance(model, EncoderOnly)
    return model.decoder


def block_of(model: Model, side: Side, layer: int) -> Block:
    block = stack_of(model, side).layers[layer]
    assert isinstance(block, Block)
    return block


def attention_of(block: Block, side: Side) -> Attention:
    """The attention of a block that a side names."""
    return block.cross_attn if side == "cross" else block.self_attn


def attention_path(side: Side, layer: int) -> str:
    """The full name of a layer's attention: `decoder.layers.3.cross_attn`."""
    return f"{stack_name(side)}.layers.{layer}.{'cross' if side == 'cross' else 'self'}_attn"
