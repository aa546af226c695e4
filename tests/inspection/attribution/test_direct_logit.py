"""Shares of a logit sum to it, and each is what the logit loses in a model whose scales are really held."""

from collections.abc import Callable
from html import escape
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import CutawayError, find, load
from cutaway.inspection.attribution.direct_logit import LogitAttribution, attribute_logit
from cutaway.inspection.attribution.frozen_path import frozen_path
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Matrix
from cutaway.page.locale import said

STRUCTURES = [
    "pre-norm pair", "post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "experts", "BERT",
    "pair with experts", "masked, pre-norm",
]  # fmt: skip


def zero_row(dim: int, index: int) -> Callable[[Tensor], Tensor]:
    def edit(x: Tensor) -> Tensor:
        x = x.clone()
        x.select(dim, index).zero_()
        return x

    return edit


def share(found: LogitAttribution, kind: str, place: str, number: int | None = None) -> float:
    values = [c.share for c in found.components if (c.kind, c.place, c.number) == (kind, place, number)]
    assert len(values) == 1, (kind, place, number)
    return values[0]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_shares_sum_to_the_logit_of_every_position_and_token(
    run_of: Callable[..., Run], structure: str
) -> None:
    read = run_of(structure)
    logits, _ = read.forward()
    cap = read.model.config.logit_softcap
    for position in (0, 3, -1):
        for token in (None, 7):
            found = attribute_logit(read, position, token)
            assert found.token_id == (read.outcome.ids[position] if token is None else 7)
            assert found.model_logit == float(logits[position, found.token_id])
            before = found.logit if cap is None else float(cap * torch.tensor(found.logit / cap).tanh())
            assert before == pytest.approx(found.model_logit, rel=1e-5)
            size = sum(abs(component.share) for component in found.components)
            assert sum(component.share for component in found.components) == pytest.approx(
                found.logit, rel=1e-4, abs=1e-6 * size
            )
            assert found.difference == pytest.approx(0, abs=1e-6 * size)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_share_is_what_the_logit_loses_where_all_scales_are_held(
    run_of: Callable[..., Run], held_model: Callable[[Run], Any], structure: str
) -> None:
    read, position, token = run_of(structure), 4, 11
    found = attribute_logit(read, position, token)
    held = held_model(read)
    whole = held.logits({})[position, token]
    side = found.side
    size = sum(abs(component.share) for component in found.components) / len(found.components)

    def agrees(value: float, lesser: Tensor) -> None:
        assert value == pytest.approx(float(whole - lesser[position, token]), rel=1e-3, abs=1e-3 * size)

    embedding = "target_embed" if hasattr(read.model, "target_embed") else "embed"
    for kind, tap in (("token", "embed"), ("position", "position")):
        if any(component.kind == kind for component in found.components):
            agrees(share(found, kind, embedding), held.logits({f"{embedding}.{tap}": torch.zeros_like}))
    for layer in (0, 2):
        for part in ("self_attn", "cross_attn"):
            name = f"{side}.layers.{layer}.{part}"
            for head in (0, 3) if f"{name}.out" in held.outs else ():
                gone = held.written(f"{name}.out", {f"{name}.z": zero_row(1, head)})
                agrees(share(found, "head", name, head), held.logits({}, {f"{name}.out": gone}))
        name = f"{side}.layers.{layer}.mlp"
        if read.model.config.n_experts:
            experts = [c.number for c in found.components if c.kind == "expert" and c.place == name]
            assert len(experts) == read.model.config.n_experts_per_token
            for expert in experts:
                module = f"{name}.experts.{expert}.out"
                gone = held.written(f"{name}.out", {module: torch.zeros_like})
                agrees(share(found, "expert", name, expert), held.logits({}, {f"{name}.out": gone}))
        else:
            gone = held.outs[f"{name}.out"][0]
            agrees(share(found, "feed-forward", name), held.logits({}, {f"{name}.out": gone}))


def test_every_component_is_there_once(run_of: Callable[..., Run]) -> None:
    found = attribute_logit(run_of("post-norm pair"), 2)
    kinds = [component.kind for component in found.components]
    assert kinds.count("head") == 3 * 2 * 4
    assert kinds.count("attention bias") == kinds.count("norm bias") - 3 == 6
    assert kinds.count("feed-forward") == 3
    assert [kinds.count(kind) for kind in ("token", "position", "segment", "output bias")] == [1, 1, 0, 1]
    assert len(found.frozen) == 9 and "decoder.layers.1.cross_residual.norm" in found.frozen
    assert found.approximate is not None and "post-norm" in found.approximate.en
    assert attribute_logit(run_of("GPT-2")).frozen == ("decoder.norm",)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_page_shows_every_share_of_a_layer(run_of: Callable[..., Run], structure: str) -> None:
    found = attribute_logit(run_of(structure), 4, 11)
    page = found.page()
    (grid,) = (block for block in page.blocks if isinstance(block, Matrix))
    for layer, row in zip(grid.rows, grid.values.tolist(), strict=True):
        mine = [each for each in found.components if str(each.layer) == layer]
        assert sum(row) == pytest.approx(sum(each.share for each in mine), abs=1e-9)
        heads = [value for name, value in zip(grid.columns, row, strict=True) if said(name, "en")[0] in "hsc"]
        assert heads == pytest.approx([each.share for each in mine if each.kind == "head"])
    assert escape(said(page.title, "zh")) in found.to_html("zh") and found.to_svg("zh").startswith("<svg ")
    assert ("capped" in found.to_text()) == (run_of(structure).model.config.logit_softcap is not None)


@pytest.mark.parametrize("structure", ["Llama", "GPT-2", "BERT"])
def test_against_another_token_shares_sum_to_the_difference_of_log_probabilities(
    run_of: Callable[..., Run], structure: str
) -> None:
    read = run_of(structure)
    scores = read.forward()[0].double().log_softmax(dim=-1)
    found = attribute_logit(read, 5, 20, against=30)
    assert found.total == pytest.approx(float(scores[5, 20] - scores[5, 30]), rel=1e-4)
    other = attribute_logit(read, 5, 30)
    one = attribute_logit(read, 5, 20)
    for c, a, b in zip(found.components, one.components, other.components, strict=True):
        assert c.share == pytest.approx(a.share - b.share, abs=1e-9)


def test_only_one_position_is_kept(run_of: Callable[..., Run]) -> None:
    read = run_of("post-norm pair", length=7)
    trace = frozen_path(read, 2).trace
    assert len(trace.calls) > 20
    for (value,) in trace.calls.values():
        assert value.untyped_storage().nbytes() == 4 * read.model.config.d_model


def test_what_is_not_there_is_refused(run_of: Callable[..., Run]) -> None:
    read = run_of("GPT-2")
    with pytest.raises(
        CutawayError, match="position 7 is not in the text, which has 7 tokens: expected 0 to 6"
    ):
        attribute_logit(read, 7)
    with pytest.raises(CutawayError, match="token id -1 is not in the vocabulary"):
        attribute_logit(read, 0, -1)
    with pytest.raises(CutawayError, match="no output head"):
        attribute_logit(run_of("no head"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("translate-zh-en", "我们明天去北京。"),
        ("poet-zh", "床前明月光，"),
        ("bert-tiny", "She was [MASK] happy."),
    ],
)
def test_bundled_models_add_up(name: str, text: str) -> None:
    read = run(load(find(name)), text)
    found = attribute_logit(read, 2)
    assert found.total == pytest.approx(found.model_logit, rel=1e-4)
    assert found.token_id == read.outcome.ids[2]
    assert found.model_logit == float(read.forward()[0][2, found.token_id])
