"""Two runs beside each other: each number against one that is computed another way."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from cutaway import Translator, find, load
from cutaway.decode.score import score_targets
from cutaway.inspection.changes.comparison import TokenEdit, compare, token_edits
from cutaway.inspection.changes.making import edits
from cutaway.inspection.runs import Run, run
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.block import Block

RunOf = Callable[..., Run]
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
def test_every_number_of_a_comparison(structure: str, run_of: RunOf) -> None:
    run = run_of(structure)
    found = compare(run, [head_of(run)], writing=False)
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
    assert all(each.first() is None for each in before)  # the encoder is not touched
    assert last.first() == 2
    for row, x, y in zip(last.relative, streams(run, edit=False), streams(run, edit=True), strict=True):
        expected = [float((b - a).norm() / a.norm()) for a, b in zip(x, y, strict=True)]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
    assert last.first(tolerance=1e9) is None
    assert (found.base, found.changed, found.token_edits) == (None, None, ())


@pytest.mark.parametrize("structure", STRUCTURES)
def test_no_changes_no_difference_to_the_bit(structure: str, run_of: RunOf) -> None:
    found = compare(run_of(structure), [], writing=False)
    assert not found.difference.any() and not found.divergence.any()
    assert not any(each.relative.any() for each in found.departures)


def test_a_change_in_the_encoder_is_met_in_the_decoder_after_its_first_block(run_of: RunOf) -> None:
    found = compare(run_of("pre-norm pair"), [{"op": "ffn", "side": "encoder", "layer": 2}], writing=False)
    assert [(each.side, each.first()) for each in found.departures] == [("encoder", 3), ("decoder", 1)]


def test_a_word_that_may_not_be_said_is_infinitely_far(run_of: RunOf) -> None:
    run = run_of("GPT-2")
    found = compare(run, [{"op": "token", "at": 2, "ban": [run.outcome.ids[2]]}], writing=False)
    assert found.changed_log_probs[2] == -math.inf and found.divergence[2] == math.inf
    assert found.difference.isfinite().sum() == len(run.outcome.ids) - 1


def test_masked_words_are_judged_by_what_the_base_puts_there(run_of: RunOf) -> None:
    run = run_of("BERT", mask_id=9)
    assert run.source is not None
    run.source.ids[3] = run.source.ids[6] = 9
    found = compare(run, [{"op": "layer", "layer": 0}])
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
    found = compare(translator, [{"op": "head", "side": "cross", "layer": "*", "head": "*"}])
    assert found.base is not None and found.changed is not None
    assert found.base.text == Translator(translator.loaded).translate(["我爱你。"])[0].best.text
    assert found.changed.text != found.base.text
    forced = score_targets(model, [translator.source.ids], [translator.outcome.ids])[0]
    assert found.base_log_probs.tolist() == pytest.approx(forced, abs=1e-4)
    attentions = [block.cross_attn for block in model.decoder.layers if isinstance(block, Block)]
    kept = [attn.o_proj for attn in attentions]
    try:
        for attn in attentions:  # what is left of a head that writes nothing is the bias
            attn.o_proj = nn.Linear(attn.o_proj.in_features, attn.o_proj.out_features)
        with torch.no_grad():
            for attn, old in zip(attentions, kept, strict=True):
                attn.o_proj.weight.zero_()
                attn.o_proj.bias.copy_(old.bias)
        without = score_targets(model, [translator.source.ids], [translator.outcome.ids])[0]
    finally:
        for attn, old in zip(attentions, kept, strict=True):
            attn.o_proj = old
    assert found.changed_log_probs.tolist() == pytest.approx(without, abs=1e-4)
    again = compare(translator, [])
    assert again.base == again.changed and not again.difference.any()
