"""Every head off in turn: the numbers of one full forward pass a head, and what is not computed again."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, shown, shown_in_chinese

from cutaway import find, load
from cutaway.inspection.changes.lists import edits
from cutaway.inspection.questions.sweep import sweep
from cutaway.inspection.runs import Run, run
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.block import Block
from cutaway.page.numbers import nats
from cutaway.zoo import POET

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("headless", "今天很好。", {"set": "mean"}),
]

RunOf = Callable[..., Run]
VERSE = "床前明月光"
CASES = [
    ("post-norm pair", {}), ("T5", {}), ("Llama", {}), ("Gemma 2", {}), ("experts", {}), ("BERT", {}),
    ("GPT-2", {"position": "alibi"}),
]  # fmt: skip
STRUCTURES = pytest.mark.parametrize(("structure", "settings"), CASES, ids=lambda value: str(value))


def total(run: Run, model: torch.nn.Module) -> float:
    """Log-probability of the run's outcome in one full forward pass."""
    with torch.no_grad():
        logits = model(**run.inputs)[0].double()
    return float(logits.log_softmax(dim=-1)[torch.arange(len(run.outcome)), run.outcome.ids].sum())


def without(run: Run, side: str, layer: int, head: int) -> float:
    """The same, of a copy whose output matrix has no part of that head."""
    model = deepcopy(run.model)
    stack = (
        model.encoder
        if side == "encoder" and not isinstance(model, DecoderOnly)
        else getattr(model, "decoder")
    )
    block = stack.layers[layer]
    assert isinstance(block, Block)
    attn = block.cross_attn if side == "cross" else block.self_attn
    with torch.no_grad():
        attn.o_proj.weight[:, head * attn.d_head : (head + 1) * attn.d_head] = 0
    return total(run, model)


@STRUCTURES
def test_the_numbers_are_those_of_full_passes(structure: str, settings: dict, run_of: RunOf) -> None:
    run = run_of(structure, **settings)
    found = sweep(run)
    base = total(run, run.model)
    assert found.base == pytest.approx(base, abs=1e-4)
    config = run.model.config
    pair = isinstance(run.model, EncoderDecoder)
    assert list(found.effects) == (
        ["encoder", "decoder", "cross"] if pair else ["encoder" if run.target is None else "decoder"]
    )
    for side, grid in found.effects.items():
        n_layers = config.encoder_layers if side == "encoder" and pair else config.n_layers
        assert grid.shape == (n_layers, config.n_heads)
        expected = [
            [base - without(run, side, layer, head) for head in range(config.n_heads)]
            for layer in range(n_layers)
        ]
        torch.testing.assert_close(grid, torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=1e-4)
        assert grid.abs().max() > 2e-3
    falls = [each.effect for each in found.ranking]
    assert falls == sorted(falls, reverse=True) and len(falls) == sum(
        g.numel() for g in found.effects.values()
    )
    best = found.ranking[0]
    assert float(found.effects[best.side][best.layer, best.head]) == best.effect


def test_heads_at_their_mean_are_the_same_change(run_of: RunOf) -> None:
    run = run_of("pre-norm pair")
    found = sweep(run, side="cross", set="mean")
    assert list(found.effects) == ["cross"]
    base = run.forward()[0].double().log_softmax(dim=-1)
    rows = torch.arange(len(run.outcome))
    for layer, head in ((0, 0), (1, 3), (2, 1)):
        change = {"op": "head", "side": "cross", "layer": layer, "head": head, "set": "mean"}
        logits = run.forward(edit=edits([change], run))[0].double().log_softmax(dim=-1)
        effect = float((base - logits)[rows, run.outcome.ids].sum())
        assert float(found.effects["cross"][layer, head]) == pytest.approx(effect, abs=1e-4)


def test_blocks_before_the_changed_one_are_not_computed_again(run_of: RunOf) -> None:
    run = run_of("Llama")
    assert isinstance(run.model, DecoderOnly)
    calls = [0] * 3
    handles = []
    for i, block in enumerate(run.model.decoder.layers):

        def count(*_: object, i: int = i) -> None:
            calls[i] += 1

        handles.append(block.register_forward_pre_hook(count))
    sweep(run)
    for handle in handles:
        handle.remove()
    # once for the base, then once for each layer up to their own
    assert calls == [2, 3, 4]


