"""Tiny models of every family with random weights, and runs of them without a tokenizer."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tests.test_tap import FAMILIES

from cutaway.checkpoint.folder import Loaded
from cutaway.config import ModelConfig, parse
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import SIDES, Side
from cutaway.models.build import Model, build
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.attention import Attention


def tiny(kind: str) -> Model:
    torch.manual_seed(3)
    model = build(parse(ModelConfig, FAMILIES[kind], kind)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def opened(model: Model) -> Loaded:
    return Loaded(model, model.config, None, {}, Path("tiny"))


def tiny_run(model: Model, ids: Sequence[int] = (4, 9, 11, 7, 30)) -> Run:
    tokens = Tokens(list(ids), [f"t{id}" for id in ids])
    if isinstance(model, EncoderDecoder):
        return Run(opened(model), tokens, tokens, tokens)
    source, target = (tokens, None) if isinstance(model, EncoderOnly) else (None, tokens)
    return Run(opened(model), source, target, tokens)


def sides(model: Model) -> list[Side]:
    return [side for side in SIDES if isinstance(model, EncoderDecoder) or hasattr(model, side)]


def attention(model: Model, side: Side, layer: int) -> tuple[Attention, str]:
    name = f"decoder.layers.{layer}.cross_attn" if side == "cross" else f"{side}.layers.{layer}.self_attn"
    found = model.get_submodule(name)
    assert isinstance(found, Attention)
    return found, name
