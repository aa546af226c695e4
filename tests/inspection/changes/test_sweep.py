"""Every head off in turn: the numbers of one full forward pass a head, and what is not computed again."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch

from cutaway import CutawayError, find, load
from cutaway.inspection.changes.making import edits
from cutaway.inspection.changes.sweep import stack_from, sweep
from cutaway.inspection.runs import Run, run
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.block import Block

RunOf = Callable[..., Run]
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
    found = sweep(run, sides=["cross"], set="mean")
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
    assert calls == [2, 3, 4]  # once for the base, then once for each layer up to their own


def test_the_rest_of_a_stack_is_its_own_forward_over_the_same_modules(run_of: RunOf) -> None:
    run = run_of("Gemma 2", window_layers=[1])
    model = run.model
    assert isinstance(model, DecoderOnly)
    names = ["decoder.layers.1.resid_pre", "decoder.normed"]
    _, trace = run.forward(names)
    rest = stack_from(model.decoder, 1)
    assert [id(a) for a in rest.layers] == [id(b) for b in list(model.decoder.layers)[1:]]
    assert len(model.decoder.layers) == 3 and model.decoder.window_layers == {1} and rest.window_layers == {0}
    with torch.no_grad():
        again = rest(trace[names[0]], torch.arange(7)[None])
    assert torch.equal(again, trace[names[1]])


def test_progress_is_told_and_may_end_it(run_of: RunOf) -> None:
    run = run_of("post-norm pair")
    seen: list[tuple[int, int]] = []
    sweep(run, observe=lambda done, of: seen.append((done, of)))
    assert seen == [(i, 8) for i in range(1, 9)]

    def enough(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(run, observe=enough)
    torch.testing.assert_close(run.forward()[0], run.forward()[0])


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    with pytest.raises(CutawayError, match=r"side is 'cross'.*expected one of dec"):
        sweep(run_of("GPT-2"), sides=["cross"])
    with pytest.raises(CutawayError, match="sides is empty, expected one or more of dec"):
        sweep(run_of("GPT-2"), sides=[])


def test_a_sweep_of_the_bundled_translator() -> None:
    translator = run(load(find("translate-zh-en")), "我爱你。")
    found = sweep(translator, sides=["cross"])
    rows = torch.arange(len(translator.outcome))
    base = translator.forward()[0].double().log_softmax(dim=-1)[rows, translator.outcome.ids].sum()
    for each in (found.ranking[0], found.ranking[-1]):
        change = {"op": "head", "side": each.side, "layer": each.layer, "head": each.head}
        logits = translator.forward(edit=edits([change], translator))[0].double().log_softmax(dim=-1)
        assert each.effect == pytest.approx(
            float(base - logits[rows, translator.outcome.ids].sum()), abs=1e-4
        )
    assert found.ranking[0].effect > 0.1
