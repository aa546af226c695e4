"""Gradients are what small steps measure."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.nearness import tolerance
from torch import Tensor

from cutaway import CutawayError, Trace, find, load
from cutaway.inspection.attribution.gradients import Quantity, gradient_x_input
from cutaway.inspection.runs import Run, run
from cutaway.page.blocks import Shaded

STRUCTURES = [
    "pre-norm pair", "post-norm pair", "T5", "Llama", "GPT-2", "Gemma 2", "sandwich of layer norms", "BERT",
    "masked, pre-norm",
]  # fmt: skip


def embeddings(read: Run) -> dict[str, str]:
    """Side -> the tap of its token vectors."""
    if hasattr(read.model, "source_embed"):
        return {"encoder": "source_embed.embed", "decoder": "target_embed.embed"}
    return {"decoder" if hasattr(read.model, "decoder") else "encoder": "embed.embed"}


def score(
    read: Run, edit: dict[str, Callable[[Tensor], Tensor]], position: int, token: int, quantity: Quantity
) -> float:
    """The number itself in fp64, with token vectors changed by hand."""
    model = read.model.double()
    with torch.no_grad(), Trace(model, edit=edit):
        logits = model(**read.inputs)[0, position]
    model.float()
    return float((logits.log_softmax(dim=-1) if quantity == "log_prob" else logits)[token])


@pytest.mark.parametrize("structure", [*STRUCTURES, "experts"])
@pytest.mark.parametrize("quantity", ["logit", "log_prob"])
def test_gradient_x_input_is_what_a_small_step_measures(
    run_of: Callable[..., Run], structure: str, quantity: Quantity
) -> None:
    read, position, token = run_of(structure), 4, 11
    found = gradient_x_input(read, position, token, quantity=quantity)
    assert found.value == pytest.approx(score(read, {}, position, token, quantity), rel=1e-4)
    step, size = 3e-4, max(float(share.abs().max()) for share in found.shares.values())
    for side, tap in embeddings(read).items():
        for t in range(len(found.shares[side])):

            def stretched(by: float, t: int = t) -> Callable[[Tensor], Tensor]:
                def edit(x: Tensor) -> Tensor:
                    x = x.clone()
                    x[:, t] *= 1 + by
                    return x

                return edit

            ahead, behind = (
                score(read, {tap: stretched(by)}, position, token, quantity) for by in (step, -step)
            )
            assert float(found.shares[side][t]) == pytest.approx(
                (ahead - behind) / (2 * step), rel=2e-3, abs=2e-3 * size
            )
    if "decoder" in found.shares:
        assert not found.shares["decoder"][position + 1 :].any()  # what comes later is not seen
    shares = torch.cat(list(found.shares.values()))
    assert found.total == pytest.approx(
        float(shares.double().sum()), abs=tolerance(float(shares.abs().sum()), len(shares))
    )


def test_the_page_shades_every_token_by_its_share(run_of: Callable[..., Run]) -> None:
    found = gradient_x_input(run_of("post-norm pair"), 4, 11)
    shaded = [block for block in found.page().blocks if isinstance(block, Shaded)]
    seen = {"encoder": None, "decoder": found.position + 1}  # later tokens of the target cannot count
    assert [block.values for block in shaded] == [
        shares.tolist()[: seen[side]] for side, shares in found.shares.items()
    ]
    assert [block.tokens for block in shaded] == [
        tokens.pieces[: seen[side]] for side, tokens in found.tokens.items()
    ]
    assert "梯度 × 输入" in found.to_html("zh") and found.to_text().startswith("What the log-probability of ")


def test_parameters_get_no_gradient(run_of: Callable[..., Run]) -> None:
    read = run_of("GPT-2")
    gradient_x_input(read)
    assert all(parameter.grad is None for parameter in read.model.parameters())


def test_what_is_not_there_is_refused(run_of: Callable[..., Run]) -> None:
    read = run_of("GPT-2")
    wrong: Any = "logits"
    with pytest.raises(CutawayError, match=r"quantity is 'logits'.*'logit'.*expected logit or log_prob"):
        gradient_x_input(read, quantity=wrong)
    with pytest.raises(CutawayError, match="no output head"):
        gradient_x_input(run_of("no head"))


def test_a_bundled_translator_depends_on_its_source() -> None:
    read = run(load(find("translate-zh-en")), "我们明天去北京。")
    found = gradient_x_input(read, 2)
    assert found.shares["encoder"].shape == (len(read.source or ()),)
    assert found.token_id == read.outcome.ids[2]
    scores = read.forward()[0][2].log_softmax(dim=-1)
    assert found.value == pytest.approx(float(scores[found.token_id]), abs=1e-4)
    assert found.shares["encoder"].abs().max() > 0.01
