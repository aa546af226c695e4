"""The list of changes is read strictly, written back, and refused by name where the model cannot be given it."""

import json
from typing import Any

import pytest
import torch
from tests.inspection.changes.altered import Change, RunOf, block_of, changed, sides

from cutaway import CutawayError, find, load
from cutaway.inspection.changes.attention_changes import HeadOff, SetAttention
from cutaway.inspection.changes.lists import OPS, edits, read_changes, write_change
from cutaway.inspection.changes.stream_changes import SetExperts
from cutaway.inspection.runs import Run
from cutaway.inspection.runs import run as prepare
from cutaway.tap import Trace

EXAMPLES = [
    *({"op": op, **kind.example.change} for op, kind in OPS.items()),
    {"op": "head", "side": "decoder", "layer": 3, "head": 5, "set": "mean"},
    {"op": "attn", "side": "cross", "layer": 2, "head": 0, "q": 4, "k": 1, "value": 0.5, "renorm": False},
    {"op": "pattern", "layer": "*", "head": "*", "kind": "given", "rows": [[1.0], [0.5, 0.5]]},
    {"op": "resid", "layer": -1, "token": 2, "from": "another", "from_token": 1},
    {"op": "embedding", "token": 1, "along": ["▁man", 17], "amount": 0.5},
    {"op": "token", "at": 3, "force": "▁dog"},
    {"op": "hide", "side": "decoder", "token": [0, 3]},
]


