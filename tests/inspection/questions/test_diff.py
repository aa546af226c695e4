"""Two runs beside each other: each number against one that is computed another way."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from torch import Tensor, nn

from cutaway import CutawayError, Translator, find, load
from cutaway.decode.score import score_targets
from cutaway.inspection.changes.lists import edits
from cutaway.inspection.questions.diff import TokenEdit, diff, token_edits
from cutaway.inspection.runs import Run, run
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.block import Block
from cutaway.page.numbers import nats
from cutaway.zoo import MASKED, POET, TRANSLATOR

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    (
        "translator",
        "好久不见。",
        {
            "changes": [
                {"op": "head", "side": "cross", "layer": 1, "head": 0, "set": "mean"},
                {"op": "head", "side": "cross", "layer": 0, "head": 0, "set": "mean"},
            ],
            "target": "time",
        },
    ),
    ("poet", "今天天气", {"changes": [], "writing": False}),
]

RunOf = Callable[..., Run]
TEXT, VERSE = "好久不见。", "床前明月光"
OFF = '{"op": "head", "side": "cross", "layer": "*", "head": "*"}'
SKIPPED = '{"op": "layer", "layer": 2}'
FROM_OTHER = '{"op": "resid", "side": "encoder", "layer": 1, "token": 2, "from": "other"}'
STRUCTURES = ["post-norm pair", "T5", "Llama", "Gemma 2", "experts", "BERT"]


def head_of(run: Run) -> dict[str, object]:
    """A change of one head in block 1."""
    pair = isinstance(run.model, EncoderDecoder)
    return {"op": "head", **({"side": "decoder"} if pair else {}), "layer": 1, "head": 2}


def streams(run: Run, edit: bool) -> list[Tensor]:
    """The residual stream before and after each block of the last stack, by PyTorch's hooks: (T, D) each."""
    assert isinstance(run.model, EncoderDecoder | DecoderOnly) or run.source is not None
    stack = (
        run.model.encoder if not isinstance(run.model, EncoderDecoder | DecoderOnly) else run.model.decoder
    )
    seen: list[Tensor] = []
    handles = [stack.layers[0].register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0][0]))]
    for block in stack.layers:
        handles.append(block.register_forward_hook(lambda _module, _inputs, out: seen.append(out[0])))
    try:
        run.forward(edit=edits([head_of(run)], run) if edit else None)
    finally:
        for handle in handles:
            handle.remove()
    return seen


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_number(structure: str, run_of: RunOf) -> None:
    run = run_of(structure)
    found = diff(run, [head_of(run)], writing=False)
    base, changed = run.forward()[0], run.forward(edit=edits([head_of(run)], run))[0]
    ids = found.ids
    assert ids == run.outcome.ids and found.pieces == run.outcome.pieces
    for t, id in enumerate(ids):
        p, q = ([math.exp(x) for x in row[t].double().tolist()] for row in (base, changed))
        p, q = ([x / sum(row) for x in row] for row in (p, q))
        assert float(found.base_log_probs[t]) == pytest.approx(math.log(p[id]), abs=1e-5)
        assert float(found.changed_log_probs[t]) == pytest.approx(math.log(q[id]), abs=1e-5)
        divergence = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        assert float(found.divergence[t]) == pytest.approx(divergence, abs=1e-5)
    torch.testing.assert_close(found.difference, found.changed_log_probs - found.base_log_probs)
    *before, last = found.departures
    # the encoder is not touched
    assert all(each.first() is None for each in before)
    assert last.first() == 2
    for row, x, y in zip(last.relative, streams(run, edit=False), streams(run, edit=True), strict=True):
        expected = [float((b - a).norm() / a.norm()) for a, b in zip(x, y, strict=True)]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
    assert last.first(tolerance=1e9) is None
    assert (found.base, found.changed, found.token_edits) == (None, None, ())


@pytest.mark.parametrize("structure", STRUCTURES)
def test_no_changes_no_difference_to_the_bit(structure: str, run_of: RunOf) -> None:
    found = diff(run_of(structure), [], writing=False)
    assert not found.difference.any() and not found.divergence.any()
    assert not any(each.relative.any() for each in found.departures)


def test_what_is_written_without_changes_is_written_once_a_run() -> None:
    asked = run(load(find(TRANSLATOR)), TEXT)
    first, second = diff(asked, json.loads(f"[{OFF}]")), diff(asked, [])
    assert first.base is second.base
    assert second.changed == second.base


def test_a_sentence_says_what_the_changes_do(run_of: RunOf) -> None:
    asked = run(load(find(TRANSLATOR)), TEXT)
    for changes, begins in ([], "Nothing"), (json.loads(f"[{OFF}]"), "The model writes something else"):
        found = diff(asked, changes)
        assert str(found.told).startswith(begins)
        assert "dependence" in str(found.caveats[0])
    assert f"{-float(found.difference.sum()):.2f} nats less probable" in str(found.told)
    kept = diff(asked, [{"op": "temperature", "value": 0.9}])
    assert "writes the same" in str(kept.told) and "more probable" in str(kept.told)
    silent = diff(run_of("GPT-2"), [{"op": "scale"}], writing=False)
    assert "not asked to write" in str(silent.told)
    opened = diff(run_of("GPT-2"), [{"op": "mask", "set": "open"}] * 2, writing=False)
    assert len(opened.caveats) == 2


