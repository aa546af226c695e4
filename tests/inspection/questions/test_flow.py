"""A token's way holds the plain model's numbers, in the order in which it is wired, with the formulas of `explain`."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.command import Run as Command

from cutaway import CutawayError, find, load
from cutaway.inspection.arithmetic.explanation import Arithmetic
from cutaway.inspection.questions.flow import Flow, Joint, Part, Stage, flow
from cutaway.inspection.runs import Run, run
from cutaway.tap import TAPS, Trace
from cutaway.words import Text

ASKED: list[Case] = [
    ("poet", "今天天气", {"at": 2, "layer": 0, "head": 1}),
    ("translator", "好久不见。", {"side": "encoder", "at": -1}),
    ("masked", "今天[MASK]", {}),
]
STRUCTURES = [
    "post-norm pair", "pre-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "experts",
    "pair with experts", "BERT", "masked, pre-norm", "no head",
]  # fmt: skip
RunOf = Callable[..., Run]


def every(read: Run, **given: Any) -> Iterator[Flow]:
    """Every side and layer of a run."""
    both = read.source is not None and read.target is not None
    for side in ("encoder", "decoder") if both else (None,):
        for layer in range(2):
            yield flow(read, side=side, layer=layer, **given)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_stage_is_what_explain_says(run_of: RunOf, structure: str) -> None:
    read = run_of(structure)
    arithmetic = Arithmetic(read)
    for found in every(read, at=3, head=2):
        assert len({stage.name for stage in found.stages}) == len(found.stages) > 10
        for stage in found.stages:
            told = arithmetic.explain(stage.name, stage.index)
            assert stage.formula == told.formula, stage.name
            assert stage.value == pytest.approx(told.recorded, rel=1e-4, abs=1e-5), stage.name
            assert told.agrees and tuple(arithmetic.tensor(stage.name).shape) == stage.shape
            assert len(stage.dims) == len(stage.shape)
            if stage.formula:
                assert stage.meaning


def belonging(stage: Stage, whole: torch.Tensor, found: Flow, group: int) -> torch.Tensor:
    """The token's part of a tap's whole tensor, cut by hand."""
    match stage.dims[1:]:
        case ("T", "D") | ("T", "F") | ("T", "X") | ("T", "A"):
            return whole[0, found.position]
        case ("H", "T", "E") | ("H", "T", "S"):
            return whole[0, found.head, found.position]
        case ("K", "S", "E"):
            return whole[0, group]
        case ("T", "A", "D"):
            return whole[0, found.position]
    raise AssertionError(stage.dims)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_numbers_are_those_of_the_plain_model(run_of: RunOf, structure: str) -> None:
    read = run_of(structure)
    with torch.no_grad(), Trace(read.model, watch=["*"]) as trace:
        read.model.hidden(**read.inputs)
    groups = read.model.config.n_heads // (read.model.config.n_kv_heads or read.model.config.n_heads)
    for found in every(read, at=4, head=3):
        taps = [stage for stage in found.stages if stage.name in trace]
        assert len(taps) > 8
        for stage in taps:
            expected = belonging(stage, trace[stage.name], found, 3 // groups).float()
            torch.testing.assert_close(
                stage.values, expected.reshape(stage.values.shape), rtol=1e-4, atol=1e-5
            )
            if stage.norm is not None:
                assert stage.norm == pytest.approx(float(expected.norm()), rel=1e-4)
            if stage.columns:
                assert len(stage.columns) == stage.values.shape[1]
            if stage.rows:
                assert len(stage.rows) == stage.values.shape[0]
        patterns = [stage for stage in taps if stage.name.endswith(".pattern")]
        assert patterns
        for pattern in patterns:
            assert float(pattern.values.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_stream_is_measured_in_every_layer(run_of: RunOf, structure: str) -> None:
    read = run_of(structure)
    with torch.no_grad(), Trace(read.model, watch=["*"]) as trace:
        read.model.hidden(**read.inputs)
    found = flow(read, at=2)
    assert [each.layer for each in found.stream] == list(
        range(found.n_layers)
    ) and found.layer == found.n_layers - 1
    for each in found.stream:
        path = f"{found.side}.layers.{each.layer}"
        before, after = (trace[f"{path}.{name}"][0, 2].double() for name in ("resid_pre", "resid_post"))
        assert each.length == pytest.approx(float(after.norm()), rel=1e-4)
        assert each.cosine == pytest.approx(float(before @ after / before.norm() / after.norm()), abs=1e-5)
        block = read.model.get_submodule(path)
        added = {"self": each.attention, "cross": each.cross, "mlp": each.feed_forward}
        assert (each.cross is None) == (read.source is None or read.target is None)
        for kind, length in added.items():
            if length is None:
                continue
            out = trace[f"{path}.{'mlp' if kind == 'mlp' else f'{kind}_attn'}.out"][0, 2]
            if read.model.config.norm_order == "sandwich":
                with torch.no_grad():
                    out = block.get_submodule(f"{kind}_residual.out_norm")(out)
            assert length == pytest.approx(float(out.norm()), rel=1e-4)
        if read.model.config.norm_order == "pre":
            outs = [trace[f"{path}.{name}.out"][0, 2] for name in ("self_attn", "mlp")]
            outs += [trace[f"{path}.cross_attn.out"][0, 2]] if each.cross is not None else []
            torch.testing.assert_close(before.float() + sum(outs), after.float(), rtol=1e-3, atol=1e-4)


def names(found: Flow, part: str) -> list[str]:
    return [stage.name.rpartition(".")[2] for stage in found.stages if stage.part == part]


def test_each_model_is_wired_as_it_is(run_of: RunOf) -> None:
    attention = ["q", "k", "v", "scores", "scaled", "masked", "pattern", "z", "out"]
    pre = flow(run_of("pre-norm pair"), layer=1)
    assert names(pre, "attention") == ["resid_pre", "normed", *attention, "resid_mid"]
    assert names(pre, "cross") == ["normed", *attention, "resid_cross"]
    assert names(pre, "ffn") == ["normed", "pre", "hidden", "out", "resid_post"]
    assert names(pre, "output") == ["normed", "logits", "probabilities"]
    assert names(pre, "embedding") == ["target", "weight", "embed", "position", "resid_pre"]
    post = flow(run_of("post-norm pair"), layer=0)
    assert names(post, "attention") == [*attention, "sum", "resid_mid"]
    assert names(post, "ffn") == ["pre", "hidden", "out", "sum", "resid_post"]
    assert [each.name for each in flow(run_of("T5"), side="encoder").stages if each.part == "output"] == [
        "encoder.normed"
    ]
    turned = ["q", "k", "v", "q_rot", "k_rot", *attention[3:]]
    sandwich = flow(run_of("Gemma 2"), layer=0)
    assert names(sandwich, "attention") == ["normed", *turned, "out_norm", "resid_mid"]
    assert names(sandwich, "ffn") == ["normed", "pre", "up", "hidden", "out", "out_norm", "resid_post"]
    experts = flow(run_of("experts"), layer=0)
    assert names(experts, "ffn") == [
        "normed", "router", "expert_index", "expert_weight", "expert_out", "out", "resid_post",
    ]  # fmt: skip
    # a dense layer of the same model
    assert names(flow(run_of("experts"), layer=1), "ffn")[1:4] == ["pre", "up", "hidden"]
    assert names(flow(run_of("BERT")), "output") == ["normed", "dense", "norm", "logits", "probabilities"]
    assert "sum" in names(flow(run_of("BERT")), "embedding")
    assert names(flow(run_of("no head")), "output") == ["normed"]
    heads = flow(run_of("Llama", qk_norm=True), layer=1, at=2)
    assert names(heads, "attention")[2:7] == ["q_proj", "q", "k_proj", "k", "v"]


def joints(found: Flow) -> dict[Part, list[Joint]]:
    """Of each part how the values of the stream come about, in their order."""
    return {
        told.part: [each.joint for each in found.stages if each.part == told.part and each.joint]
        for told in found.parts
    }


def test_the_stream_is_told_from_what_branches_off(run_of: RunOf) -> None:
    pre = joints(flow(run_of("pre-norm pair"), layer=1))
    assert pre == {
        "embedding": ["added"], "attention": ["as it is", "added"], "cross": ["added"], "ffn": ["added"],
        "output": ["normalised"],
    }  # fmt: skip
    post = joints(flow(run_of("post-norm pair"), layer=0))
    assert post["attention"] == post["cross"] == post["ffn"] == ["added", "normalised"]
    assert post["output"] == ["as it is"]
    assert joints(flow(run_of("BERT")))["embedding"] == ["added", "normalised"]
    assert joints(flow(run_of("Llama")))["embedding"] == ["as it is"]
    assert joints(flow(run_of("Gemma 2")))["ffn"] == ["added"]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_what_is_read_and_written(run_of: RunOf, structure: str) -> None:
    read = run_of(structure)
    found = flow(read, at=1)
    stacks = {"encoder": read.source, "decoder": read.target}
    assert found.tokens == {name: tuple(each.pieces) for name, each in stacks.items() if each is not None}
    assert found.outcome == tuple(read.outcome.pieces) and found.piece == found.tokens[found.side][1]
    assert [told.part for told in found.parts] == list(dict.fromkeys(each.part for each in found.stages))
    for stage in found.stages:
        assert (stage.total is None) == (
            not stage.name.endswith(("pattern", "probabilities", "expert_weight"))
        )
        if stage.total is not None and not stage.name.endswith("weight"):
            assert stage.total == pytest.approx(1, abs=1e-5)
        assert len(stage.words) == (len(stage.columns) if stage.dims[-1] == "V" else 0)
        if stage.words:
            whole = read.forward()[0][1]
            assert whole[list(stage.words)].argmax() == 0


@pytest.mark.parametrize("structure", ["Llama", "post-norm pair"])
def test_norms_of_heads_and_what_they_read(run_of: RunOf, structure: str) -> None:
    read = run_of(structure, qk_norm=True)
    arithmetic = Arithmetic(read)
    for found in every(read, at=4, head=3):
        for stage in found.stages:
            told = arithmetic.explain(stage.name, stage.index)
            assert stage.value == pytest.approx(told.recorded, rel=1e-4, abs=1e-5), stage.name
            assert stage.formula == told.formula and tuple(arithmetic.tensor(stage.name).shape) == stage.shape


def test_grouped_queries_share_a_key_value_head(run_of: RunOf) -> None:
    read = run_of("Llama")
    keys = {
        head: next(each for each in flow(read, head=head).stages if each.name.endswith(".k"))
        for head in range(4)
    }
    assert [keys[head].index[1] for head in range(4)] == [0, 0, 1, 1]
    assert torch.equal(keys[0].values, keys[1].values) and not torch.equal(keys[1].values, keys[2].values)
    note = next(each.note for each in flow(read).stages if each.name.endswith(".scores"))
    assert "2 query heads share" in str(note)


def test_probabilities_end_the_way(run_of: RunOf) -> None:
    read = run_of("GPT-2")
    found = flow(read, at=1)
    last, plain = found.stages[-1], read.forward()[0][1].softmax(dim=-1)
    assert last.values[0, :12].tolist() == pytest.approx(plain.topk(12).values.tolist(), abs=1e-6)
    assert last.value == pytest.approx(float(plain[read.outcome.ids[1]]), abs=1e-6)
    assert len(last.columns) == len(last.values[0]) and last.index == (0, 1, read.outcome.ids[1])


def test_a_long_text_keeps_rows_and_no_squares(run_of: RunOf) -> None:
    read = run_of("GPT-2", length=28)
    found = flow(read, at=20)
    for stage in found.stages:
        assert stage.values.numel() <= 28 * max(24, 40)
        assert stage.values.untyped_storage().nbytes() <= 4 * 28 * 40
    assert all(math.isfinite(each.cosine) for each in found.stream)


def test_meanings_are_those_of_the_taps(run_of: RunOf) -> None:
    meant: dict[str, Text] = {
        stage.name.rpartition(".")[2]: stage.meaning for stage in flow(run_of("Gemma 2")).stages
    }
    for name in ("q", "pattern", "resid_mid"):
        assert meant[name] == TAPS[name][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"side": "encoder"}, "has no stack 'encoder'"),
        ({"layer": 3}, "there is no layer 3, expected 0 to 2"),
        ({"head": 4}, "there is no head 4, expected 0 to 3"),
        ({"at": 7}, "position 7 is not in the text"),
    ],
)
def test_what_is_not_there_is_refused(run_of: RunOf, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        flow(run_of("GPT-2"), **arguments)


# As it is asked for.


def test_one_pass(passes: Callable[[], int], poet: Path, translator: Path) -> None:
    for model in (poet, translator):
        read = run(load(model), "今天天气")
        passes()
        flow(read)
        assert passes() == 1


def test_the_page_goes_through_the_stages(cutaway: Command, translator: Path) -> None:
    asked = ("flow", "好久不见。", "-m", translator, "--at", "1", "--layer", "0")
    out = shown(cutaway, *asked)
    assert out.startswith("The way of token 1, ") and "post-norm" in out
    places = [out.index(title) for title in (
        "From the token to a vector", "Layer 0, head 0: decoder self-attention", "Layer 0, head 0: cross-attention",
        "Layer 0: feed-forward network", "After the last layer, 1",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "scores[h,t,s] = Σ_e q[h,t,e] · k[g,s,e]" in out
    html = page_of(cutaway, *asked)
    assert html.count("decoder.layers.0.") > 20 and "Σ_e q[h,t,e]" in html
    found = flow(run(load(translator), "好久不见。"), at=1, layer=0)
    given = result(cutaway, *asked)
    assert [each["name"] for each in given["stages"]] == [each.name for each in found.stages]
    assert "归一化" in shown_in_chinese(cutaway, *asked)


def test_refused_on_the_command_line(cutaway: Command, poet: Path) -> None:
    assert "no stack 'encoder'" in refused(cutaway, "flow", "好", "-m", poet, "--side", "encoder")


def test_a_model_without_words_has_a_way_too(cutaway: Command, headless: Path) -> None:
    assert "After the last layer, 1" in shown(cutaway, "flow", "今天", "-m", headless)


def test_the_bundled_translator_reads_and_writes() -> None:
    read = run(load(find("translate-zh-en")), "我们明天去北京。")
    reading, writing = flow(read, side="encoder", at=4), flow(read, at=5)
    assert reading.piece == "北" and reading.stages[-1].name == "encoder.normed"
    assert writing.piece == "▁Be" and writing.stages[-1].columns[0] == "i"