def test_json_and_values_are_the_same_changes() -> None:
    changes = read_changes(json.dumps(EXAMPLES))
    assert [write_change(change) for change in changes] == EXAMPLES
    assert read_changes(changes) is changes
    assert read_changes(list(changes)) == changes == read_changes(EXAMPLES)
    assert read_changes([{"op": "head", "side": "dec", "layer": 3, "head": 5}]) == (
        HeadOff(side="decoder", layer=3, head=5),
    )
    # a list of changes can name what was computed under it
    assert isinstance(hash(changes), int)
    assert read_changes([]) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": "haed", "layer": 0, "head": 0}, r"changes\[0\]\.op is 'haed' \(did you mean 'head'\?\)"),
        ({"layer": 0}, "op is None, expected one of head, attn"),
        ({"op": "head", "layers": 0, "head": 0}, "unknown key 'layers' .did you mean 'layer'"),
        ({"op": "head", "layer": 0}, "key 'head' is missing"),
        ({"op": "head", "layer": 0, "head": 0, "set": "zeros"}, "set is 'zeros', expected one of zero, mean"),
        ({"op": "head", "layer": 0.5, "head": 0}, "layer is 0.5, expected"),
        ({"op": "attn", "layer": 0, "head": 0, "q": 1}, "expected either `k` and `value` .a cell. or `row`"),
        (
            {"op": "attn", "layer": 0, "head": 0, "q": 1, "k": 0, "value": 1.5},
            "value is 1.5, expected 0 to 1",
        ),
        (
            {"op": "attn", "layer": 0, "head": 0, "q": 1, "row": [0.5, -1]},
            r"row\[1\] is -1.*, expected at least 0",
        ),
        (
            {"op": "attn", "layer": 0, "head": 0, "q": 1, "row": [float("nan")]},
            r"row\[0\] is nan, expected at least 0",
        ),
        ({"op": "pattern", "layer": 0, "head": 0, "kind": "uniform", "rows": []}, "belongs to kind 'given'"),
        ({"op": "pos", "set": "shift"}, "`by` belongs to set 'shift'"),
        ({"op": "pos", "set": "shuffle", "seed": 1, "by": 2}, "`by` belongs to set 'shift', and only there"),
        ({"op": "neuron", "layer": 0, "n": 1}, "expected either value or scale"),
        ({"op": "neuron", "layer": 0, "n": 1, "scale": float("inf")}, "scale is inf, expected at most"),
        ({"op": "expert", "layer": 0}, "expected either ban or force"),
        ({"op": "expert", "layer": 0, "ban": [1, 1]}, "named twice"),
        ({"op": "embedding", "token": 0, "along": [1]}, "along has 1 tokens, expected two"),
        ({"op": "token", "force": 3}, "force needs a position `at`"),
        ({"op": "hide"}, "key 'token' is missing"),
        ({"op": "hide", "token": []}, "`token` is an empty list, expected at least one position"),
        ({"op": "hide", "token": -1}, "token is -1, expected at least 0"),
        ({"op": "hide", "token": [1, 1.5]}, r"token\[1\] is 1.5, expected a whole number"),
        ({"op": "dropout", "rate": 0.1}, "key 'seed' is missing"),
        ({"op": "dropout", "seed": -1}, "seed is -1, expected at least 0"),
        ({"op": "dropout", "seed": 0, "rate": 1}, "rate is 1.0, expected a number above 0, below 1"),
        ({"op": "temperature"}, "key 'value' is missing"),
        ({"op": "temperature", "value": 0}, "value is 0.*, expected a number above 0"),
        ({"op": "temperature", "value": float("inf")}, "value is inf, expected a number above 0"),
        ("head", "is 'head', expected an object"),
    ],
)
def test_a_mistake_is_named_with_its_place(change: Any, message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        read_changes([change])


def test_text_that_is_no_list_is_refused() -> None:
    for text, message in (
        ("[{", r"changes: not valid JSON: Expecting property name .* \(character 3\)"),
        ("[" * 100_000, "changes: JSON is nested too deeply"),
        ("9" * 5_000, "changes: not valid JSON: a number has thousands of digits"),
    ):
        with pytest.raises(CutawayError, match=message):
            read_changes(text)
    with pytest.raises(CutawayError, match="expected a list"):
        read_changes("3")


REFUSED = [
    ("GPT-2", {"op": "head", "layer": 3, "head": 0}, r"changes\[0\] .head.: there is no layer 3, expected 0 to 2"),
    ("GPT-2", {"op": "head", "layer": -4, "head": 0}, "there is no layer -4, expected 0 to 2"),
    ("GPT-2", {"op": "head", "layer": 0, "head": 4}, "there is no head 4, expected 0 to 3"),
    ("GPT-2", {"op": "head", "side": "encoder", "layer": 0, "head": 0}, "side is 'encoder'.*expected one of decoder"),
    ("T5", {"op": "head", "layer": 0, "head": 0}, "key 'side' is missing; this model has encoder, decoder, cross"),
    ("T5", {"op": "ffn", "side": "cross", "layer": 0}, "side is 'cross', expected one of encoder, decoder"),
    ("T5", {"op": "scale"}, "its attention scale is 1"),
    ("T5", {"op": "pos", "set": "shift", "by": 1}, "positions are distances .relative."),
    ("GPT-2", {"op": "mask", "set": "closed"}, "for side encoder, but this decoder-only model has only decoder"),
    ("BERT", {"op": "mask", "set": "open"}, "for side decoder, but this encoder-only model has only encoder"),
    ("GPT-2", {"op": "attn", "layer": 0, "head": 0, "q": 1, "k": 2, "value": 1}, "key 2 comes after query 1"),
    ("GPT-2", {"op": "attn", "layer": 0, "head": 0, "q": 1, "row": [0, 0, 1]}, "keys after query 1"),
    ("GPT-2", {"op": "attn", "layer": 0, "head": 0, "q": 32, "k": 2, "value": 1}, "q is 32, expected 0 to 31"),
    ("BERT", {"op": "attn", "layer": 0, "head": 0, "q": 1, "k": 10, "value": 1}, "k is 10, expected 0 to 9"),
    ("BERT", {"op": "pattern", "layer": 0, "head": 0, "kind": "given", "rows": [[1] * 11]}, "has 11 weights"),
    ("GPT-2", {"op": "pattern", "layer": 0, "head": 0, "kind": "given", "rows": [[0, 1]]}, r"rows\[0\] gives weight"),
    ("T5", {"op": "pattern", "side": "cross", "layer": 0, "head": 0, "kind": "previous"}, "different texts"),
    ("GPT-2", {"op": "pos", "set": "shift", "by": 26}, "by is 26, expected at most 25"),
    ("GPT-2", {"op": "neuron", "layer": 0, "n": 40, "value": 0}, "n is 40, expected 0 to 39"),
    ("experts", {"op": "neuron", "layer": 0, "n": 0, "value": 0}, "layer 0 is a mixture of experts"),
    ("experts", {"op": "expert", "layer": 1, "ban": [0]}, "layer 1 has no experts"),
    ("experts", {"op": "expert", "layer": 0, "ban": [5]}, "expert 5 is named, expected 0 to 4"),
    ("experts", {"op": "expert", "layer": 0, "ban": [0, 1, 2, 3]}, "4 of 5 experts are banned in layer 0"),
    ("experts", {"op": "expert", "layer": 0, "force": [0, 1, 2]}, "force names 3 experts, but a token has only 2"),
    ("GPT-2", {"op": "expert", "layer": 0, "ban": [0]}, "no experts; its feed-forward networks take op ffn"),
    ("GPT-2", {"op": "resid", "layer": 0, "token": 1, "from": "othr"}, "'othr' .did you mean 'other'"),
    ("GPT-2", {"op": "resid", "layer": 0, "token": 1, "from": "other", "from_token": 7}, "no token 7, expected 0 to 6"),
    ("GPT-2", {"op": "resid", "layer": 0, "token": 1, "from": "wide"}, "width 48, expected 24"),
    ("T5", {"op": "hide", "token": 10}, r"changes\[0\] .hide.: token is 10, expected 0 to 9 .the text's tokens"),
    ("BERT", {"op": "hide", "token": [0, 10]}, "token is 10, expected 0 to 9"),
    ("GPT-2", {"op": "hide", "token": 32}, "token is 32, expected 0 to 31 .this model's positions"),
    ("GPT-2", {"op": "hide", "side": "encoder", "token": 1}, "side is 'encoder'.*expected one of decoder"),
    ("GPT-2", {"op": "embedding", "token": 1, "id": 10_000}, "id: token id 10000 is not in the vocabulary"),
    ("GPT-2", {"op": "embedding", "token": 1, "id": "nonsense"}, "id: 'nonsense' is 7 tokens in this vocabulary"),
    ("GPT-2", {"op": "embedding", "token": 1, "along": [3, "今天天气"]}, "along: '今天天气' is . tokens"),
    ("GPT-2", {"op": "token", "ban": ["今天天气"]}, r"changes\[0\] .token.: ban: '今天天气' is . tokens in this vocab"),
    ("no head", {"op": "token", "ban": [3]}, "no output head: it gives vectors and not words"),
    ("no head", {"op": "temperature", "value": 2}, "no output head: it gives vectors and not words"),
    ("GPT-2", {"op": "dropout", "seed": 0}, "dropout is 0., so it gives no rate: add `rate`"),
    ("GPT-2", {"op": "dropout", "seed": 0, "rate": 0.1, "side": "cross"}, "side is 'cross'"),
    ("GPT-2", {"op": "token", "at": 0, "force": 0}, "a control token or an id without a piece, which the model never"),
    ("BERT", {"op": "token", "at": 0, "force": "[MASK]"}, "a control token or an id without a piece, which the model"),
    ("BERT", {"op": "norm", "part": "final"}, "part is 'final', but this model has none there"),
    ("GPT-2", {"op": "norm", "layer": 0, "part": "final"}, "it is the stack's, leave `layer` out"),
    ("GPT-2", {"op": "norm", "part": "cross"}, "part is 'cross', but this model has none there"),
]  # fmt: skip


@pytest.mark.parametrize("op", [op for op, kind in OPS.items() if kind.example.model is not None])
def test_an_example_changes_what_its_model_says(op: str) -> None:
    example = OPS[op].example
    loaded = load(find(str(example.model)))
    this = prepare(loaded, example.text)
    runs = {} if example.other is None else {"other": prepare(loaded, example.other)}
    found = this.forward(edit=edits([{"op": op, **example.change}], this, runs))[0]
    assert (found - this.forward()[0]).abs().max() > 1e-3


@pytest.mark.parametrize(("structure", "change", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_a_model_cannot_be_given_is_refused_by_name(
    structure: str, change: dict[str, object], message: str, run_of: RunOf
) -> None:
    runs: dict[str, Run] = {}
    if change["op"] == "resid":
        runs = {"other": run_of(structure), "wide": run_of(structure, d_model=48)}
    with pytest.raises(CutawayError, match=message):
        edits([change], run_of(structure), runs)


def test_positions_of_a_model_without_them_cannot_be_changed(run_of: RunOf) -> None:
    with pytest.raises(CutawayError, match="told no positions, so there are none to change"):
        edits([{"op": "pos", "set": "none"}], run_of("GPT-2", position="none"))


def test_changes_that_exclude_each_other_are_refused(run_of: RunOf) -> None:
    run = run_of("experts")
    ban, force = SetExperts(layer=0, ban=(1, 2)), SetExperts(layer=0, token=3, force=(2,))
    with pytest.raises(CutawayError, match="expert 2 of layer 0 is both banned and forced"):
        edits([ban, force], run)
    with pytest.raises(CutawayError, match="4 of 5 experts are banned"):
        edits([ban, SetExperts(layer="*", token=1, ban=(3, 4))], run)
    assert edits([SetExperts(layer=0, token=0, ban=(1, 2)), SetExperts(layer=0, token=1, ban=(3, 4))], run)


def test_a_value_made_in_python_is_checked_like_json(run_of: RunOf) -> None:
    wrong: dict[str, Any] = {"set": "never"}
    with pytest.raises(CutawayError, match=r"changes\[0\] \(head\): set is 'never'"):
        edits([HeadOff(layer=0, head=0, **wrong)], run_of("GPT-2"))
    with pytest.raises(ValueError, match="expected either `k` and `value`"):
        SetAttention(layer=0, head=0, q=0)


def test_no_change_is_no_change_to_the_bit(run: Run) -> None:
    assert edits([], run) == {}
    assert torch.equal(changed(run), run.forward()[0])


def test_gradients_pass_through_changes(run_of: RunOf) -> None:
    run = run_of("Llama")
    changes: list[Change] = [
        {"op": "attn", "layer": 0, "head": 0, "q": 3, "k": 1, "value": 0.5},
        {"op": "pos", "set": "shuffle", "seed": 1},
        {"op": "neuron", "layer": 1, "n": 3, "scale": 2},
    ]
    with torch.enable_grad(), Trace(run.model, edit=edits(changes, run)):
        run.model(**run.inputs)[0, -1].max().backward()
    gradient = block_of(run.model, "decoder", 0).self_attn.v_proj.weight.grad
    assert gradient is not None and gradient.abs().max() > 0
    run.model.zero_grad()


def test_norms_are_off_before_a_sublayer_is_skipped(run: Run) -> None:
    side = sides(run, cross=False)[0]
    skip: Change = {"op": "ffn", "side": side, "layer": 1}
    no_norm: Change = {"op": "norm", "side": side, "layer": 1, "part": "ffn"}
    assert torch.equal(changed(run, skip, no_norm), changed(run, skip))
    assert torch.equal(changed(run, no_norm, skip), changed(run, skip))