def test_a_change_in_the_encoder_is_met_in_the_decoder_after_its_first_block(run_of: RunOf) -> None:
    found = diff(run_of("pre-norm pair"), [{"op": "ffn", "side": "encoder", "layer": 2}], writing=False)
    assert [(each.side, each.first()) for each in found.departures] == [("encoder", 3), ("decoder", 1)]


def test_a_word_that_may_not_be_said_is_infinitely_far(run_of: RunOf) -> None:
    run = run_of("GPT-2")
    found = diff(run, [{"op": "token", "at": 2, "ban": [run.outcome.ids[2]]}], writing=False)
    assert found.changed_log_probs[2] == -math.inf and found.divergence[2] == math.inf
    assert found.difference.isfinite().sum() == len(run.outcome.ids) - 1


def test_masked_words_are_judged_by_what_the_base_puts_there(run_of: RunOf) -> None:
    run = run_of("BERT", mask_id=9)
    assert run.source is not None
    run.source.ids[3] = run.source.ids[6] = 9
    found = diff(run, [{"op": "layer", "layer": 0}])
    logits = run.forward()[0]
    assert [found.ids[3], found.ids[6]] == [int(logits[3].argmax()), int(logits[6].argmax())]
    assert found.base is not None and found.base.ids == found.ids
    assert [id for i, id in enumerate(found.ids) if i not in (3, 6)] == [
        id for i, id in enumerate(run.source.ids) if i not in (3, 6)
    ]
    assert found.pieces == [run.loaded.require_tokenizer().readable(id) for id in found.ids]


def test_steps_lead_from_one_text_to_the_other() -> None:
    base, changed = list("我们明天去北京。"), list("我明天要去上海。")
    steps = token_edits(base, changed)
    assert [piece for step in steps for piece in step.base_pieces] == base
    assert [piece for step in steps for piece in step.changed_pieces] == changed
    assert TokenEdit("delete", (1, 2), (1, 1), ("们",), ()) in steps
    assert TokenEdit("insert", (4, 4), (3, 4), (), ("要",)) in steps
    assert all((step.kind == "equal") == (step.base_pieces == step.changed_pieces) for step in steps)


def test_a_translation_under_a_change_beside_the_one_without() -> None:
    translator = run(load(find("translate-zh-en")), "我爱你。")
    model = translator.model
    assert isinstance(model, EncoderDecoder) and translator.source is not None
    found = diff(translator, [{"op": "head", "side": "cross", "layer": "*", "head": "*"}])
    assert found.base is not None and found.changed is not None
    assert found.base.text == Translator(translator.loaded).translate(["我爱你。"])[0].best.text
    assert found.changed.text != found.base.text
    forced = score_targets(model, [translator.source.ids], [translator.outcome.ids])[0]
    assert found.base_log_probs.tolist() == pytest.approx(forced, abs=1e-4)
    attentions = [block.cross_attn for block in model.decoder.layers if isinstance(block, Block)]
    kept = [attn.o_proj for attn in attentions]
    try:
        # what is left of a head that writes nothing is the bias
        for attn in attentions:
            setattr(attn, "o_proj", nn.Linear(attn.o_proj.in_features, attn.o_proj.out_features))
        with torch.no_grad():
            for attn, old in zip(attentions, kept, strict=True):
                attn.o_proj.weight.zero_()
                attn.o_proj.bias.copy_(old.bias)
        without = score_targets(model, [translator.source.ids], [translator.outcome.ids])[0]
    finally:
        for attn, old in zip(attentions, kept, strict=True):
            attn.o_proj = old
    assert found.changed_log_probs.tolist() == pytest.approx(without, abs=1e-4)
    again = diff(translator, [])
    assert again.base == again.changed and not again.difference.any()


@pytest.mark.parametrize(("structure", "expected"), [("Llama", 2), ("BERT", 2), ("no head", 2)])
def test_one_pass_with_and_one_without(
    structure: str, expected: int, run_of: RunOf, passes: Callable[[], int]
) -> None:
    this = run_of(structure)
    diff(this, [head_of(this)], writing=isinstance(this.model, EncoderOnly))
    assert passes() == expected
    diff(this, [{**head_of(this), "set": "mean"}], writing=False)
    # the mean is measured
    assert passes() == 3
    diff(this, [{**head_of(this), "set": "mean"}], writing=False)
    # once a run
    assert passes() == 2


