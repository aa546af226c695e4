"""The residual stream, number by number: what enters a block, what each sublayer adds to it, where it is normalised."""

from torch import nn

from cutaway.inspection.arithmetic.attention import Place, attention_steps
from cutaway.inspection.arithmetic.embedding import alibi_steps, embedding_steps, rotary_steps
from cutaway.inspection.arithmetic.feed_forward import mlp_steps, moe_steps
from cutaway.inspection.arithmetic.norm import normalised
from cutaway.inspection.arithmetic.record import Numbers, Record, Sheet, Step, Steps
from cutaway.inspection.arithmetic.rounding import Rounded
from cutaway.nn.bias import AlibiBias
from cutaway.nn.block import Block
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PostNorm, PreNorm, SandwichNorm
from cutaway.nn.stack import Stack
from cutaway.words import Phrase, say


def stack_steps(record: Record, path: str, embedding: str, ids: str, memory: str | None) -> Steps:
    """Of a whole stack with the embedding that feeds it; `memory` is the name of an encoder's result, or None."""
    stack = record.model.get_submodule(path)
    assert isinstance(stack, Stack)
    steps = embedding_steps(record, embedding, ids, f"{path}.layers.0.resid_pre")
    for name in ("rotary", "local_rotary"):
        if getattr(stack, name) is not None:
            steps |= rotary_steps(record, f"{path}.{name}", record.need(ids).shape[1])
    if isinstance(stack.relative, AlibiBias):
        steps |= alibi_steps(record, f"{path}.relative")
    last = ""
    for number in range(len(stack.layers)):
        if last:
            why = say("the block before leaves it")
            steps[f"{path}.layers.{number}.resid_pre"] = _same("resid_pre", last, why)
        steps |= _block_steps(record, path, stack, number, memory)
        last = f"{path}.layers.{number}.resid_post"
    if isinstance(stack.norm, nn.Identity):
        why = say("this model has no norm after the last block")
        steps[f"{path}.normed"] = _same("normed", last, why)
    else:
        steps[f"{path}.normed"] = _norm("normed", last, f"{path}.norm", stack.norm)
    return steps


def _block_steps(record: Record, stack_path: str, stack: Stack, number: int, memory: str | None) -> Steps:
    path = f"{stack_path}.layers.{number}"
    block = stack.layers[number]
    assert isinstance(block, Block)
    near = number in stack.window_layers
    rotary = None
    if stack.rotary is not None:
        rotary = f"{stack_path}.{'local_rotary' if near and stack.local_rotary is not None else 'rotary'}"
    steps: Steps = {}
    reads = _add(record, steps, path, "self_residual", "resid_pre", "self_attn", "resid_mid")
    window = stack.window if near else None
    place = Place(f"{path}.self_attn", reads, reads, stack, stack_path, rotary, window)
    steps |= attention_steps(record, place)
    stream = "resid_mid"
    if block.cross:
        assert memory is not None, "a decoder with cross-attention has an encoder"
        reads = _add(record, steps, path, "cross_residual", "resid_mid", "cross_attn", "resid_cross")
        steps |= attention_steps(record, Place(f"{path}.cross_attn", reads, memory, None))
        stream = "resid_cross"
    reads = _add(record, steps, path, "mlp_residual", stream, "mlp", "resid_post")
    network = moe_steps if isinstance(block.mlp, MoE) else mlp_steps
    return steps | network(record, f"{path}.mlp", reads)


def _add(
    record: Record, steps: Steps, block: str, residual: str, stream: str, sublayer: str, result: str
) -> str:
    """Put in the steps of one residual connection; return the name of what its sublayer reads.

    `<residual>.sum` is stream + sublayer before a post-norm, `<residual>.out_norm` what a sublayer writes after a
    sandwich's second norm.
    """
    path = f"{block}.{residual}"
    module = record.model.get_submodule(path)
    assert isinstance(module, PreNorm)
    x, out, after = f"{block}.{stream}", f"{block}.{sublayer}.out", f"{block}.{result}"
    if isinstance(module, PostNorm):
        record.add(f"{path}.sum", lambda: record.need(x) + record.need(out))
        steps[f"{path}.sum"] = _sum("sum", (stream, x), (f"{sublayer}.out", out))
        steps[after] = _norm(result, f"{path}.sum", f"{path}.norm", module.norm)
        return x
    steps[f"{path}.normed"] = _norm("normed", x, f"{path}.norm", module.norm)
    if isinstance(module, SandwichNorm):
        norm = module.out_norm
        record.add(f"{path}.out_norm", lambda: norm(record.need(out)))
        steps[f"{path}.out_norm"] = _norm("out_norm", out, f"{path}.out_norm", norm)
        steps[after] = _sum(result, (stream, x), ("out_norm", f"{path}.out_norm"))
    else:
        steps[after] = _sum(result, (stream, x), (f"{sublayer}.out", out))
    return f"{path}.normed"


def _same(letter: str, source: str, why: Phrase) -> Step:
    def step(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        sheet.note = why
        return f"{letter}[t,d] = resid_post[t,d]", sheet.take("resid_post", source, *index)

    return step


def _sum(letter: str, *terms: tuple[str, str]) -> Step:
    def step(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        first, second = (sheet.take(symbol, name, *index) for symbol, name in terms)
        return f"{letter}[t,d] = {' + '.join(f'{symbol}[t,d]' for symbol, _ in terms)}", first + second

    return step


def _norm(letter: str, source: str, path: str, norm: nn.Module) -> Step:
    def step(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, i = index
        x = sheet.take("x", source, 0, t, slice(None))
        formula, result = normalised(sheet, x, i, path, norm)
        return f"{letter}[t,i] = {formula}", result

    return step
