"""Runs of tiny models on tokens that a test chooses, and what a part of a model reads, seen by torch's own hooks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cutaway.checkpoint.folder import Loaded
from cutaway.inspection.runs import Run, Tokens
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.attention import Attention


def tokens(loaded: Loaded, ids: Sequence[int]) -> Tokens:
    return Tokens(list(ids), [loaded.require_tokenizer().readable(id) for id in ids])


def reading(loaded: Loaded, ids: Sequence[int], written: Sequence[int] = ()) -> Run:
    """A run that reads `ids`, and in a pair writes `written`."""
    read = tokens(loaded, ids)
    if isinstance(loaded.model, EncoderDecoder):
        target = tokens(loaded, written)
        return Run(loaded, read, target, target)
    return (
        Run(loaded, read, None, read)
        if isinstance(loaded.model, EncoderOnly)
        else Run(loaded, None, read, read)
    )


def repeating(run: Run) -> Run:
    """The same model on tokens that repeat, a control token and punctuation among them."""
    tokenizer = run.loaded.require_tokenizer()
    text = tokenizer.encode("今天天气很好，今天天气").ids
    return reading(
        run.loaded,
        [*text, tokenizer.require("eos")],
        [tokenizer.require("pad"), *tokenizer.encode("time. no time.").ids],
    )


def attention_inputs(asked: Run, module: Attention) -> tuple[Tensor, Tensor]:
    """What an attention module read: x (T, D) and what keys are made of (S, D), in float64."""
    seen: list[tuple[Tensor, Tensor]] = []

    def look(_: nn.Module, arguments: tuple[Tensor, ...], named: dict[str, Tensor | None]) -> None:
        x, memory = arguments[0], named.get("memory")
        seen.append((x[0].double(), (x if memory is None else memory)[0].double()))

    handle = module.register_forward_pre_hook(look, with_kwargs=True)
    with torch.no_grad():
        asked.model.hidden(**asked.inputs)
    handle.remove()
    return seen[0]


def projected(x: Tensor, layer: nn.Linear, head: int, width: int) -> Tensor:
    """x (T, D) through the rows of one head, in float64."""
    rows = slice(head * width, (head + 1) * width)
    found = x @ layer.weight[rows].double().T
    return found if layer.bias is None else found + layer.bias[rows].double()
