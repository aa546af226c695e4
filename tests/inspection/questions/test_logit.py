"""Shares of a logit sum to it, and each is what the logit loses in a model whose scales are really held."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from torch import Tensor

from cutaway import CutawayError, find, load
from cutaway.inspection.questions.logit import Logit, logit
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Matrix

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("poet", "今天天气", {"token": 20, "against": "好"}),
]

RunOf = Callable[..., Run]
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


def share(found: Logit, kind: str, place: str, number: int | None = None) -> float:
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
            found = logit(read, at=position, token=token)
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
    found = logit(read, at=position, token=token)
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
    found = logit(run_of("post-norm pair"), at=2)
    kinds = [component.kind for component in found.components]
    assert kinds.count("head") == 3 * 2 * 4
    assert kinds.count("attention bias") == kinds.count("norm bias") - 3 == 6
    assert kinds.count("feed-forward") == 3
    assert [kinds.count(kind) for kind in ("token", "position", "segment", "output bias")] == [1, 1, 0, 1]
    assert len(found.frozen) == 9 and "decoder.layers.1.cross_residual.norm" in found.frozen
    assert found.approximate is not None and "post-norm" in found.approximate.said("en")
    assert logit(run_of("GPT-2")).frozen == ("decoder.norm",)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_page_shows_every_share_of_a_layer(run_of: RunOf, structure: str) -> None:
    found = logit(run_of(structure), at=4, token=11)
    (grid,) = (block for block in found.page().blocks if isinstance(block, Matrix))
    for layer, row in zip(grid.rows, grid.values.tolist(), strict=True):
        mine = [each for each in found.components if str(each.layer) == layer]
        assert sum(row) == pytest.approx(sum(each.share for each in mine), abs=1e-9)
        heads = [value for name, value in zip(grid.columns, row, strict=True) if str(name)[0] in "hsc"]
        assert heads == pytest.approx([each.share for each in mine if each.kind == "head"])
    assert ("\ncapped " in found.to_text()) == (run_of(structure).model.config.logit_softcap is not None)


@pytest.mark.parametrize("structure", ["Llama", "GPT-2", "BERT"])
def test_against_another_token_shares_sum_to_the_difference_of_log_probabilities(
    run_of: RunOf, structure: str
) -> None:
    read = run_of(structure)
    scores = read.forward()[0].double().log_softmax(dim=-1)
    found = logit(read, at=5, token=20, against=30)
    assert found.total == pytest.approx(float(scores[5, 20] - scores[5, 30]), rel=1e-4)
    one, other = logit(read, at=5, token=20), logit(read, at=5, token=30)
    for c, a, b in zip(found.components, one.components, other.components, strict=True):
        assert c.share == pytest.approx(a.share - b.share, abs=1e-9)


def test_what_is_not_there_is_refused(run_of: RunOf) -> None:
    read = run_of("GPT-2")
    for options, message in (
        ({"at": 7}, "position 7 is not in the text, which has 7 tokens: expected 0 to 6"),
        ({"at": 0, "token": -1}, "token id -1 is not in the vocabulary"),
        ({"against": "今天天气"}, "tokens in this vocabulary"),
        ({"top": 0}, "top is 0, expected at least 1"),
    ):
        given: Any = options
        with pytest.raises(CutawayError, match=message):
            logit(read, **given)
    with pytest.raises(CutawayError, match="no output head"):
        logit(run_of("no head"))


@pytest.mark.parametrize(
    ("name", "text", "position"),
    [
        ("translate-zh-en", "我们明天去北京。", 0),
        ("poet-zh", "床前明月光，", -1),
        ("bert-tiny", "She was [MASK].", 3),
    ],
)
def test_bundled_models_add_up_at_the_position_that_a_reader_asks_about(
    name: str, text: str, position: int
) -> None:
    read = run(load(find(name)), text)
    found = logit(read)
    scores = read.forward()[0][position]
    assert found.position == position % len(read.outcome)
    assert found.total == pytest.approx(found.model_logit, rel=1e-4)
    gap = name == "bert-tiny"
    assert found.token_id == (int(scores.argmax()) if gap else read.outcome.ids[position])
    assert found.model_logit == float(scores[found.token_id])


def test_components_are_listed_by_size_and_add_up(cutaway: command.Run, poet: Path) -> None:
    asked = ("logit", "今天天气", "-m", poet, "--top", "5")
    found, lines = result(cutaway, *asked), shown(cutaway, *asked).splitlines()
    shares = sorted((each["share"] for each in found["components"]), key=lambda share: -abs(share))
    start = next(n for n, line in enumerate(lines) if line.endswith("written by")) + 2
    listed = [line.split()[0] for line in lines[start : start + 6]]
    assert listed[:5] == [f"{share:+.3f}" for share in shares[:5]]
    assert float(listed[5]) == pytest.approx(sum(shares[5:]), abs=5e-4)
    assert f"the {len(shares) - 5} others together" in lines[start + 5]
    assert f"{found['total']:.4f} of {len(shares)} shares; logit {found['logit']:.4f}," in " ".join(lines)
    head = next(
        each
        for each in found["components"]
        if (each["kind"], each["layer"], each["number"]) == ("head", 1, 0)
    )
    row = next(line.split() for line in lines if line.startswith("1   "))
    assert row[1] == f"{head['share']:+.2f}"


def test_as_a_command_in_both_languages(cutaway: command.Run, translator: Path, headless: Path) -> None:
    asked = ("logit", "好久不见。", "-m", translator, "--token", "#20", "--against", "#30")
    found = result(cutaway, *asked)
    assert (found["token_id"], found["against_id"]) == (20, 30)
    title = f"What wrote the logit of '{found['token']}' minus that of '{found['against']}'"
    assert " ".join(shown(cutaway, *asked).split()).startswith(title)
    chinese = shown_in_chinese(cutaway, *asked)
    assert "cross_attn 的头 " in chinese and "s 自注意力的头，c 交叉注意力的头" in chinese
    assert cutaway("inspect", *asked, "--save", "logit.safetensors").code == 0
    arrays = load_file("logit.safetensors")
    assert float(arrays["components.share"].sum()) == pytest.approx(found["total"])
    ff = next(each["share"] for each in found["components"] if each["kind"] == "feed-forward")
    assert f'<td class="right">{ff:.3f}</td>' in page_of(cutaway, *asked)
    assert "position 99 is not in the text" in refused(cutaway, *asked, "--at", "99")
    assert "logit needs an output head: a model that gives words and not vectors" in refused(
        cutaway, "logit", "好", "-m", headless
    )


def test_one_pass(passes: Callable[[], int], translator: Path) -> None:
    read = run(load(translator), "好久不见。")
    passes()
    logit(read).page()
    assert passes() == 1
