"""Every step of attention against the softmax of queries and keys, worked out from the weights."""

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from tests.inspection.tokens import attention_inputs, projected

from cutaway import CutawayError
from cutaway.inspection.patterns import Stage, patterns, row_labels
from cutaway.inspection.runs import Run
from cutaway.inspection.wiring import Side, sides
from cutaway.nn.attention import Attention

RunOf = Callable[..., Run]


@pytest.mark.parametrize(
    ("structure", "side", "path"),
    [
        ("post-norm pair", "encoder", "encoder.layers.1.self_attn"),
        ("post-norm pair", "decoder", "decoder.layers.1.self_attn"),
        ("pre-norm pair", "cross", "decoder.layers.1.cross_attn"),
        ("GPT-2", "decoder", "decoder.layers.1.self_attn"),
        ("BERT", "encoder", "encoder.layers.1.self_attn"),
    ],
)
@torch.no_grad()
def test_the_steps_from_queries_and_keys_to_weights(
    run_of: RunOf, structure: str, side: Side, path: str
) -> None:
    asked = run_of(structure)
    module = asked.model.get_submodule(path)
    assert isinstance(module, Attention)
    x, memory = attention_inputs(asked, module)
    found = {stage: patterns(asked, side, [1], [3, 0], stage) for stage in get_args(Stage)}
    for head in (3, 0):
        q = projected(x, module.q_proj, head, module.d_head)
        k = projected(memory, module.k_proj, head, module.d_head)
        scores = q @ k.T
        masked = scores / math.sqrt(module.d_head)
        if side == "decoder":
            masked = masked.masked_fill(torch.ones_like(masked).triu(1).bool(), -math.inf)
        expected = {
            "scores": scores,
            "scaled": scores / math.sqrt(module.d_head),
            "masked": masked,
            "pattern": masked.softmax(dim=-1),
        }
        for stage, values in expected.items():
            torch.testing.assert_close(found[stage].of(1, head).double(), values, rtol=1e-4, atol=1e-4)
    shown = found["pattern"]
    assert (shown.layers, shown.heads) == ((1,), (3, 0))
    assert shown.values.shape == (1, 2, len(shown.queries), len(shown.keys)) == (1, 2, len(x), len(memory))


@pytest.mark.parametrize(
    ("structure", "changes"),
    [
        ("T5", {}), ("Llama", {}), ("Llama", {"qk_norm": True, "d_head": 8}), ("GPT-2", {"position": "alibi"}),
        ("Gemma 2", {}), ("experts", {}), ("pair with experts", {}),
    ],
)  # fmt: skip
def test_every_side_has_rows_that_sum_to_one_and_changes_nothing(
    run_of: RunOf, structure: str, changes: dict[str, Any]
) -> None:
    asked = run_of(structure, **changes)
    plain = asked.forward()[0]
    for side in sides(asked.model):
        found = patterns(asked, side)
        assert found.values.shape == (3, 4, len(found.queries), len(found.keys))
        sums = found.values.sum(dim=-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
    assert torch.equal(asked.forward()[0], plain)


def test_a_row_says_what_is_read_and_what_is_written_after_it(run_of: RunOf) -> None:
    pair, encoder = run_of("T5"), run_of("BERT")
    assert pair.target is not None and pair.source is not None and encoder.source is not None
    shown = [
        f"{read} → {written}" for read, written in zip(pair.target.pieces, pair.outcome.pieces, strict=True)
    ]
    assert list(row_labels(pair, "cross")) == list(row_labels(pair, "decoder")) == shown
    assert list(row_labels(pair, "encoder")) == pair.source.pieces
    assert list(row_labels(encoder, "encoder")) == encoder.source.pieces


def test_what_is_not_there_is_named(run_of: RunOf) -> None:
    gpt = run_of("GPT-2")
    for options, message in (
        ({"side": "cross"}, "side is 'cross'.*decoder-only model attends on decoder only"),
        ({"layers": [7]}, "there is no layer 7, expected 0 to 2, or -1 for the last"),
        ({"heads": [-9]}, "there is no head -9, expected 0 to 3"),
        ({"heads": []}, "no head is named, expected at least one of 0 to 3"),
        ({"heads": [1, 1]}, "expected each once"),
        ({"stage": "paterns"}, r"stage is 'paterns' \(did you mean 'pattern'\?\)"),
    ):
        given: Any = options
        with pytest.raises(CutawayError, match=message):
            patterns(gpt, **given)
    last = patterns(gpt, layers=-1, heads=-1)
    assert (last.side, last.layers, last.heads) == ("decoder", (2,), (3,))
    with pytest.raises(CutawayError, match="head 1 was not asked for, expected one of 3"):
        last.of(2, 1)