def test_a_stack_goes_on_from_a_block(run_of: RunOf) -> None:
    run = run_of("Gemma 2", window_layers=[1])
    model = run.model
    assert isinstance(model, DecoderOnly)
    names = ["decoder.layers.1.resid_pre", "decoder.normed"]
    _, trace = run.forward(names)
    with torch.no_grad():
        again = model.decoder(trace[names[0]], torch.arange(7)[None], first=1)
    assert torch.equal(again, trace[names[1]])


def test_progress_is_told_and_may_end_it(run_of: RunOf) -> None:
    run = run_of("post-norm pair")
    seen: list[tuple[int, int]] = []
    sweep(run, progress=lambda _, done, of: seen.append((done, of)))
    assert seen == [(i, 8) for i in range(1, 9)]

    def enough(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(run, progress=enough)
    assert not run.model.training and torch.equal(run.forward()[0], run.forward()[0])


def test_a_sweep_of_the_bundled_translator() -> None:
    translator = run(load(find("translate-zh-en")), "我爱你。")
    found = sweep(translator, side="cross")
    rows = torch.arange(len(translator.outcome))
    base = translator.forward()[0].double().log_softmax(dim=-1)[rows, translator.outcome.ids].sum()
    for each in (found.ranking[0], found.ranking[-1]):
        change = {"op": "head", "side": each.side, "layer": each.layer, "head": each.head}
        logits = translator.forward(edit=edits([change], translator))[0].double().log_softmax(dim=-1)
        assert each.effect == pytest.approx(
            float(base - logits[rows, translator.outcome.ids].sum()), abs=1e-4
        )
    assert found.ranking[0].effect > 0.1


def test_the_grid_and_the_ranking(cutaway: command.Run) -> None:
    out = shown(cutaway, "sweep", VERSE, "-m", POET, "--top", "3")
    assert out.startswith("decoder self-attention: what the output loses without each head (nats)\n")
    found = sweep(run(load(find(POET)), VERSE), top=3)
    listed = out[out.index("depends on most") :].splitlines()[3:6]
    assert [line.split()[:3] for line in listed] == [
        ["decoder", f"{each.layer}.{each.head}", nats(each.effect)] for each in found.heads
    ]
    row = next(line.split() for line in out.splitlines() if line.startswith("1 "))
    assert row[1:] == [nats(effect) for effect in found.effects["decoder"][1].tolist()]
    only = shown(cutaway, "sweep", "好", "--side", "cross")
    assert "cross-attention: " in only and "encoder self" not in only


def test_in_chinese_and_as_a_page(cutaway: command.Run) -> None:
    out = shown_in_chinese(cutaway, "sweep", "好")
    for side in ("编码器自注意力", "解码器自注意力", "交叉注意力"):
        assert f"{side}：" in out
    html = page_of(cutaway, "sweep", "好", lang="zh")
    assert html.count("<figure data-values") == 3


def test_the_unit_of_a_model_without_output_head(cutaway: command.Run, headless: Path) -> None:
    out = shown(cutaway, "sweep", "Long time no see.", "-m", headless)
    first = sweep(run(load(headless), "Long time no see.")).ranking[0]
    assert "1 minus the cosine between the text's vector" in out
    listed = out[out.index("depends on most") :].splitlines()[3].split()
    assert listed[:3] == ["encoder", f"{first.layer}.{first.head}", nats(1000 * first.effect)]


def test_saved_and_refused(cutaway: command.Run, tmp_path: Path) -> None:
    path = tmp_path / "sweep.safetensors"
    assert cutaway("inspect", "sweep", VERSE, "-m", POET, "--save", path).code == 0
    assert load_file(path)["effects.decoder"].shape == (4, 4)
    told = refused(cutaway, "sweep", VERSE, "-m", POET, "--side", "encoder")
    assert "side is 'encoder'" in told and "this decoder-only model attends on decoder only" in told
    assert "top is 0, expected at least 1" in refused(cutaway, "sweep", VERSE, "-m", POET, "--top", "0")
