"""`cutaway inspect MODEL TEXT --show VIEW`: every view on a bundled model, its JSON, its files, and bad input."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.cli.conftest import LINES, Run, saved

from cutaway import Tokenizer, load
from cutaway.cli.view_page import folded, labelled, nats, share
from cutaway.cli.view_request import View
from cutaway.cli.view_save import arrays, plain
from cutaway.cli.view_table import VIEWS
from cutaway.inspection.alignment.hypotheses import align
from cutaway.inspection.attention.patterns import patterns
from cutaway.inspection.changes.sweep import sweep
from cutaway.inspection.runs.run import run as prepare
from cutaway.text.display import width
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

TEXT = "好久不见。"
VERSE = "床前明月光"
GAP = "The cat sat on the [MASK]."
OFF = '{"op": "head", "side": "cross", "layer": "*", "head": "*"}'
CASES: dict[View, tuple[str, ...]] = {
    View.OVERVIEW: (TRANSLATOR, TEXT),
    View.ALIGN: (TRANSLATOR, TEXT),
    View.ATTENTION: (MASKED, GAP, "--side", "encoder", "--layer", "1", "--head", "2"),
    View.LENS: (POET, VERSE),
    View.NEURONS: (MASKED, GAP, "--layer", "1", "--top", "3"),
    View.NEIGHBOURS: (TRANSLATOR, "书", "--top", "4"),
    View.ANALOGY: (TRANSLATOR, "国王 - 男人 + 女人"),
    View.SVD: (POET, "--layer", "1", "--head", "2"),
    View.EXPLAIN: (POET, VERSE),
    View.SWEEP: (POET, VERSE, "--top", "3"),
    View.DIFF: (TRANSLATOR, TEXT, "--change", OFF),
}


def shown(cutaway: Run, view: View, *more: str, model: tuple[str, ...] = ()) -> str:
    found = cutaway("inspect", *(model or CASES[view]), "--show", view, *more)
    assert (found.code, found.err) == (0, "")
    assert max(map(width, found.out.splitlines())) <= 80
    return found.out


def result(cutaway: Run, *arguments: str) -> dict[str, object]:
    found = cutaway("inspect", *arguments, "--json")
    assert (found.code, found.err) == (0, "")
    read = json.loads(found.out)
    assert set(read) == {"model", "text", "view", "result"}
    return read["result"]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(LINES, "characters", None, min_count=1, template="<s> $A")
    return saved(
        tmp_path_factory.mktemp("mixture"),
        tokenizer,
        {"family": "decoder-only", "norm": "rmsnorm", "position": "rotary", "activation": "silu", "gated": True,
         "attn_bias": False, "mlp_bias": False, "eos_id": tokenizer.require("eos"),
         "bos_id": tokenizer.require("bos"), "max_len": 32, "n_experts": 4, "n_experts_per_token": 2},
    )  # fmt: skip


def test_every_view_has_a_case_here():
    assert set(VIEWS) == set(View) == {*CASES, View.EXPERTS}


def test_overview_is_what_a_text_alone_shows(cutaway: Run):
    run = prepare(load(find(TRANSLATOR)), TEXT)
    assert run.source is not None
    lines = cutaway("inspect", TRANSLATOR, TEXT).out.splitlines()
    assert lines[0] == f"{TRANSLATOR} reads {TEXT}"
    assert lines[1].split() == ["source", *run.source.pieces]
    assert lines[2].split() == ["writes", *run.outcome.pieces]
    assert max(map(width, lines)) <= 80
    strongest = sweep(run).ranking[0]
    row = next(place for place, line in enumerate(lines) if line.startswith("attention ")) + 2
    assert lines[row].split()[1:] == [f"{strongest.layer}.{strongest.head}", nats(strongest.effect)]


def test_overview_of_the_other_families(cutaway: Run):
    loaded = load(find(POET))
    logits, _ = prepare(loaded, VERSE, max_new_tokens=1).forward()
    expected = loaded.require_tokenizer().readable(int(logits[-1].argmax()))
    assert f"\nnext         {expected} {share(float(logits[-1].softmax(dim=-1).max()))}  " in shown(
        cutaway, View.OVERVIEW, model=(POET, VERSE)
    )
    assert "\ngap 6 " in shown(cutaway, View.OVERVIEW, model=(MASKED, GAP))


def test_align_tells_where_it_looked_and_what_it_depends_on(cutaway: Run, tmp_path: Path):
    saved_at = tmp_path / "align.safetensors"
    out = cutaway("inspect", TRANSLATOR, TEXT, "--show", "align", "--save", saved_at).out
    assert max(map(width, out.splitlines())) <= 80
    found = align(load(find(TRANSLATOR)), TEXT)
    for hypothesis in found.hypotheses:
        assert f"{hypothesis.score:.3f}   {hypothesis.text}" in out
    best = found.hypotheses[0].alignment
    assert best is not None and len(found.hypotheses) == 4
    arrays_of = load_file(saved_at)
    weights, effect = arrays_of["weights"], arrays_of["effect.effect"]
    torch.testing.assert_close(weights, best, atol=1e-4, rtol=0)
    lines = out.splitlines()
    row = lines[next(place for place, line in enumerate(lines) if line.startswith("token ")) + 2].split()
    source = found.source.pieces
    assert row[2] == source[int(weights[0].argmax())]
    assert row[6] == source[int(effect[0].argmax())]
    options = ("--target", "Yes.", "--layer", "2", "--head", "1")
    given = result(cutaway, TRANSLATOR, TEXT, "--show", "align", *options)
    assert given["search"] is None
    run = prepare(load(find(TRANSLATOR)), TEXT, target="Yes.")
    torch.testing.assert_close(torch.tensor(given["weights"]), patterns(run, "cross").of(2, 1))


def test_attention_of_one_head_and_of_all(cutaway: Run):
    out = shown(cutaway, View.ATTENTION)
    assert out.startswith("encoder attention, layer 1, head 2\n")
    assert "query down, key across;  weight at least  ░ 0.10" in out
    found = result(cutaway, *CASES[View.ATTENTION], "--show", "attention")
    weights, scores = found["patterns"], found["scores"]
    assert isinstance(weights, dict) and isinstance(scores, dict)
    values = torch.tensor(weights["values"])
    assert values.shape[:2] == (1, 1)
    torch.testing.assert_close(values.sum(dim=-1), torch.ones(values.shape[:3]))
    entropy = scores["scores"]["entropy"][0][0]
    assert next(line.split()[1] for line in out.splitlines() if line.startswith("1.2 ")) == f"{entropy:.2f}"
    everywhere = cutaway("inspect", TRANSLATOR, TEXT, "--show", "attention").out
    again = cutaway("inspect", POET, "明月明月明月", "--show", "attention").out
    assert " next   induct\n" in again and max(map(width, again.splitlines())) <= 80
    assert everywhere.startswith("What the heads of cross attention measure on this text\n")
    assert all(f"\n{layer}.{head} " in everywhere for layer in range(4) for head in range(4))


def test_lens_grid_and_column(cutaway: Run):
    lines = shown(cutaway, View.LENS).splitlines()
    found = result(cutaway, POET, VERSE, "--show", "lens")
    pieces = found["pieces"]
    assert isinstance(pieces, list)
    last = lines[3 + len(VERSE)].split()
    assert last == [VERSE[-1], *(layer[-1][0] for layer in pieces), pieces[-1][-1][0]]
    column = shown(cutaway, View.LENS, "--index", "-1", "--top", "2")
    assert column.startswith(f"Token {len(VERSE)}, {VERSE[-1]}: ")
    assert f"{pieces[-1][-1][0]} " in column.splitlines()[7]
    one = cutaway("inspect", POET, VERSE, "--show", "lens", "--layer", "1").out.splitlines()
    assert one[1].split() == ["reads", "layer", "1", "writes"]
    assert one[-1 - 4].split()[1] == pieces[2][-1][0]
    assert "\nApproximate: post-norm" in cutaway("inspect", MASKED, GAP, "--show", "lens").out


def test_neurons(cutaway: Run):
    out = shown(cutaway, View.NEURONS)
    assert out.startswith("Neurons of encoder layer 1 that write most at token 6, [MASK]\n")
    found = result(cutaway, *CASES[View.NEURONS], "--show", "neurons")
    neurons = found["neurons"]
    assert isinstance(neurons, list) and len(neurons) == 3
    row = out.splitlines()[3].split()
    assert row[0] == str(neurons[0]["number"])
    assert row[4] == neurons[0]["promotes"][0]["piece"]


def test_experts(cutaway: Run, mixture: Path):
    found = cutaway("inspect", mixture, "我爱机器", "--show", "experts", "--layer", "1")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("decoder layer 1: 2 of 4 experts for each token\n")
    routed = result(cutaway, str(mixture), "我爱机器", "--show", "experts")["layers"]
    assert isinstance(routed, list)
    for piece, chosen, weights in zip(
        "我爱机器", routed[1]["chosen"][1:], routed[1]["weights"][1:], strict=True
    ):
        pairs = [f"{expert} {share(weight)}" for expert, weight in zip(chosen, weights, strict=True)]
        assert f"\n{piece}      {'  '.join(pairs)} " in found.out


def test_neighbours_and_analogy(cutaway: Run):
    near = shown(cutaway, View.NEIGHBOURS)
    items = result(cutaway, *CASES[View.NEIGHBOURS], "--show", "neighbours")["items"]
    assert isinstance(items, list) and len(items) == 4
    for line, item in zip(near.splitlines()[3:7], items, strict=True):
        assert line.split()[:3] == [item["piece"], str(item["id"]), f"{item['value']:.3f}"]
    solved = shown(cutaway, View.ANALOGY)
    assert solved.startswith("国王 - 男人 + 女人: nearest in the embedding table\n")
    best = result(cutaway, *CASES[View.ANALOGY], "--show", "analogy")["answers"]
    assert isinstance(best, list)
    expected = cutaway(
        "inspect", TRANSLATOR, "国王 男人 女人", "--show", "analogy", "--target", best[1]["piece"]
    )
    row = next(line.split() for line in expected.out.splitlines() if line.startswith("expected"))
    assert row[3] == "2"  # without a, b, c


def test_svd_of_a_head_of_a_parameter_and_of_all(cutaway: Run):
    out = shown(cutaway, View.SVD)
    assert out.startswith("W_QK of decoder.layers.1.self_attn, head 2 (")
    assert "\nW_OV of decoder.layers.1.self_attn, head 2 (" in out
    name = "decoder.layers.0.mlp.down.weight"
    one = cutaway("inspect", POET, "--show", "svd", "--name", name).out
    matrix = dict(load(find(POET)).model.named_parameters())[name].detach().double()
    assert f"{float(torch.linalg.matrix_norm(matrix, 2)):.4g} " in one.splitlines()[2]
    everything = cutaway("inspect", POET, "--show", "svd").out
    assert f"   {name}\n" in everything and max(map(width, everything.splitlines())) <= 80


def test_explain(cutaway: Run):
    out = shown(cutaway, View.EXPLAIN)
    assert out.startswith("head.logits[0,") and "\nworked out " in out
    assert ", within the " in out
    pattern = "decoder.layers.0.self_attn.pattern"
    found = result(cutaway, POET, VERSE, "--show", "explain", "--name", pattern, "--index", "0,1,2,-1")
    assert found["recorded"] == found["result"] == 0  # a decoder does not see later tokens
    assert found["agrees"] is True
    operands = found["operands"]
    assert isinstance(operands, list) and None in operands[0]["values"]  # -inf of the mask
    first = cutaway("inspect", MASKED, GAP, "--show", "explain").out
    assert first.startswith("head.logits[0,6,")  # of the gap


def test_sweep(cutaway: Run):
    out = shown(cutaway, View.SWEEP)
    found = sweep(prepare(load(find(POET)), VERSE, max_new_tokens=1))
    listed = out[out.index("depends on most") :].splitlines()[3:6]
    assert [line.split() for line in listed] == [
        ["decoder", f"{each.layer}.{each.head}", nats(each.effect)] for each in found.ranking[:3]
    ]
    row = next(line.split() for line in out.splitlines() if line.startswith("layer 1 "))
    assert row[2:] == [nats(effect) for effect in found.effects["decoder"][1].tolist()]


def test_diff(cutaway: Run):
    out = shown(cutaway, View.DIFF)
    found = result(cutaway, *CASES[View.DIFF], "--show", "diff")
    base, changed = found["base"], found["changed"]
    assert isinstance(base, dict) and isinstance(changed, dict)
    assert base["text"] != changed["text"]
    assert f"\nwithout      {base['text']}\n" in out and f"\nwith         {changed['text']}\n" in out
    assert "encoder      residual stream does not move\n" in out
    assert "decoder      residual stream first moves in layer 0;" in out
    nothing = cutaway("inspect", TRANSLATOR, TEXT, "--show", "diff", "--change", "[]").out
    assert "the same, token by token" in nothing
    poem = cutaway("inspect", POET, VERSE, "--show", "diff", "--change", '{"op": "layer", "layer": 2}').out
    assert max(map(width, poem.splitlines())) <= 80


@pytest.mark.parametrize("ending", ["safetensors", "npz", "csv"])
def test_save_reads_back(cutaway: Run, tmp_path: Path, ending: str):
    out = tmp_path / f"sweep.{ending}"
    found = cutaway("inspect", POET, VERSE, "--show", "sweep", "--save", out)
    assert found.code == 0 and found.err.startswith(f"note: {out}: base, ")
    expected = sweep(prepare(load(find(POET)), VERSE, max_new_tokens=1))
    grid, sides = expected.effects["decoder"], [each.side for each in expected.ranking]
    if ending == "safetensors":
        torch.testing.assert_close(load_file(out)["effects.decoder"], grid)
        with safe_open(out, "pt") as file:
            about = file.metadata()
        assert about["view"] == "sweep" and json.loads(about["texts"])["ranking.side"] == sides
    elif ending == "npz":
        with np.load(out, allow_pickle=False) as file:
            np.testing.assert_allclose(file["effects.decoder"], grid.numpy())
            assert file["ranking.side"].tolist() == sides
    else:
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        values = [float(row["value"]) for row in rows if row["array"] == "effects.decoder"]
        np.testing.assert_allclose(values, grid.flatten().numpy())
        assert [row["value"] for row in rows if row["array"] == "ranking.side"] == sides


@pytest.mark.parametrize("view", CASES)
def test_every_result_can_be_saved(cutaway: Run, tmp_path: Path, view: View):
    out = tmp_path / "all.safetensors"
    assert cutaway("inspect", *CASES[view], "--show", view, "--save", out).code == 0
    assert load_file(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRANSLATOR, "--show", "align"), "--show align needs a text after the model"),
        ((TRANSLATOR, "好", "--show", "svd"), "--show svd is about the model alone"),
        (
            (POET, "好", "--show", "lens", "--head", "2"),
            "--head has no effect on --show lens; it goes with",
        ),
        ((TRANSLATOR, "--layer", "2"), "--layer has no effect without a text or --show"),
        ((TRANSLATOR, "--save", "x.npz"), "--save has no effect without a text or --show"),
        ((TRANSLATOR, "好", "--context", "4"), "--context goes with the model alone"),
        ((TRANSLATOR, "好", "--save", "x.pt"), "--save x.pt: ends in '.pt'"),
        ((TRANSLATOR, "好", "--save", "no/x.npz"), "--save no/x.npz: there is no folder no"),
        ((POET, "好", "--show", "diff"), "--show diff needs a change: --change '"),
        ((POET, "好", "--show", "diff", "--change", '{"op"'), "--change '{\"op\"' is no JSON: "),
        ((POET, "好", "--show", "diff", "--change", "3"), "--change: 3, expected an object such as"),
        ((POET, "好", "--show", "diff", "--change", '{"op": "hed"}'), "(did you mean 'head'?)"),
        ((POET, "好", "--show", "explain", "--index", "3"), "--index without --name"),
        (
            (POET, "好", "--show", "explain", "--name", "head.logits"),
            "name one number of it by --index",
        ),
        ((POET, "好", "--show", "explain", "--name", "head.logit", "--index", "0"), "'head.logits'?)"),
        ((POET, "好", "--show", "lens", "--index", "1,x"), "expected whole numbers with commas"),
        ((POET, "好", "--show", "lens", "--index", "1,2"), "expected one number: a token's place"),
        ((POET, "好", "--show", "lens", "--top", "0"), "--top is 0, expected at least 1"),
        ((MASKED, ""), "the text is empty"),
        (
            (POET, "好", "--show", "attention", "--layer", "9"),
            "layer 9 is not there: expected one of 0 to 3",
        ),
        ((POET, "好", "--show", "neurons", "--side", "cross"), "--side is cross, which is attention"),
        ((TRANSLATOR, "a b", "--show", "analogy"), "the text has 2 words, expected three"),
        ((TRANSLATOR, "书", "--show", "neighbours", "--name", "embed"), "(did you mean 'embedding'?)"),
        ((POET, "--show", "svd", "--layer", "1"), "a head is named by both --layer and --head"),
        ((POET, VERSE, "--to", "en"), "poet-zh is decoder-only: it writes no translation"),
        (
            (POET, VERSE, "--show", "sweep", "--side", "encoder"),
            "side is 'encoder' (did you mean 'decoder'?): a decoder-only model attends on decoder only",
        ),
        ((POET, VERSE, "--show", "experts"), "this model has no experts"),
        ((POET, VERSE, "--show", "align"), "expected encoder-decoder"),
        ((POET, VERSE, "--show", "leens"), "'leens' is not one of"),
    ],
)
def test_bad_input_is_told_in_a_line(cutaway: Run, arguments: tuple[str, ...], message: str):
    found = cutaway("inspect", *arguments)
    assert (found.code, found.out) == (2, "")
    assert message in found.err and "Traceback" not in found.err


def test_arrays_join_what_is_alike_and_keep_the_rest_apart():
    value = {
        "alike": [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}],
        "ragged": [{"x": torch.ones(2)}, {"x": torch.ones(3)}],
        "words": [["a", "b"], ["c", "d"]],
        "uneven": [["a"], ["b", "c"]],
        "flag": [True, False],
        "mixed": [1, 2.5],
        "nothing": None,
        "empty": [],
    }
    found = dict(arrays(value))
    assert list(found) == [
        "alike.n", "alike.text", "ragged.0.x", "ragged.1.x", "words", "uneven.0", "uneven.1", "flag", "mixed",
    ]  # fmt: skip
    assert (found["alike.text"], found["words"]) == (["a", "b"], [["a", "b"], ["c", "d"]])
    assert torch.equal(torch.as_tensor(found["alike.n"]), torch.tensor([1, 2]))
    assert torch.equal(torch.as_tensor(found["mixed"]), torch.tensor([1, 2.5], dtype=torch.float64))


def test_plain_values_are_json():
    value = {"t": torch.tensor([1.0, float("-inf")]), "i": (0, slice(None), slice(1, 3)), "f": float("nan")}
    assert plain(value) == {"t": [1.0, None], "i": [0, ":", "1:3"], "f": None}


def test_lines_are_folded_by_terminal_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert folded(["猫追狗", "ab", "狗"], 9) == ["猫追狗 ab", "狗"]
    assert folded([], 9) == [""]
    monkeypatch.setenv("COLUMNS", "40")
    labelled("tokens", ["字字字字字"] * 4)
    assert capsys.readouterr().out.splitlines() == [
        "tokens       字字字字字 字字字字字",
        "             字字字字字 字字字字字",
    ]
    assert (share(0.0), share(0.0001), share(0.5), nats(-0.001), nats(1)) == (
        "0.000",
        "<.001",
        "0.500",
        "0.00",
        "+1.00",
    )