def test_what_is_written_and_how_the_tokens_fare(cutaway: command.Run) -> None:
    out = shown(cutaway, "diff", TEXT, "--change", OFF)
    found = diff(run(load(find(TRANSLATOR)), TEXT), [json.loads(OFF)])
    assert found.base is not None and found.changed is not None
    assert f"\nwithout      {found.base.text}\n" in out and f"\nwith         {found.changed.text}\n" in out
    assert "encoder      residual stream does not move\n" in out
    assert "decoder      residual stream first moves in layer 0;" in out
    first = next(line.split() for line in out.splitlines() if line.startswith(f"{found.pieces[0]}  "))
    assert first[3:] == [nats(float(found.difference[0])), f"{float(found.divergence[0]):.3f}"]
    assert "the same, token by token" in shown(cutaway, "diff", TEXT, "--change", "[]")


def test_in_chinese_and_as_a_page(cutaway: command.Run) -> None:
    out = shown_in_chinese(cutaway, "diff", VERSE, "-m", POET, "--change", SKIPPED)
    assert "\n解码器       残差流从第 2 层" in out
    gap = shown(
        cutaway, "diff", "a [MASK]", "-m", MASKED, "--change", '{"op": "layer", "layer": 1}', lang="zh"
    )
    assert "以整段文字为条件" in gap
    html = page_of(cutaway, "diff", VERSE, "-m", POET, "--change", SKIPPED)
    assert "How far the residual stream of the decoder has moved" in html


def test_the_vector_of_a_model_without_output_head(cutaway: command.Run, headless: Path) -> None:
    change = '{"op": "head", "side": "encoder", "layer": 0, "head": 0}'
    out = shown(cutaway, "diff", "Long time no see.", "-m", headless, "--change", change)
    found = diff(run(load(headless), "Long time no see."), [json.loads(change)])
    assert found.vector is not None
    assert f"\n1 − cosine   {found.vector.distance:.4g}\n" in out
    shown_in_chinese(cutaway, "diff", "好久不见。", "-m", headless, "--change", change)


def test_a_residual_taken_from_another_text(cutaway: command.Run, tmp_path: Path) -> None:
    """Activation patching, and the list of changes as it was written, in JSON and in a file."""
    asked = ("diff", "我爱你。", "--other", "我恨你。", "--change", FROM_OTHER)
    found = result(cutaway, *asked)
    assert found["changes"] == [json.loads(FROM_OTHER)]
    loaded = load(find(TRANSLATOR))
    this, other = run(loaded, "我爱你。"), run(loaded, "我恨你。")
    expected = diff(this, FROM_OTHER.join("[]"), other=other)
    assert expected.changed is not None and found["changed"]["text"] == expected.changed.text
    assert found["divergence"] == pytest.approx(expected.divergence.tolist(), abs=1e-6)
    assert max(found["divergence"]) > 0.1
    csv, arrays = tmp_path / "diff.csv", tmp_path / "diff.safetensors"
    assert cutaway("inspect", *asked, "--save", csv).code == 0
    assert "\nchanges.op,0,,resid\n" in csv.read_text(encoding="utf-8").replace(",,,", ",,")
    assert cutaway("inspect", *asked, "--save", arrays).code == 0
    assert load_file(arrays)["divergence"].tolist() == pytest.approx(expected.divergence.tolist(), abs=1e-6)
    with pytest.raises(CutawayError, match="give that text as other"):
        diff(this, [json.loads(FROM_OTHER)])
    with pytest.raises(CutawayError, match="other has no effect"):
        diff(this, [json.loads(OFF)], other=other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((), "cutaway inspect diff needs --change; see cutaway inspect diff --help"),
        (("--change", '{"op"'), "not valid JSON: Expecting ':' delimiter (character 6)"),
        (("--change", "9" * 5_000), "not valid JSON: a number has thousands of digits"),
        (("--change", "3"), "changes[0] is 3, expected an object such as"),
        (("--change", '{"op": "hed"}'), "(did you mean 'head'?)"),
        (
            ("--change", SKIPPED, "--change", '{"op": "layer", "layer": 9}'),
            "changes[1] (layer): there is no layer 9",
        ),
    ],
)
def test_what_is_refused(cutaway: command.Run, change: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, "diff", "好", "-m", POET, *change)


def test_an_open_mask_is_told_of(cutaway: command.Run) -> None:
    opened, said = '{"op": "mask", "set": "open"}', "With the mask open, a token sees itself"
    assert said in shown(cutaway, "diff", TEXT, "--change", opened)
    assert said not in shown(cutaway, "diff", TEXT, "--change", OFF)


def test_the_command_asks_the_same_again(cutaway: command.Run) -> None:
    given = (
        "diff",
        TEXT,
        "--no-writing",
        "--change",
        OFF,
        "--change",
        SKIPPED.replace("{", '{"side": "decoder", '),
    )
    python = cutaway("inspect", *given, "--python").out
    scope: dict[str, object] = {}
    exec(python, scope)
    found = result(cutaway, *given)
    assert found["base"] is None and len(found["changes"]) == 2
    assert getattr(scope["result"], "ids") == found["ids"]
